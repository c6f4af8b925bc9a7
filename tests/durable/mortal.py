"""Lives of one runtime after the other, each of which ends at a commit that a test chooses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import trio

from arcp_trio.store.writes import Write
from arcp_trio.testing import Peer, TrioClock
from arcp_trio.testing.frames import TERMINAL, Frame
from arcp_trio.wire.questions import QUESTION
from tests.durability.stores import copy_into
from tests.durable.script import ANSWER, BUDGET, EFFECTS, LEASE, World
from tests.durable.stage import DurableStore, Life
from tests.questions.support import WAITING


class MortalStore(DurableStore):
    """A store in which nothing is stored from one commit on: the process is killed before it."""

    def __init__(self, dies_at: int | None) -> None:
        super().__init__()
        self.commits = 0
        self.left: DurableStore | None = None
        """What is stored at the death."""
        self.die: Callable[[], None] = lambda: None
        self._dies_at = dies_at

    async def _commit(self, writes: Sequence[Write]) -> None:
        self.commits += 1
        if self.commits == self._dies_at:
            self.left = copy_into(DurableStore(), self)
            self.die()
        if self.left is not None:
            await trio.sleep_forever()
        await super()._commit(writes)


@attrs.define(eq=False)
class Story:
    """The script's job through some deaths, as its client and the world have seen it."""

    world: World = attrs.field(factory=World)
    clock: TrioClock = attrs.field(factory=TrioClock)
    life: Life | None = None
    end: Frame | None = None
    deaths: int = 0
    commits: int = 0
    """Of the last life."""
    done_at_deaths: list[Counter[str]] = attrs.field(factory=list[Counter[str]])
    """What had been done and remembered at each death."""

    async def live(self, store: MortalStore) -> None:
        """Go on until the job's end, or until the store dies."""
        with trio.CancelScope() as scope:
            store.die = scope.cancel
            async with Life.begin(
                self.world.agents, store, before=self.life, clock=self.clock
            ) as life:
                self.life = life
                accepted = await life.peer.submit(
                    "script", lease_request={**LEASE, **BUDGET}, idempotency_key="k"
                )
                self.end = await answer_until_terminal(life.peer, accepted["job_id"])
                self.commits = store.commits

    async def live_through(self, *deaths: int) -> None:
        """Die at these commits of one life after the other, and then live to the end."""
        store = MortalStore(deaths[0] if deaths else None)
        for death in [*deaths[1:], None]:
            await self.live(store)
            if self.end is not None:
                return
            assert store.left is not None
            self.deaths += 1
            self.done_at_deaths.append(remembered(store.left))
            store = copy_into(MortalStore(death), store.left)
        await self.live(store)

    @property
    def told(self) -> list[str]:
        """What the client was told of the job."""
        assert self.life is not None
        assert self.end is not None
        return self.life.told(self.end["job_id"])

    @property
    def result(self) -> str:
        """The streamed result: the chunks of the id that the terminal names."""
        assert self.life is not None
        assert self.end is not None
        result_id = self.end["payload"]["result_id"]
        bodies: list[Any] = [
            frame["payload"]["body"] for frame in self.life.events(self.end["job_id"])
        ]
        return "".join(body["data"] for body in bodies if body.get("result_id") == result_id)


async def answer_until_terminal(peer: Peer, job_id: str) -> Frame:
    """Answer what a job asks and has asked, until its end; return its terminal.

    A question may be answered twice: the second answer is refused, and changes nothing.
    """
    await peer.send("session.list_jobs", {})
    while True:
        frame = await peer.receive()
        payload, asked = frame["payload"], list[Frame]()
        if frame["type"] == "session.jobs":
            asked = [
                {**question, "job_id": entry["job_id"]}
                for entry in payload["jobs"]
                for question in entry.get(WAITING, {"questions": []})["questions"]
            ]
        elif frame["type"] == "job.event" and payload["kind"] == QUESTION:
            asked = [{**payload["body"], "job_id": job_id}]
        elif frame["type"] in TERMINAL and frame["job_id"] == job_id:
            return frame
        for question in asked:
            ids = {name: question[name] for name in ("job_id", "question_id")}
            await peer.send("x-vendor.arcp-trio.answer", {**ids, "answer": ANSWER})


def remembered(store: DurableStore) -> Counter[str]:
    """Return which effects are remembered as done."""
    memos = [memo for journal in store._tables.journals.values() for memo in journal.memos.values()]
    done = [memo.value for memo in memos if memo.kind in ("step", "tool call")]
    return Counter(
        each
        for each in EFFECTS
        for value in done
        if b'"done":{"did":"%b"}' % each.encode() in value
    )
