"""`serve` as a process: what it prints, how it fails to start, how it ends."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import resource
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import ConnectionClosed

from tests.cli.processes import ROOT, Peer, Serve, Starter, peer

pytestmark = pytest.mark.real_tcp

END_SECONDS = 5.0
"""What is promised from the end of the drain to that of the process."""

AGENTS = """
import signal, sys, threading, time
import arcp_trio, trio

print("imported")
agents = arcp_trio.Agents()

@agents.agent("echo", version="9")
async def echo(job):
    return "mine"

@agents.agent("noisy")
async def noisy(job):
    print("noise")

@agents.agent("polite")
async def polite(job):
    print("at work", file=sys.stderr)
    await trio.sleep(0.5)
    return "finished"

@agents.agent("sitting")
async def sitting(job):
    print("at work", file=sys.stderr)
    await trio.to_thread.run_sync(time.sleep, 60)

@agents.agent("blocking")
async def blocking(job):
    before = signal.getsignal(signal.SIGTERM)
    print("at work", file=sys.stderr)
    while signal.getsignal(signal.SIGTERM) is before:
        time.sleep(0.01)
    print("signalled", file=sys.stderr)
    time.sleep(60)

@agents.agent("straggling")
async def straggling(job):
    threading.Thread(target=time.sleep, args=(60,)).start()
    print("at work", file=sys.stderr)
"""


@pytest.fixture(autouse=True)
def _agents(tmp_path: Path) -> None:
    (tmp_path / "my_agents.py").write_text(AGENTS, encoding="utf-8")


def serve_mine(start: Starter, *arguments: str) -> Serve:
    """Serve the agents above, for alice."""
    return start("serve", "--port=0", "--token=alice=x", "--agents=my_agents", *arguments)


def assert_refused(served: Serve) -> str:
    """Expect the failure to start: exit code 2, nothing on stdout, one line on stderr."""
    code, out, err = served.end()
    assert (code, out) == (2, ""), err
    assert err.startswith("arcp-trio: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    return err


def assert_closed(session: Peer, code: int) -> None:
    """Expect the socket to be closed with this code."""
    with pytest.raises(ConnectionClosed) as caught:
        session.receive()
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == code


def test_help_imports_no_runtime() -> None:
    """`--help` is fast because it loads neither Trio nor the runtime."""
    script = (
        "import sys; from arcp_trio.cli import main\n"
        "try: main(['serve', '--help'])\n"
        "finally: print({'trio', 'cattrs', 'msgspec'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stderr) == (0, "set()\n")


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
    """With --memory the made token works and leaves no trace."""
    before = set(tmp_path.iterdir())
    served = start("serve", "--port", "0", "--memory")
    with peer(served.url(), served.line("token for local: ")) as session:
        assert session.answer["type"] == "session.welcome"
    assert set(tmp_path.iterdir()) == before


def test_given_tokens(start: Starter, tmp_path: Path) -> None:
    """Tokens of all sources are good, another one is not, and none is made or shown."""
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
def test_an_observer_sees_everybodys_jobs(start: Starter) -> None:
    """It lists and follows a job of somebody else, and may not cancel it; others know of none."""
    tokens = [f"--token={name}=t-{name}" for name in ("alice", "bob", "auditor")]
    url = start("serve", "--port=0", "--memory", *tokens, "--observer=auditor").url()
    with peer(url, "t-alice") as alice, peer(url, "t-bob") as bob, peer(url, "t-auditor") as seer:
        job_id = alice.submit("countdown", {"n": 3, "delay": 0.1})["payload"]["job_id"]
        assert [entry["job_id"] for entry in listed(seer)] == [job_id]
        assert listed(bob) == []

        bob.send("job.subscribe", {"job_id": job_id})
        assert bob.receive()["payload"]["code"] == "JOB_NOT_FOUND"
        seer.send("job.cancel", {"job_id": job_id})
        assert seer.receive()["payload"]["code"] == "PERMISSION_DENIED"
        seer.send("job.subscribe", {"job_id": job_id, "history": True})
        assert seer.receive()["type"] == "job.subscribed"
        *events, end = seer.until_terminal()
        assert [frame["payload"]["kind"] for frame in events] == ["progress"] * 3
        assert end["payload"]["result"] == {"done": 3}


def listed(client: Peer) -> list[dict[str, Any]]:
    """What a client is told of when it asks for all jobs."""
    client.send("session.list_jobs", {})
    entries: list[dict[str, Any]] = client.receive()["payload"]["jobs"]
    return entries


def test_an_ipv6_address_stands_in_brackets(start: Starter) -> None:
    """The URL of an IPv6 host is one that a client can use."""
    url = start("serve", "--host", "::1", "--port", "0", "--memory").url()
    assert re.fullmatch(r"ws://\[::1\]:[1-9][0-9]*/arcp", url)


def test_a_configuration_file(start: Starter, tmp_path: Path) -> None:
    """Options and bounds of a file hold: here its agents, its token and the window."""
    (tmp_path / "arcp.toml").write_text(
        '[serve]\nport = 0\ntoken = ["alice=x"]\nagent = ["mine@7=my_agents:polite"]\n'
        "no_demo_agents = true\n[limits]\nresume_window_seconds = 7\n",
        encoding="utf-8",
    )
    with peer(start("serve", "--config", "arcp.toml").url(), "x") as session:
        welcome = session.answer["payload"]
    assert [agent["name"] for agent in welcome["capabilities"]["agents"]] == ["mine"]
    assert welcome["resume_window_sec"] == 7


def test_agents_of_ones_own(start: Starter) -> None:
    """A user's agent replaces the demo agent of its name, and the other demo agents stay."""
    with peer(serve_mine(start).url(), "x") as session:
        agents = {
            agent["name"]: agent["versions"]
            for agent in session.answer["payload"]["capabilities"]["agents"]
        }
        (end,) = session.run("echo")
    assert agents["echo"] == ["9"]
    assert agents["countdown"] == ["1.0.0"]
    assert end["payload"]["result"] == "mine"


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


def test_closed_standard_streams_are_nobodys_socket(tmp_path: Path) -> None:
    """What is written past Python to standard error reaches no client, and all goes on."""
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
            assert process.wait(timeout=30) == 0
        finally:
            process.kill()


def test_nobody_has_to_read_standard_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever did has gone: the log and the token that was made are lost, and nothing else."""
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
            assert process.wait(timeout=30) == 0
        finally:
            process.kill()


def test_a_port_in_use(start: Starter, tmp_path: Path) -> None:
    """A port that another process has is one line with the address and a way out, and no trace.

    What is wrong with the options is said before.
    """
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        options = ("serve", "--port", str(port))
        err = assert_refused(start(*options))
        wrong = assert_refused(start(*options, "--token", "x"))
        assert "--token number 1 has no '='; write principal=token" in wrong
        unsigned = assert_refused(start(*options, "--jwt-audience", "here"))
        assert "signed tokens need their keys" in unsigned
    assert f"cannot listen on 127.0.0.1:{port}: address already in use; " in err
    assert "--port" in err
    assert not (tmp_path / ".arcp").exists()


@pytest.mark.parametrize("host", ["no such host", "192.0.2.1", "x" * 70, "a..b"])
def test_a_bad_host(start: Starter, host: str) -> None:
    """A host that is no name, or nobody's or somebody else's address, is one line."""
    err = assert_refused(start("serve", "--memory", "--port", "0", "--host", host))
    assert host in err
    assert "--host" in err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--agents", "nowhere"), "there is no module nowhere"),
        (("--agents", "my_agents.py"), "leave out the .py, my_agents"),
        (("--agent", "a=my_agents:agents"), "not an async function"),
        (("--token", "hush"), "--token number 1 has no '='"),
        (("--config", "absent.toml"), "absent.toml"),
        (("--config", "my_agents.py"), "my_agents.py is not a TOML file"),
        (("--token-file", "absent"), "absent"),
        (("--data", "my_agents.py"), "choose another --data"),
        (("--port", "many"), "--port"),
        (("--agent=noisy@1.0.0=my_agents:noisy", "--agents=my_agents"), "noisy@1.0.0"),
    ],
)
def test_what_keeps_it_from_starting(
    start: Starter, arguments: tuple[str, ...], complaint: str
) -> None:
    """Whatever is wrong, it is one line, exit code 2, and no traceback."""
    err = start("serve", "--port", "0", *arguments).end()
    assert err[:2] == (2, "")
    *printed, line = err[2].splitlines()
    assert printed in ([], ["imported"])  # the module of agents prints, and may
    assert line.startswith("arcp-trio: ")
    assert complaint in line
    assert "hush" not in line


def test_debug_shows_the_traceback(start: Starter, tmp_path: Path) -> None:
    """What an agents' module raises is one line, and under --log-level debug all of it."""
    (tmp_path / "broken.py").write_text("1 / 0\n", encoding="utf-8")
    short = assert_refused(start("serve", "--agents", "broken"))
    assert "importing broken failed with ZeroDivisionError" in short
    code, out, err = start("serve", "--agents", "broken", "--log-level", "debug").end()
    assert (code, out) == (2, "")
    assert "Traceback" in err
    assert 'broken.py", line 1' in err
    assert err.endswith(short)


def test_sigterm_ends_jobs_and_says_so(start: Starter) -> None:
    """A client reads the end of its job, then 1001; the process ends with 0, and at once."""
    served = serve_mine(start)
    with peer(served.url(), "x") as session:
        session.submit("sleeper")
        asked = time.monotonic()
        served.send_signal(signal.SIGTERM)
        (end,) = session.until_terminal()
        assert end["type"] == "job.error"
        assert end["payload"]["code"] == "INTERNAL_ERROR"
        assert end["payload"]["retryable"] is True
        assert_closed(session, 1001)
    code, _, err = served.end()
    assert code == 0, err
    assert time.monotonic() - asked < END_SECONDS
    assert "Traceback" not in err


def test_it_takes_all_the_descriptors_it_may(start: Starter) -> None:
    """Systems give a process few to begin with, and each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
    try:
        served = start("serve", "--port=0", "--memory", "--token=alice=a")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert served.url()
    assert resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE) == (hard, hard)


def page(url: str, path: str) -> tuple[int, str]:
    """What is answered to a GET, on the same port."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)
    with contextlib.closing(connection):
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode().strip()


def assert_shutting_down(refused: Any) -> None:
    """It is refused, for now."""
    assert refused["type"] == "session.error"
    assert refused["payload"]["code"] == "INTERNAL_ERROR"
    assert refused["payload"]["retryable"] is True
    assert "shutting down" in refused["payload"]["message"]


def test_a_drain_lets_jobs_finish(start: Starter) -> None:
    """During the drain a job goes on to its result, while new work and new clients are refused."""
    served = serve_mine(start, "--drain", "20")
    url = served.url()
    asked = time.monotonic()
    with peer(url, "x") as session:
        session.submit("polite")
        served.line("at work")
        served.send_signal(signal.SIGTERM)
        while page(url, "/readyz") != (503, "shutting down"):
            pass  # until the signal has been taken up
        assert page(url, "/healthz") == (200, "alive")
        with peer(url, "x") as late:
            assert_shutting_down(late.answer)
        assert_shutting_down(session.submit("echo"))
        (end,) = session.until_terminal()
        assert end["payload"]["result"] == "finished"
        assert_closed(session, 1001)
    assert served.end()[0] == 0
    assert time.monotonic() - asked < 10


@pytest.mark.parametrize("agent", ["sitting", "blocking", "straggling"])
def test_no_agent_holds_the_end_up(start: Starter, agent: str) -> None:
    """An agent in a thread, one that blocks the loop, and a thread left behind: 0 within 5 s."""
    served = serve_mine(start)
    with peer(served.url(), "x") as session:
        session.send("job.submit", {"agent": agent, "input": None})
        served.line("at work")
        asked = time.monotonic()
        served.send_signal(signal.SIGTERM)
        code, _, err = served.end()
    assert time.monotonic() - asked < END_SECONDS
    assert code == 0
    assert "leaving without it" in err


def test_the_end_of_a_job_does_not_wait_for_its_agent(start: Starter) -> None:
    """A client reads the end of its job, then 1001, although the agent sits in a thread."""
    served = serve_mine(start)
    with peer(served.url(), "x") as session:
        session.submit("sitting")
        served.line("at work")
        served.send_signal(signal.SIGTERM)
        (end,) = session.until_terminal()
        assert end["payload"]["code"] == "INTERNAL_ERROR"
        assert_closed(session, 1001)


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("agent", ["sitting", "blocking"])
def test_a_second_signal_ends_it_at_once(
    start: Starter, second: signal.Signals, agent: str
) -> None:
    """During a long drain, even a blocked one, the second signal ends it with 128 + its number."""
    served = serve_mine(start, "--drain", "600")
    with peer(served.url(), "x") as session:
        session.send("job.submit", {"agent": agent, "input": None})
        served.line("at work")
        served.send_signal(signal.SIGTERM)
        served.line({"sitting": "shutting down", "blocking": "signalled"}[agent])
        asked = time.monotonic()
        served.send_signal(second)
        assert served.end()[0] == 128 + second
    assert time.monotonic() - asked < END_SECONDS
