"""What `serve` keeps beside its token: its address, its process; and who finds it there."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest
from attrs import evolve

from tests.cli.clients import Commands
from tests.cli.processes import Serve, Starter, starter

pytestmark = pytest.mark.real_tcp


@pytest.fixture
def here(tmp_path: Path) -> Commands:
    """Run commands in the folder of `serve`, with nothing in their environment."""
    return Commands("", tmp_path, token=None)


def ready(served: Serve) -> str:
    """Wait until `serve` has said everything, and return its address."""
    url = served.url()
    served.line("token for local: ")
    return url


def stopped(served: Serve) -> None:
    """Stop in order."""
    served.send_signal(signal.SIGTERM)
    assert served.end()[0] == 0


def test_a_command_finds_the_address_and_the_token(
    start: Starter, here: Commands, tmp_path: Path
) -> None:
    """With a free port, nothing has to be told; the file is the owner's, and goes with `serve`."""
    served = start("serve", "--port=0")
    url = ready(served)
    assert here.run("submit", "echo", "--input", "7").out == '{"echo":7}\n'
    kept = tmp_path / ".arcp" / "address"
    assert kept.read_text(encoding="utf-8") == f"{url}\n"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    stopped(served)
    assert {path.name for path in kept.parent.iterdir()} >= {"token"}
    assert not [path for path in kept.parent.iterdir() if "address" in path.name]


def test_each_folder_has_its_own(start: Starter, here: Commands) -> None:
    """`--data` names the folder of the runtime that is meant, for `serve` and for commands."""
    for name, agent in (("a", "mine=tests.crash.agents:count"), ("b", None)):
        served = start("serve", "--port=0", f"--data={name}", *([f"--agent={agent}"] * bool(agent)))
        ready(served)
    assert [each["name"] for each in here.run("agents", "--data=a", "--json").objects] == ["mine"]
    assert len(here.run("agents", "--data=b", "--json").objects) > 1


@pytest.mark.parametrize("host", ["0.0.0.0", "unix:arcp.sock"])
def test_the_address_is_one_for_this_machine(start: Starter, here: Commands, host: str) -> None:
    """With a wildcard address, or a Unix socket, commands connect and show the token."""
    served = start("serve", "--port=0", f"--host={host}", "--insecure")
    ready(served)
    assert here.run("ping", "--count=1").code == 0


def test_an_address_that_is_given_comes_first(start: Starter, here: Commands) -> None:
    """`--url` and ARCP_URL name another runtime."""
    served = start("serve", "--port=0")
    ready(served)
    assert "no runtime listens at ws://127.0.0.1:1/arcp;" in here.refused(
        3, "agents", "--url=ws://127.0.0.1:1/arcp"
    )
    assert "no runtime listens at ws://127.0.0.1:1/arcp;" in here.refused(
        3, "agents", ARCP_URL="ws://127.0.0.1:1/arcp"
    )


def test_what_a_killed_serve_leaves_is_no_address(
    start: Starter, here: Commands, tmp_path: Path
) -> None:
    """Nothing is sent to the port of a dead process, and the message says that it has ended."""
    served = start("serve", "--port=0")
    ready(served)
    served.send_signal(signal.SIGKILL)
    served.end()
    assert (tmp_path / ".arcp" / "address").exists()
    said = here.refused(3, "agents")
    assert said.startswith(
        "no runtime listens at ws://127.0.0.1:7777/arcp, and the one in .arcp/add"
    )
    again = start("serve", "--port=0")
    ready(again)
    assert here.run("agents").code == 0
    stopped(again)
    assert not (tmp_path / ".arcp" / "address").exists()


@pytest.mark.parametrize("content", [b"", b"\xff", b"nonsense\n"])
def test_a_file_that_is_no_address(here: Commands, tmp_path: Path, content: bytes) -> None:
    """A damaged file, or a pipe in its place, is one line of failure."""
    (tmp_path / ".arcp").mkdir()
    (tmp_path / ".arcp" / "address").write_bytes(content)
    assert here.refused(3, "agents").startswith("no runtime listens at ws://127.0.0.1:7777/arcp")
    (tmp_path / ".arcp" / "address").unlink()
    os.mkfifo(tmp_path / ".arcp" / "address")
    assert here.refused(3, "agents").startswith("no runtime listens at ws://127.0.0.1:7777/arcp")


def test_a_serve_that_cannot_start_takes_nothing_away(start: Starter, here: Commands) -> None:
    """A second `serve` in the folder is refused, and the address of the first stays."""
    served = start("serve", "--port=0")
    ready(served)
    second = start("serve", "--port=0")
    assert second.end()[0] == 2
    assert here.run("agents").code == 0


def test_in_memory_no_address_is_kept(start: Starter, tmp_path: Path) -> None:
    """With --memory nothing is written."""
    served = start("serve", "--port=0", "--memory")
    ready(served)
    stopped(served)
    assert list(tmp_path.iterdir()) == []


def test_commands_look_in_the_folders_above(start: Starter, here: Commands, tmp_path: Path) -> None:
    """A command finds the nearest `.arcp`, as `replay` does; the user's own place is the last."""
    served = start("serve", "--port=0")
    ready(served)
    below = tmp_path / "src" / "package"
    below.mkdir(parents=True)
    assert evolve(here, folder=below).run("agents").code == 0
    (below / ".arcp").mkdir()
    assert "no runtime listens" in evolve(here, folder=below).refused(3, "agents")
    own = tmp_path / "data" / "arcp-trio"
    own.mkdir(parents=True)
    mine = start("serve", "--port=0", f"--data={own}", "--agent=mine=tests.crash.agents:count")
    ready(mine)
    place = {"XDG_DATA_HOME": str(tmp_path / "data")}
    with tempfile.TemporaryDirectory(dir="/") as elsewhere:
        found = evolve(here, folder=Path(elsewhere)).run("agents", "--json", **place)
    assert [each["name"] for each in found.objects] == ["mine"]
    stopped(served)
    assert evolve(here, folder=tmp_path / "src").run("replay").code == 0


def test_serve_says_that_it_makes_a_second_folder(start: Starter, tmp_path: Path) -> None:
    """Below a data folder it makes one of its own, names both once, and then uses it."""
    first = start("serve", "--port=0")
    ready(first)
    stopped(first)
    (tmp_path / "below").mkdir()
    with starter(tmp_path / "below") as start_below:
        served = start_below("serve", "--port=0")
        both = f"path={tmp_path}/below/.arcp above={tmp_path}/.arcp"
        assert served.line("makes a data folder of its own; --data takes the one above ") == both
        ready(served)
        stopped(served)
        again = start_below("serve", "--port=0")
        ready(again)
        assert not [line for line in again.said if "folder of its own" in line]


def test_a_folder_above_that_is_another_users_is_passed_over(
    start: Starter, here: Commands, tmp_path: Path
) -> None:
    """Nobody else's address is taken: who may write to a folder above could put theirs there."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    served = start("serve", "--port=0")
    ready(served)
    (tmp_path / "below").mkdir()
    os.chown(tmp_path / ".arcp", 65534, 65534)
    assert "no runtime listens" in evolve(here, folder=tmp_path / "below").refused(3, "agents")


def test_stop_ends_the_serve_of_a_folder(start: Starter, here: Commands, tmp_path: Path) -> None:
    """`stop` ends it in order, and waits; then there is nothing to stop."""
    served = start("serve", "--port=0")
    ready(served)
    kept = tmp_path / ".arcp" / "pid"
    assert kept.read_text(encoding="utf-8") == f"{served.process.pid}\n"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    (tmp_path / "below").mkdir()
    done = evolve(here, folder=tmp_path / "below").run("stop")
    assert (done.code, done.err) == (0, f"the serve of {tmp_path}/.arcp has ended\n")
    assert served.process.poll() == 0, "stop has waited for it"
    assert not kept.exists()
    assert here.refused(1, "stop") == f"there is no serve that uses {tmp_path}/.arcp"


def test_stop_sends_nothing_to_another_process(
    start: Starter, here: Commands, tmp_path: Path
) -> None:
    """The file of a killed serve may name a process that has begun since: it is left alone."""
    served = start("serve", "--port=0")
    ready(served)
    served.send_signal(signal.SIGKILL)
    served.end()
    with subprocess.Popen(["sleep", "60"]) as other:
        (tmp_path / ".arcp" / "pid").write_text(f"{other.pid}\n")
        assert "there is no serve that uses" in here.refused(1, "stop")
        assert other.poll() is None
        again = start("serve", "--port=0")
        ready(again)
        with (tmp_path / ".arcp" / "pid").open("r+") as kept:
            kept.write(f"{other.pid}\n")
        assert here.run("stop").code == 0
        assert other.poll() is None
        other.kill()
    assert again.process.poll() == 0
