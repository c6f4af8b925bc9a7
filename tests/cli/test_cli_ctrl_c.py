"""Ctrl-C in `submit` on a terminal: the question and its answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import evolve

from tests.cli.clients import Commands, go_on
from tests.cli.relay import relay
from tests.cli.terminals import Terminal, terminal

pytestmark = pytest.mark.real_tcp

QUESTION = "(c)ancel the job, (l)eave it running, or (g)o on watching? "
LOST = "the connection is lost, so the job's state is not known"
SHORT_QUESTION = "(c)ancel, (l)eave, (g)o on watching? "


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
    assert "".join(asked.lines[-3:]).endswith(f"arcp-trio: {job_id} was cancelled: Ctrl-C")


@pytest.mark.parametrize("answer", ["l\n", "L\n", "leave\n", "\x04"])
def test_leave(asked: Terminal, commands: Commands, answer: str) -> None:
    """The answer l leaves the job running, and so does the end of the input."""
    asked.type(answer)
    assert left_running(asked, commands)


@pytest.mark.parametrize("typo", ["\n", "x\n", "what?\n"])
def test_a_typo(asked: Terminal, commands: Commands, typo: str) -> None:
    """After any other answer it asks again."""
    asked.type(typo)
    asked.wait_for("please type c, l or g")
    while asked.raw.count(QUESTION) < 2:
        asked.read_more()
    asked.type("l\n")
    assert left_running(asked, commands)


def test_go_on(asked: Terminal) -> None:
    """The answer g goes on watching; the next Ctrl-C asks again."""
    asked.type("g\n")
    asked.wait_for("going on; Ctrl-C asks again")
    asked.wait_for("\x1b[36m[")
    asked.type("\x03")
    while asked.raw.count(QUESTION) < 2:
        asked.read_more()
    asked.type("c\n")
    assert asked.end() == 4


def test_a_job_that_says_nothing(commands: Commands) -> None:
    """A job without events shows that it runs, and for how long; so it does in `watch`."""
    with terminal(commands, "submit", "sleeper") as on:
        while len({*re.findall(r"running 0:0[1-9]", on.raw)}) < 2:
            on.read_more()
        job_id = on.lines[0].split()[0]
        with terminal(commands, "watch", job_id) as watching:
            watching.wait_for("watching 0:0")
            watching.type("\x03")
            watching.wait_for(QUESTION)
            watching.type("c\n")
            assert watching.end() == 4
        assert on.end() == 4
        assert not any("running" in line for line in on.lines), "the live line is gone"


def test_the_job_ends_while_it_asks(commands: Commands, tmp_path: Path) -> None:
    """A question is withdrawn when the job has ended, and the result is shown."""
    with terminal(commands, *commands.stepping(tmp_path), columns=40) as on:
        on.wait_for("1/4 steps")
        on.type("\x03")
        on.wait_for(SHORT_QUESTION)
        go_on(tmp_path, 1, 2, 3, 4)
        assert on.end() == 0
        assert on.lines[-3:] == [SHORT_QUESTION.rstrip(), '{"done":4}', ""]


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
        on.wait_for("the job is to be cancelled; Ctrl-C leaves without waiting")
        on.wait_for("warn: not yet")
        on.type("\x03")
        assert on.end() == 130
        assert any(line.startswith("the job is being cancelled; arcp-trio") for line in on.lines)


def test_ctrl_c_while_the_connection_to_cancel_it_is_lost(commands: Commands) -> None:
    """Ctrl-C ends the command while the connection is lost; what is known is said."""
    with relay(commands.url) as between:
        through = evolve(commands, url=between.url)
        with terminal(through, "submit", "waiting") as on:
            on.wait_for("waiting: for you")
            between.fail()
            on.wait_for("connection lost, trying again")
            on.type("\x03")
            on.wait_for(LOST)
            on.wait_for(SHORT_QUESTION)
            on.type("c\n")
            on.wait_for("to be cancelled once the connection is back; Ctrl-C leaves")
            on.type("\x03")
            assert on.end() == 130
            job_id = on.lines[0].split()[0]
            said = f"{LOST}; arcp-trio watch {job_id} shows it"
            assert "".join(on.lines[-4:]) == said + job_id


@pytest.mark.parametrize("answer", ["l\n", "\x03"])
def test_leave_in_watch(commands: Commands, answer: str) -> None:
    """`watch` asks the same; left, it says that the job goes on."""
    job_id = commands.detached("waiting")
    with terminal(commands, "watch", job_id) as on:
        on.wait_for("waiting: for you")
        on.type("\x03")
        on.wait_for(QUESTION)
        on.type(answer)
        assert on.end() == 130
        assert on.lines[-2:] == [f"the job goes on; arcp-trio watch {job_id} shows it", ""]
    assert commands.run("cancel", job_id).code == 0


def test_cancel_in_watch(commands: Commands) -> None:
    """`watch` can stop a job, also one whose session is still there."""
    with terminal(commands, "submit", "waiting") as submitted:
        submitted.wait_for("waiting: for you")
        job_id = submitted.lines[0].split()[0]
        with terminal(commands, "watch", job_id) as on:
            on.wait_for("waiting: for you")
            on.type("\x03")
            on.wait_for(QUESTION)
            on.type("c\n")
            assert on.end() == 4
        assert submitted.end() == 4
        for each in (on, submitted):
            told = "".join(each.lines[-3:])
            assert told.endswith(f"{job_id} was stopped by alice: Ctrl-C")
