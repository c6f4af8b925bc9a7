"""Any order of answers, waits, restarts and a stop, against a model of what must come of it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Final, TypeAlias

import attrs
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from arcp_trio import ArcpError, Json, Runtime
from arcp_trio.testing import Peer, open_peer
from arcp_trio.testing.frames import Frame
from arcp_trio.testing.peer import TEST_TOKEN
from arcp_trio.wire.features import CLIENT_FEATURES
from tests.durable.stage import DurableStore
from tests.questions.lives import begun, copied, history, life, waiting
from tests.questions.support import answer
from tests.stage import AUDITOR, BOB, OPERATOR

TOKENS: Final = {"alice": TEST_TOKEN, "bob": BOB, "auditor": AUDITOR, "operator": OPERATOR}
EXPIRES: Final = 10.0
COUNT: Final = 4
QUESTIONS: Final[list[Frame]] = [
    {"prompt": f"{n}?", "options": ["good"]} | ({"expires_in": EXPIRES} if n % 2 else {})
    for n in range(COUNT)
]
"""Every other one has an end of its time."""

Step: TypeAlias = tuple[str, str, int, str] | tuple[str, float] | tuple[str]
"""An answer, by a principal to a question with a value; a wait; or a stop."""
# Sums of these waits meet no end of a question's time: which comes first is not left to chance.
STEPS: Final[st.SearchStrategy[Step]] = st.one_of(
    st.tuples(
        st.just("answer"),
        st.sampled_from(sorted(TOKENS)),
        st.integers(0, COUNT),
        st.sampled_from(["good", "bad"]),
    ),
    st.tuples(st.just("answer"), st.just("alice"), st.integers(0, COUNT - 1), st.just("good")),
    st.tuples(st.just("wait"), st.sampled_from([4.3, 7.1])),
    st.tuples(st.just("stop")),
)


@attrs.define
class Model:
    """A job that asks one question after the other."""

    now: float = 0
    asked_at: float = 0
    answers: list[Json] = attrs.field(factory=list[Json])
    cancelled: bool = False

    @property
    def open(self) -> int | None:
        """The number of the question that is open."""
        return None if self.cancelled or len(self.answers) == COUNT else len(self.answers)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        while self.open is not None and self.open % 2 and self.asked_at + EXPIRES <= self.now:
            self.asked_at += EXPIRES
            self.answers.append("nobody")

    def answer(self, who: str, number: int, value: str) -> str:
        """Answer a question; return the code of the refusal, or "answered"."""
        if who == "operator" or number != self.open:
            return "JOB_NOT_FOUND"
        if who == "auditor":
            return "PERMISSION_DENIED"
        if value != "good":
            return "INVALID_REQUEST"
        self.answers.append(value)
        self.asked_at = self.now
        return "answered"


@attrs.define
class World:
    """The real thing: a job, the runtime of the moment, and a client for each principal."""

    runtime: Runtime
    peers: dict[str, Peer]
    job_id: str
    known: dict[int, Frame] = attrs.field(factory=dict[int, Frame])
    """The questions that were seen, by their numbers."""

    async def look(self) -> int | None:
        """Return the number of the question that is open, as a listing tells it."""
        await trio.testing.wait_all_tasks_blocked()
        asked = await waiting(self.peers["alice"], self.job_id)
        for question in asked:
            self.known[int(question["prompt"][:-1])] = question
        return int(asked[0]["prompt"][:-1]) if asked else None

    async def answer(self, who: str, number: int, value: str) -> str:
        """Answer a question; return the code of the refusal, or "answered"."""
        unknown: Frame = {"job_id": self.job_id, "question_id": "call_none"}
        try:
            await answer(self.peers[who], self.known.get(number, unknown), value)
        except ArcpError as refusal:
            return refusal.code
        return "answered"


async def peers_of(runtime: Runtime, stack: AsyncExitStack) -> dict[str, Peer]:
    """Connect each principal."""
    peers: dict[str, Peer] = {}
    for who, token in TOKENS.items():
        peers[who] = await stack.enter_async_context(open_peer(runtime))
        await peers[who].hello(token=token, features=tuple(CLIENT_FEATURES))
    return peers


async def play(lives: list[list[Step]]) -> None:
    """Take the steps, comparing with the model after each; then compare the whole story."""
    model, store = Model(), DurableStore()
    job_id, known = "", dict[int, Frame]()
    for number, steps in enumerate(lives, 1):
        async with AsyncExitStack() as stack:
            runtime, _ = await stack.enter_async_context(life(store))
            world = World(runtime, await peers_of(runtime, stack), job_id, known)
            if not job_id:
                world.job_id = job_id = await begun(world.peers["alice"], *QUESTIONS)
            assert await world.look() == model.open
            for step in steps:
                await take(step, model, world)
                assert await world.look() == model.open, step
            store = copied(store)
            if number == len(lives):
                await finish(model, world)


async def take(step: Step, model: Model, world: World) -> None:
    """Take a step in the model and in the world."""
    match step:
        case ("answer", who, number, value):
            assert await world.answer(who, number, value) == model.answer(who, number, value), step
        case ("wait", seconds):
            await trio.sleep(seconds)
            model.wait(seconds)
        case _:
            await world.peers["alice"].send("x-vendor.arcp-trio.stop", {"job_id": world.job_id})
            model.cancelled = model.cancelled or len(model.answers) < COUNT


async def finish(model: Model, world: World) -> None:
    """Answer what is left, and compare what was told with the model."""
    while model.open is not None:
        await take(("answer", "alice", model.open, "good"), model, world)
        assert await world.look() == model.open
    *events, end = await history(world.runtime, world.job_id)
    assert end == ("CANCELLED" if model.cancelled else str(model.answers))
    asked = [event for event in events if event.startswith("asks ")]
    assert asked == [f"asks {n}?" for n in range(len(asked))]
    results = [event for event in events if event.startswith("{'answer'") or event == "TIMEOUT"]
    assert len(results) == len(model.answers)


@settings(max_examples=60)
@given(st.lists(st.lists(STEPS, max_size=6), min_size=1, max_size=4))
def test_any_order_of_things(lives: list[list[Step]]) -> None:
    """Each answer is taken or refused as the model says, and the listing shows what is open.

    The runtime is killed after each list of steps but the last.
    """
    trio.run(play, lives, clock=MockClock(autojump_threshold=0))
