"""`serve` as a process: how it starts, what it prints, and whom it serves."""

from __future__ import annotations

import os
import re
import resource
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import ROOT, Peer, Serve, Starter, peer

pytestmark = pytest.mark.real_tcp

AGENTS = """
import os, sys
import arcp_trio, trio

print("imported")
agents = arcp_trio.Agents()

@agents.agent("echo", version="9")
async def echo(job):
    return "mine"

@agents.agent("noisy")
async def noisy(job):
    print("noise")

@agents.agent("stepper")
async def stepper(job):
    for step in (1, 2, 3):
        await job.progress(step, total=3)
    while not os.path.exists("may-finish"):
        await trio.sleep(0.01)
    return "finished"
"""


@pytest.fixture(autouse=True)
def _agents(tmp_path: Path) -> None:
    (tmp_path / "my_agents.py").write_text(AGENTS, encoding="utf-8")


def serve_mine(start: Starter, *arguments: str) -> Serve:
    """Serve the agents above to alice."""
    return start("serve", "--port=0", "--token=alice=x", "--agents=my_agents", *arguments)


def test_it_starts_with_nothing_given(start: Starter, tmp_path: Path) -> None:
    """Without options there are an address, a token that is shown and kept, and the demo agents."""
    served = start("serve", "--port", "0")
    url = served.url()
    assert re.fullmatch(r"ws://127\.0\.0\.1:[1-9][0-9]*/arcp", url)
    token = served.line("token for local: ")
    kept = tmp_path / ".arcp" / "token"
    assert kept.read_text(encoding="utf-8") == token + "\n"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    with peer(url, token) as session:
        (end,) = session.run("echo", {"a": 1})
    assert end["payload"]["result"] == {"echo": {"a": 1}}
    served.send_signal(signal.SIGTERM)
    code, out, _ = served.end()
    assert (code, out) == (0, "")

    again = start("serve", "--port", "0")
    again.url()
    assert again.line("token for local: ") == token


def test_in_memory_nothing_is_written(start: Starter, tmp_path: Path) -> None:
    """With --memory the token that is made is accepted, and nothing is written to the disk."""
    before = set(tmp_path.iterdir())
    served = start("serve", "--port", "0", "--memory")
    with peer(served.url(), served.line("token for local: ")) as session:
        assert session.answer["type"] == "session.welcome"
    assert set(tmp_path.iterdir()) == before


def test_given_tokens(start: Starter, tmp_path: Path) -> None:
    """The tokens of all sources are accepted, any other token is refused, and no token is made."""
    (tmp_path / "tokens").write_text("# people\ncarol=t3\n", encoding="utf-8")
    served = start(
        *("serve", "--port=0", "--token=alice=t1", "--token-file=tokens"),
        environment={"ARCP_TOKENS": "bob=t2"},
    )
    url = served.url()
    for token, answer in (("t1", "welcome"), ("t2", "welcome"), ("t3", "welcome"), ("t4", "error")):
        with peer(url, token) as session:
            assert session.answer["type"] == f"session.{answer}"
    served.send_signal(signal.SIGINT)
    code, _, err = served.end()
    assert code == 0
    assert "token for" not in err
    assert not (tmp_path / ".arcp" / "token").exists()


@pytest.mark.spec("6.6-4", "6.6-5", "7.6-9", "7.6-13")
def test_an_observer_sees_everybodys_jobs(start: Starter, tmp_path: Path) -> None:
    """An observer lists and follows a job of another principal, and cannot cancel it.

    A principal that is not an observer learns nothing of the job.
    """
    tokens = [f"--token={name}=t-{name}" for name in ("alice", "bob", "auditor")]
    options = ("--port=0", "--memory", "--agents=my_agents", "--observer=auditor")
    url = start("serve", *options, *tokens).url()
    with peer(url, "t-alice") as alice, peer(url, "t-bob") as bob, peer(url, "t-auditor") as seer:
        job_id = alice.submit("stepper")["payload"]["job_id"]
        assert [entry["job_id"] for entry in listed(seer)] == [job_id]
        assert listed(bob) == []

        bob.send("job.subscribe", {"job_id": job_id})
        assert bob.receive()["payload"]["code"] == "JOB_NOT_FOUND"
        seer.send("job.cancel", {"job_id": job_id})
        assert seer.receive()["payload"]["code"] == "PERMISSION_DENIED"
        seer.send("job.subscribe", {"job_id": job_id, "history": True})
        assert seer.receive()["type"] == "job.subscribed"
        (tmp_path / "may-finish").touch()
        *events, end = seer.until_terminal()
        assert [frame["payload"]["kind"] for frame in events] == ["progress"] * 3
        assert end["payload"]["result"] == "finished"


def listed(client: Peer) -> list[dict[str, Any]]:
    """Return the entries of a listing of all jobs."""
    client.send("session.list_jobs", {})
    entries: list[dict[str, Any]] = client.receive()["payload"]["jobs"]
    return entries


def test_an_ipv6_address_stands_in_brackets(start: Starter) -> None:
    """The URL of an IPv6 host is one that a client can use."""
    url = start("serve", "--host", "::1", "--port", "0", "--memory").url()
    assert re.fullmatch(r"ws://\[::1\]:[1-9][0-9]*/arcp", url)


def test_a_configuration_file(start: Starter, tmp_path: Path) -> None:
    """The options and limits of a file hold: here its agent, its token and the resume window."""
    (tmp_path / "arcp.toml").write_text(
        '[serve]\nport = 0\ntoken = ["alice=x"]\nagent = ["mine@7=my_agents:stepper"]\n'
        "[limits]\nresume_window_seconds = 7\n",
        encoding="utf-8",
    )
    with peer(start("serve", "--config", "arcp.toml").url(), "x") as session:
        welcome = session.answer["payload"]
    assert [agent["name"] for agent in welcome["capabilities"]["agents"]] == ["mine"]
    assert welcome["resume_window_sec"] == 7


@pytest.mark.parametrize("demo", [False, True])
def test_agents_of_ones_own(start: Starter, *, demo: bool) -> None:
    """Named agents are alone; --demo-agents adds the demo agents of other names."""
    with peer(serve_mine(start, *["--demo-agents"] * demo).url(), "x") as session:
        agents = {
            agent["name"]: agent["versions"]
            for agent in session.answer["payload"]["capabilities"]["agents"]
        }
        (end,) = session.run("echo")
    assert agents["echo"] == ["9"]
    assert ("countdown" in agents) is demo
    assert end["payload"]["result"] == "mine"


def test_no_demo_agents(start: Starter) -> None:
    """With --no-demo-agents no demo agents are served, even if no other agent is named."""
    served = start("serve", "--port=0", "--memory", "--token=alice=x", "--no-demo-agents")
    with peer(served.url(), "x") as session:
        assert session.answer["payload"]["capabilities"]["agents"] == []


def test_standard_output_has_one_line(start: Starter) -> None:
    """What agents print, at import and at work, goes to standard error."""
    served = serve_mine(start)
    with peer(served.url(), "x") as session:
        session.run("noisy")
    served.send_signal(signal.SIGTERM)
    code, out, err = served.end()
    assert (code, out) == (0, "")
    assert "imported\n" in err
    assert "noise\n" in err


def test_closed_standard_streams_become_no_socket(tmp_path: Path) -> None:
    """With its standard streams closed, `serve` has /dev/null in their place, and no socket."""
    script = 'exec "$0" -m arcp_trio serve --host unix:here --memory --token=alice=x <&- >&- 2>&-'
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = ["sh", "-c", script, sys.executable]
    with subprocess.Popen(command, cwd=tmp_path, env=environment) as process:
        try:
            while not (tmp_path / "here").is_socket():
                assert process.poll() is None
                time.sleep(0.05)
            open_files = Path(f"/proc/{process.pid}/fd")
            assert {(open_files / n).readlink() for n in "012"} == {Path(os.devnull)}
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()


def test_standard_error_may_be_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With standard error closed, only the log and the shown token are lost; `serve` goes on."""
    monkeypatch.delenv("ARCP_TOKENS", raising=False)
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "arcp_trio", "serve", "--port=0"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=write,
        text=True,
    ) as process:
        os.close(write)
        try:
            url = Serve(process).url()
            with peer(url, (tmp_path / ".arcp" / "token").read_text().strip()) as session:
                assert session.answer["type"] == "session.welcome"
            for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGTERM):
                process.send_signal(number)
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()


def test_it_may_have_as_many_descriptors_as_possible(start: Starter) -> None:
    """`serve` raises its soft limit of descriptors to the hard one: each connection needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
    try:
        served = start("serve", "--port=0", "--memory", "--token=alice=a")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert served.url()
    assert resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE) == (hard, hard)
