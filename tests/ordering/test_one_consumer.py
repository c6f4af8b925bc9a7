"""One task of a session takes its numbers, and may be cut off anywhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

import arcp_trio
from arcp_trio import MemoryStore
from arcp_trio.runtime.session.record import Record
from arcp_trio.runtime.session.scribe import Scribe
from tests.durability.story import World, tell_story, two_clients

SOURCES = Path(arcp_trio.__file__).parent


def calls(name: str) -> Iterator[str]:
    """Return the module of each call of a function or class with this name."""
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = node.func
                found = called.attr if isinstance(called, ast.Attribute) else None
                if name in (found, called.id if isinstance(called, ast.Name) else None):
                    yield path.relative_to(SOURCES).as_posix()


def test_numbers_are_taken_by_batches_and_batches_are_the_scribes() -> None:
    """No other module takes a number, or makes what takes one."""
    assert set(calls("take_numbers")) == {"runtime/session/batch.py"}
    assert set(calls("Batch")) == {"runtime/session/scribe.py"}
    assert set(calls("Scribe")) == {"runtime/session/sessions.py"}


async def test_the_sessions_task_takes_its_numbers(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever happens to a session, its numbers are taken in its own task."""
    takers = set[tuple[str, str]]()
    take_numbers = Record.take_numbers

    def note(record: Record, many: int) -> int:
        takers.add((f"session {record.id}", trio.lowlevel.current_task().name))
        return take_numbers(record, many)

    monkeypatch.setattr(Record, "take_numbers", note)
    world = World(MemoryStore())
    async with world.runtime, two_clients(world) as clients:
        await tell_story(world, *clients)
    assert len(takers) == len(clients)
    assert all(due == taker for due, taker in takers)


class _Cut(trio.abc.Instrument):
    """Cancels the task of a session, in one of its steps."""

    def __init__(self, step: int) -> None:
        self.left = step
        self.caught = False
        self._scopes: dict[trio.lowlevel.Task, trio.CancelScope] = {}

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count a step of a session's task."""
        if task in self._scopes:
            self.left -= 1
            if not self.left:
                self._scopes[task].cancel()

    def into(self, patch: pytest.MonkeyPatch) -> None:
        """Have each session be one that can be cut off."""
        run = Scribe.run

        async def run_until_cut(scribe: Scribe) -> None:
            with trio.CancelScope() as scope:
                self._scopes[trio.lowlevel.current_task()] = scope
                await run(scribe)
            if scope.cancelled_caught:
                self.caught = True
                raise RuntimeError("cut off")

        patch.setattr(Scribe, "run", run_until_cut)


@pytest.mark.logs_error("session failed")
async def test_a_session_may_be_cut_off_at_every_checkpoint(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each of them in turn: its client resumes, and has everything once and in order."""
    caught = 0
    for step in count(1):
        world, cut = World(MemoryStore()), _Cut(step)
        with monkeypatch.context() as patch:
            cut.into(patch)
            trio.lowlevel.add_instrument(cut)
            try:
                async with world.runtime, two_clients(world) as clients:
                    await tell_story(world, *clients)
            except BaseException as error:
                error.add_note(f"cut off in step {step}")
                raise
            finally:
                trio.lowlevel.remove_instrument(cut)
        caught += cut.caught
        if cut.left > 0:
            break
    assert caught > 40
