"""What `serve` says on a terminal, and that programs are told only what they can read."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.clients import Commands
from tests.cli.processes import Starter
from tests.cli.terminals import Terminal, terminal

pytestmark = pytest.mark.real_tcp

AGENTS = """
import arcp_trio

agents = arcp_trio.Agents()

for number in range(40):
    @agents.agent(f"agent-{number}")
    async def agent(job):
        await job.log("at work")
        raise RuntimeError("defect")
"""


@pytest.fixture
def here(tmp_path: Path) -> Commands:
    """Run commands in a folder, with nothing in their environment."""
    (tmp_path / "many.py").write_text(AGENTS, encoding="utf-8")
    return Commands("", tmp_path, token=None)


def stop(screen: Terminal) -> None:
    """Press Ctrl-C and wait for an end in order."""
    screen.type("\x03")
    assert screen.end() == 0


def greeting(screen: Terminal) -> Iterator[str]:
    """Wait for the last line of the greeting, and yield the lines on the screen."""
    screen.wait_for("try: ")
    while not screen.raw.endswith("\n"):
        screen.read_more()
    return iter(screen.lines)


def test_six_lines_on_a_terminal(here: Commands) -> None:
    """The screen has the address, the token and its place, a link, the agents, and a command."""
    with terminal(here, "serve", "--port=0") as screen:
        lines = list(greeting(screen))
        assert lines[0].startswith("listening on ws://127.0.0.1:")
        assert lines[1].startswith("token for local: ")
        assert lines[2] == "  it is kept in .arcp/token, where the client commands find it"
        token = lines[1].removeprefix("token for local: ")
        page = lines[0].removeprefix("listening on ws:").removesuffix("arcp")
        assert lines[3] == f"open http:{page}#token={token}"
        assert (
            lines[4]
            == "agents: echo, countdown, chatty, report, shopper, team, sleeper, cook, hiker"
        )
        assert lines[5].startswith("try: ")
        assert lines[6:] == [""]
        assert all(len(line) <= 80 for line in lines)
        program, *arguments = shlex.split(lines[5].removeprefix("try: "))
        assert arguments == ["submit", "countdown"]
        tried = subprocess.run(
            [program, *arguments],
            cwd=here.folder,
            env=here.environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (tried.returncode, tried.stdout) == (0, '{"done":5}\n')
        stop(screen)


def test_the_command_reaches_another_runtime(here: Commands) -> None:
    """In memory, with a folder of its own, or with given tokens, the command says so."""
    for options, end in (
        (["--memory", "--port=0"], "--token"),
        (["--data=other", "--port=0"], "--data other"),
        (["--token=alice=x", "--port=0"], "--token TOKEN"),
    ):
        with terminal(here, "serve", *options) as screen:
            shown = " ".join(greeting(screen))
            assert end in shown.partition("try: ")[2]
            stop(screen)


def test_many_agents_take_one_line(here: Commands) -> None:
    """More agents than fit are cut off, and the first one is to be tried."""
    with terminal(here, "serve", "--port=0", "--agents=many") as screen:
        lines = list(greeting(screen))
        assert lines[4].startswith("agents: agent-0, agent-1, ")
        assert (len(lines[4]), lines[4][-1]) == (80, "…")
        assert lines[5].endswith(" submit agent-0")
        stop(screen)


def test_the_log_is_short_on_a_terminal(here: Commands) -> None:
    """What happens every day takes one line; an error is written out, with its traceback."""
    with terminal(here, "serve", "--port=0", "--agents=many") as screen:
        list(greeting(screen))
        here.run("submit", "agent-0")
        screen.wait_for("RuntimeError: defect\r\n")
        stop(screen)
        info = [line for line in screen.lines[6:] if line[8:] and "job ended" in line]
        assert len(info) == 1
        assert info[0][2] == info[0][5] == ":"
        assert len(info[0]) <= 80
        assert any("error: agent failed job_id=" in line for line in screen.lines)
        assert "arcp_trio.runtime" not in info[0]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "the agent failed: RuntimeError: defect; the runtime's log has the traceback"),
        (("--workers=1",), "the agent failed: RuntimeError: defect; the runtime's log has the"),
        (("--host=0.0.0.0", "--insecure"), "the agent failed; the runtime's log says why"),
        (("--token=local=secret",), "the agent failed; the runtime's log says why"),
    ],
)
def test_who_is_told_what_an_agent_raised(
    here: Commands, start: Starter, options: tuple[str, ...], told: str
) -> None:
    """Alone on the machine, with the token that was made, the client reads the exception."""
    served = start("serve", "--port=0", "--agents=many", *options)
    url = served.url().replace("0.0.0.0", "127.0.0.1")
    token = "secret" if "--token=local=secret" in options else None
    done = Commands(url, here.folder, token).run("submit", "agent-0")
    assert done.code == 1
    assert told in done.err


def test_the_log_is_full_if_asked_for(here: Commands) -> None:
    """With --log-format the lines are those of a file."""
    with terminal(here, "serve", "--port=0", "--log-format=text") as screen:
        list(greeting(screen))
        screen.wait_for(" info    arcp_trio.runtime.lifetime: runtime started version=")
        stop(screen)


def test_programs_are_not_greeted(start: Starter) -> None:
    """In a pipe there are the address, the token and the log, as ever."""
    served = start("serve", "--port=0")
    served.url()
    served.line("token for local: ")
    served.send_signal(signal.SIGTERM)
    code, out, err = served.end()
    said = "".join(served.said) + err
    assert (code, out) == (0, "")
    assert "try:" not in said
    assert "agents:" not in said
    assert " info    arcp_trio.runtime.lifetime: shutting down jobs=0" in said


def test_the_program_is_named_as_it_can_be_started(here: Commands) -> None:
    """The command to try begins with the program beside the Python that runs `serve`."""
    with terminal(here, "serve", "--port=0") as screen:
        lines = list(greeting(screen))
        program = shlex.split(lines[5])[1]
        assert program in ("arcp-trio", str(Path(sys.executable).with_name("arcp-trio")))
        stop(screen)
