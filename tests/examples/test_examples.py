"""The programs in examples/, each run as its docstring says."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from attrs import evolve

from tests.cli.clients import Commands, served
from tests.cli.processes import LIFETIME_SECONDS, ROOT, starter, without_stalls

pytestmark = pytest.mark.real_tcp

PROGRAMS = ROOT / "examples"


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """Serve the demo agents and the examples' agents, for all tests of the file."""
    folder = tmp_path_factory.mktemp("examples")
    with starter(folder, lifetime=300) as start:
        names = ("researcher", "newsroom", "langgraph_agent")
        agents = [f"--agents=examples.{name}" for name in names]
        countdown = "--agent=countdown=arcp_trio.cli.serve.demo:countdown"
        options = ("--port=0", "--memory", "--token=alice=s3cret", "--log-level=error")
        served = start("serve", *options, *agents, countdown)
        yield Commands(served.url(), folder)


@contextmanager
def program(commands: Commands, name: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run an example for the block, bounded in time."""
    process = subprocess.Popen(
        [sys.executable, str(PROGRAMS / name), *arguments],
        cwd=commands.folder,
        env=commands.environment(PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def output(process: subprocess.Popen[str], code: int = 0) -> str:
    """Wait for a program's end, and return what it has printed."""
    out, err = process.communicate(timeout=LIFETIME_SECONDS)
    assert (process.returncode, [*without_stalls(err.splitlines())]) == (code, [])
    return out


def line(process: subprocess.Popen[str], part: str) -> str:
    """Read a program's output up to the line that has this part."""
    assert process.stdout is not None
    for text in process.stdout:
        if part in text:
            return text
    raise AssertionError(f"{part!r} was not printed")


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def submit_line(name: str) -> list[str]:
    """Return the arguments of the `arcp-trio submit` line in an example's docstring."""
    found = re.search(r"arcp-trio (submit .*)", (PROGRAMS / name).read_text())
    assert found is not None
    return shlex.split(found[1])


def test_every_example_has_a_test() -> None:
    """No example is left out here."""
    tests = Path(__file__).read_text()
    assert [path.name for path in PROGRAMS.glob("*.py") if path.name not in tests] == []


def test_agent_with_tools_and_a_budget(commands: Commands) -> None:
    """The researcher works until its budget is used up."""
    done = commands.run(*submit_line("researcher.py"), "--json")
    assert done.code == 0, done.err
    result = done.objects[-1]["result"]
    assert [len(result["found"]), result["stopped_by"]] == [3, "USD budget exhausted"]


def test_team(commands: Commands) -> None:
    """The editor's writers write at the same time, each on its share of the budget."""
    done = commands.run(*submit_line("newsroom.py"), "--json")
    assert done.code == 0, done.err
    result = done.objects[-1]["result"]
    assert [len(result["article"]), result["left"]] == [2, {"USD": "0.86"}]


def test_langgraph_agent(commands: Commands) -> None:
    """The graph runs as a job: its nodes are events, and its model's calls are tool calls."""
    done = commands.run(*submit_line("langgraph_agent.py"), "--json")
    assert done.code == 0, done.err
    events = [each["body"] for each in done.objects if "body" in each]
    assert [body["phase"] for body in events if "phase" in body] == ["draft", "summarise"]
    calls = [body for body in events if "tool" in body]
    assert [body["tool"] for body in calls] == ["model.ask"] * 3
    result = done.objects[-1]["result"]
    assert [len(result["steps"]), "a picnic" in result["summary"]] == [2, True]


def test_dashboard(commands: Commands) -> None:
    """The dashboard prints each event of a job that began after it, and how the job ended."""
    with program(commands, "dashboard.py") as dashboard:
        line(dashboard, "watching")
        assert commands.run("submit", "countdown", "--input", '{"n": 8}').code == 0
        assert "progress" in line(dashboard, "'current': 1,")
        assert line(dashboard, "returned").endswith("returned {'done': 8}\n")
        dashboard.send_signal(signal.SIGINT)
        output(dashboard)


def test_client_comes_back(commands: Commands) -> None:
    """A client that was killed finds its job again, with all of its events."""
    with program(commands, "comes_back.py", "monday") as first:
        job = line(first, "job ")
        line(first, "'current': 2,")
        first.kill()
    with program(commands, "comes_back.py", "monday") as second:
        said = output(second)
    assert said.startswith(job)
    assert said.count("progress") == 50
    assert said.endswith("{'done': 50}\n")


def test_web_service(commands: Commands) -> None:
    """A POST is answered with the result of a job, and Ctrl-C ends the service quietly."""
    web_port, arcp_port = free_port(), free_port()
    with program(commands, "web_service.py", str(web_port), str(arcp_port)) as service:
        line(service, "http://")
        with socket.create_connection(("127.0.0.1", web_port), LIFETIME_SECONDS) as stream:
            stream.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nAda")
            answer = b"".join(iter(lambda: stream.recv(4096), b""))
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.endswith(b"\r\n\r\nhello Ada\n")
        service.send_signal(signal.SIGINT)
        output(service)


def test_asyncio_program(commands: Commands) -> None:
    """An asyncio program receives the events and the result of a job."""
    with program(commands, "in_asyncio.py") as asking:
        said = output(asking)
    assert said.count("'total': 5") == 5
    assert said.endswith("{'done': 5}\n")


ENDLESS = """
import arcp_trio, trio

agents = arcp_trio.Agents()

@agents.agent("countdown")
async def countdown(job):
    await job.progress(1, total=5)
    await trio.sleep_forever()
"""


def test_asyncio_program_is_cancelled(tmp_path: Path) -> None:
    """Ctrl-C in asyncio ends Trio's side, too: the program closes its session and ends."""
    (tmp_path / "endless.py").write_text(ENDLESS, encoding="utf-8")
    with (
        served(tmp_path, "--agents=endless", demo_agents=False) as other,
        program(other, "in_asyncio.py") as asking,
    ):
        line(asking, "'current': 1,")
        asking.send_signal(signal.SIGINT)
        _, err = asking.communicate(timeout=LIFETIME_SECONDS)
    assert err == "left, and the job goes on\n"


def test_client_is_left(commands: Commands) -> None:
    """Ctrl-C in the client that comes back is one line, which says how to go on."""
    with program(commands, "comes_back.py", "tuesday") as first:
        line(first, "'current': 1,")
        first.send_signal(signal.SIGINT)
        _, err = first.communicate(timeout=LIFETIME_SECONDS)
    assert err == "left, and the job goes on: start this again with the same key\n"


def test_provisioned_credential(commands: Commands) -> None:
    """A key opens the gateway while its job runs, and not after the end."""
    with program(commands, "credentials.py") as minting:
        said = output(minting)
    assert said.splitlines() == [
        "while the job runs: {'answer': 42, 'key is valid': True}",
        "after the end: False",
    ]


@pytest.mark.parametrize("name", ["comes_back.py", "dashboard.py", "in_asyncio.py"])
def test_token_is_missing(name: str, tmp_path: Path) -> None:
    """An example that needs a token says so."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ARCP_")}
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / name)],
        cwd=tmp_path,
        env=kept,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIFETIME_SECONDS,
    )
    assert done.returncode == 1
    assert "ARCP_TOKEN" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["comes_back.py", "dashboard.py", "in_asyncio.py"])
def test_what_fails_is_one_line(commands: Commands, name: str) -> None:
    """Without a runtime, or with a wrong token, a client says so in one line."""
    for wrong, said in (
        (evolve(commands, url="ws://127.0.0.1:1/arcp"), "ConnectionRefused: no connection to"),
        (evolve(commands, token="wrong"), "Unauthenticated: the token is not valid"),
    ):
        assert failure(wrong, name).startswith(said)


@pytest.mark.parametrize("name", ["comes_back.py", "in_asyncio.py"])
def test_a_runtime_without_the_agent(tmp_path: Path, name: str) -> None:
    """Where there is no agent countdown, a client says so in one line."""
    with served(tmp_path, demo_agents=False) as other:
        assert failure(other, name) == "AgentNotAvailable: there is no agent countdown\n"


def failure(commands: Commands, name: str) -> str:
    """Run an example that needs a key or none, and return the only line that it prints."""
    key = ["a-key"] if name == "comes_back.py" else []
    with program(commands, name, *key) as process:
        out, err = process.communicate(timeout=LIFETIME_SECONDS)
    said: str = out + err
    assert said.count("\n") == 1, said
    return said
