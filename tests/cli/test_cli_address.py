"""The address that `serve` keeps beside its token, and the commands that find it there."""

from __future__ import annotations

import os
import signal
import stat
from pathlib import Path

import pytest

from tests.cli.clients import Commands
from tests.cli.processes import Serve, Starter

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
