"""Nothing that is done for each event or message takes longer the more there is of something else.

A loop over sessions, jobs or events shows in the number of instructions.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import JobContext, MemoryStore, SqliteStore
from tests.speed.effort import Effort
from tests.speed.operations import Client, House, counted

FEW: Final = 20
MANY: Final = 800
"""Of sessions, events, or jobs."""
EVENTS: Final = 100
JOBS: Final = 20
SLACK: Final = 1.15
"""A loop over 780 more of something adds its instructions for each event; what varies is less."""


class Subject:
    """A client whose work is measured beside more and more of others'."""

    def __init__(self, house: House, client: Client, effort: Effort) -> None:
        self.house = house
        self.client = client
        self._effort = effort

    async def effort(self) -> Effort:
        """Return the instructions that some events and jobs take."""
        await self._work()  # whatever is done once is done
        await wait_all_tasks_blocked()
        before = Effort(self._effort.python, self._effort.sqlite)
        with self._effort.of_python():
            await self._work()
            await wait_all_tasks_blocked()
        return Effort(self._effort.python - before.python, self._effort.sqlite - before.sqlite)

    async def _work(self) -> None:
        for _ in range(JOBS):
            await self.client.run("echo", 1)
        await self.client.run("chatty", EVENTS)


@pytest.fixture(params=["memory", "durable"])
async def subject(
    request: pytest.FixtureRequest,
    mock_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> AsyncGenerator[Subject]:
    """A client of a runtime with either store."""
    effort = Effort()
    effort.of_sqlite(monkeypatch)
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "arcp.db")
    async with counted(store, mock_clock, monkeypatch) as house:
        yield Subject(house, await house.client(), effort)


def assert_flat(few: Effort, many: Effort) -> None:
    """Assert that the same work took about as much."""
    assert many.python <= few.python * SLACK
    assert many.sqlite <= few.sqlite * SLACK


async def test_sessions(subject: Subject) -> None:
    """Open sessions add nothing to the events and jobs of another one."""
    few = await subject.effort()
    await subject.house.clients(MANY)
    assert_flat(few, await subject.effort())


async def test_history(subject: Subject) -> None:
    """The events that a session has had add nothing to its next ones."""
    await subject.client.run("chatty", FEW)
    few = await subject.effort()
    await subject.client.run("chatty", MANY * 5)
    assert_flat(few, await subject.effort())


async def test_kept_jobs(subject: Subject) -> None:
    """Finished jobs add nothing to the next ones."""
    few = await subject.effort()
    for _ in range(MANY):
        await subject.client.run("echo", 1)
    assert_flat(few, await subject.effort())


async def test_running_jobs(subject: Subject) -> None:
    """Running jobs of another session add nothing to the events and jobs of this one."""
    few = await subject.effort()
    other = await subject.house.client()
    for _ in range(MANY):
        await other.submit("sleeper")
    assert_flat(few, await subject.effort())


async def test_a_loop_is_found(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Looking at each session with each event is noticed."""
    async with counted(MemoryStore(), mock_clock, monkeypatch) as house:
        log = JobContext.log

        async def log_and_look(job: JobContext, message: str) -> None:
            await log(job, message)
            house.runtime.exposition()  # asks each session for its lag

        monkeypatch.setattr(JobContext, "log", log_and_look)
        subject = Subject(house, await house.client(), Effort())
        few = await subject.effort()
        await house.clients(MANY)
        with pytest.raises(AssertionError):
            assert_flat(few, await subject.effort())
