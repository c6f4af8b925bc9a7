"""Turns of any shape: each has what was said in it, and nothing that was said after it."""

from __future__ import annotations

import trio
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from arcp_trio import acp
from tests.acp.stage import Actor, asked, decided, ended, said, staged, text, written

DELAYS = st.sampled_from([0.0, 0.01, 0.5])


@frozen
class Play:
    """What an agent writes in one turn, in which pieces, and how slowly it is read."""

    lines: list[str]
    """`update` or `ask`."""
    late: int
    """The updates in one write with the answer, after it."""
    pause: float
    handling: float
    reading: float


PLAYS = st.lists(
    st.builds(
        Play,
        st.lists(st.sampled_from(["update", "update", "ask"]), max_size=12),
        st.integers(0, 8),
        DELAYS,
        DELAYS,
        DELAYS,
    ),
    min_size=1,
    max_size=5,
)


async def act(actor: Actor, plays: list[Play]) -> None:
    """Play the agent; each line says its turn and its place."""
    for number, play in enumerate(plays):
        id_ = await actor.prompted()
        for place, line in enumerate(play.lines):
            name = f"{number}.{place}"
            await actor.say(said(name) if line == "update" else asked(name, "allow_once"))
            await trio.sleep(play.pause)
        for line in play.lines:
            if line == "ask":
                answer = await actor.receive()
                assert answer["result"] == decided("o-allow_once")
        late = [said(f"{number}.late") for _ in range(play.late)]
        await actor.raw(written(ended(id_), *late))


async def played(plays: list[Play], items: int) -> None:
    """Read all turns, and compare what is in them and what was handled with the plays."""
    handled: list[str] = []
    turn_number = 0

    async def handle(session: acp.Session, update: acp.Update) -> None:
        await trio.sleep(plays[turn_number].handling)
        handled.append(text(update))

    async with (
        staged(on_update=handle, permission=acp.STREAM, limits=acp.Limits(queue_items=items)) as (
            stage
        ),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(act, stage.actor, plays)
        for turn_number, play in enumerate(plays):
            seen: list[str] = []
            async for item in stage.session.prompt("go"):
                if isinstance(item, acp.PermissionRequest):
                    item.allow_once()
                    seen.append("ask")
                else:
                    assert text(item) == f"{turn_number}.{len(seen)}"
                    seen.append("update")
                await trio.sleep(play.reading)
            assert seen == play.lines
        await trio.sleep(100)
    assert handled == [
        name
        for number, play in enumerate(plays)
        for name in [
            *(f"{number}.{place}" for place, line in enumerate(play.lines) if line == "update"),
            *[f"{number}.late"] * play.late,
        ]
    ]


@given(PLAYS, st.sampled_from([1, 3, 100]))
@settings(max_examples=60)
def test_turns_of_any_shape(plays: list[Play], items: int) -> None:
    """Turns have their updates and requests in place; the handler has all updates, in order."""
    trio.run(played, plays, items, clock=MockClock(autojump_threshold=0))
