"""What the tests of sessions share: a stage with a puppet agent, and ways to resume."""

from __future__ import annotations

import hmac
from contextlib import AbstractAsyncContextManager

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from arcp_trio import Authenticator, JobContext, Limits, Runtime
from arcp_trio.testing import Peer, PeerFactory
from arcp_trio.testing.frames import Frame
from arcp_trio.testing.peer import TEST_TOKEN
from tests import stage
from tests.inside import held
from tests.reading import refusal
from tests.slow_stores import PausingStore
from tests.stage import TOKENS, hello_payload


class Puppet:
    """An agent that logs the lines its test gives it, and returns when its test says so."""

    def __init__(self) -> None:
        self._lines, self._said = trio.open_memory_channel[str](0)
        self.runs = 0

    async def play(self, job: JobContext) -> str:
        """Run the agent."""
        self.runs += 1
        async for line in self._said:
            await job.log(line)
        return "done"

    async def say(self, *lines: str) -> None:
        """Have the agent log these lines, and wait until all tasks are blocked."""
        for line in lines:
            await self._lines.send(line)
        await wait_all_tasks_blocked()

    async def finish(self) -> None:
        """Have the agent return."""
        self._lines.close()
        await wait_all_tasks_blocked()


class Stage(stage.Stage[PausingStore]):
    """A stage with a puppet and two other agents, over a store that can be paused."""

    def __init__(self, runtime: Runtime, peers: PeerFactory, store: PausingStore) -> None:
        super().__init__(runtime, peers, store)
        self.puppet = Puppet()
        runtime.agent("puppet")(self.puppet.play)

        @runtime.agent("chatty")
        async def chatty(job: JobContext) -> int:
            """Log as many lines of a kilobyte as its input says."""
            for n in range(job.input):
                await job.log(f"{n:01000}")
            return int(job.input)

        @runtime.agent("sleeper")
        async def sleeper(job: JobContext) -> str:
            """Log a line, sleep as long as the input says, and log another."""
            await job.log("asleep")
            await trio.sleep(job.input)
            await job.log("awake")
            return "slept"

    async def resumed(self, resume: Frame) -> Peer:
        """Return a client that has resumed a session."""
        return await self.welcomed(resume=resume)

    async def refused(self, resume: Frame, *, token: str = TEST_TOKEN) -> Frame:
        """Return the refusal of a resume in a hello."""
        peer = await self.connect()
        await peer.send("session.hello", hello_payload(token) | {"resume": resume})
        words = await refusal(peer)
        await peer.close()
        return words

    def remembered(self) -> dict[str, int]:
        """Return how many entries the runtime's tables have, and the store's but for those of jobs.

        Tables that are empty are left out.
        """
        tables = attrs.asdict(self.store._tables, recurse=False)
        of_jobs = {"journals", "listed", "finished", "keys", "stored"}
        stored = {
            name: len(table)
            for name, table in tables.items()
            if isinstance(table, dict | list) and table and name not in of_jobs
        }
        return held(self.runtime) | stored


def note_comparisons(patch: pytest.MonkeyPatch) -> list[tuple[bytes, bytes]]:
    """Return a list to which each later comparison in constant time is added."""
    compared: list[tuple[bytes, bytes]] = []
    compare = hmac.compare_digest

    def spy(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return compare(one, other)

    patch.setattr(hmac, "compare_digest", spy)
    return compared


def open_stage(
    *, auth: Authenticator = TOKENS, **limits: float
) -> AbstractAsyncContextManager[Stage]:
    """Run a stage with these limits for as long as the block lasts."""
    return Stage.open(PausingStore(), auth=auth, limits=Limits(**limits))  # type: ignore[arg-type]
