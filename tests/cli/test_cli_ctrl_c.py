"""Ctrl-C in `submit` on a terminal: the question and its answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from attrs import evolve

from tests.cli.clients import Commands
from tests.cli.relay import relay
from tests.cli.terminals import Terminal, terminal

pytestmark = pytest.mark.real_tcp

QUESTION = "(c)ancel the job, or (d)etach and let it run? [d] "


@pytest.fixture
def asked(commands: Commands) -> Iterator[Terminal]:
    """Press Ctrl-C, and wait for the question."""
    with terminal(commands, "submit", "waiting") as on:
        on.wait_for("waiting: for you")
        on.type("\x03")
        on.wait_for(QUESTION)
        yield on


def left_running(on: Terminal, commands: Commands) -> bool:
    """Return whether the command left its job running; cancel the job."""
    assert on.end() == 130
    *_, notice, job_id, nothing = on.lines
    assert nothing == ""
    assert notice == f"the job goes on; arcp-trio watch {job_id} shows it"
    running = job_id in commands.run("jobs", "--status", "running").out
    assert commands.run("cancel", job_id).code == 0
    return running


def test_cancel(asked: Terminal) -> None:
    """The answer c cancels the job, and its end is shown."""
    asked.type("c\n")
    assert asked.end() == 4
    job_id = asked.lines[0].split()[0]
    assert "".join(asked.lines[-3:]).endswith(
        f"arcp-trio: {job_id} was cancelled: CANCELLED: Ctrl-C"
    )


@pytest.mark.parametrize("answer", ["d\n", "\n", "detach\n", "what?\n", "\x04"])
def test_detach(asked: Terminal, commands: Commands, answer: str) -> None:
    """Any other answer leaves the job running."""
    asked.type(answer)
    assert left_running(asked, commands)


def test_ctrl_c_again(asked: Terminal, commands: Commands) -> None:
    """A second Ctrl-C leaves the job running without an answer."""
    asked.type("\x03")
    assert left_running(asked, commands)


def test_ctrl_c_while_it_is_being_cancelled(commands: Commands) -> None:
    """Ctrl-C ends the command while it waits for the end of the cancelled job."""
    with terminal(commands, "submit", "stubborn") as on:
        on.wait_for("info: begun")
        on.type("\x03")
        on.wait_for(QUESTION)
        on.type("c\n")
        on.wait_for("warn: not yet")
        on.type("\x03")
        assert on.end() == 130


def test_ctrl_c_while_the_connection_to_cancel_it_is_lost(commands: Commands) -> None:
    """Ctrl-C ends the command while the connection is lost; the job is left running."""
    with relay(commands.url) as between:
        through = evolve(commands, url=between.url)
        with terminal(through, "submit", "waiting") as on:
            on.wait_for("waiting: for you")
            between.fail()
            on.wait_for("connection lost, trying again")
            on.type("\x03")
            on.wait_for(QUESTION)
            on.type("c\n")
            on.wait_for("[d] c\r\n")
            on.wait_until_read()
            on.type("\x03")
            assert on.end() == 130
            job_id = on.lines[0].split()[0]
            assert on.lines[-3:] == [
                f"the job goes on; arcp-trio watch {job_id} shows it",
                job_id,
                "",
            ]


def test_ctrl_c_in_watch_asks_nothing(commands: Commands) -> None:
    """Ctrl-C ends `watch` without a question."""
    job_id = commands.detached("waiting")
    with terminal(commands, "watch", job_id) as on:
        on.wait_for("waiting: for you")
        on.type("\x03")
        assert on.end() == 130
        assert on.lines[-2:] == ["info: begun", ""]
    assert commands.run("cancel", job_id).code == 0
