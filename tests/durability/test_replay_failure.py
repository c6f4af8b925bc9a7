"""A store that cannot be read in the middle of a replay."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from trio.testing import MockClock

from arcp_trio.store.errors import StoreError
from arcp_trio.store.records import NumberedTail
from tests.reading import close_code
from tests.sessions.support import open_stage


@pytest.mark.spec("12-7")
async def test_a_replay_that_cannot_be_read_ends_in_an_error(autojump_clock: MockClock) -> None:
    """The client gets INTERNAL_ERROR, is closed with 1011, and can resume later."""
    async with open_stage() as stage:
        peer = await stage.welcomed(features=())  # without ack, it gets no notice of falling behind
        await peer.until_terminal((await peer.submit("chatty", 2_000))["job_id"])
        await peer.drop()
        replay = stage.store.replay

        def broken_replay(session_id: str, after: int, top: int, rows: int) -> object:
            good, calls = replay(session_id, after, top, rows), 0

            class Broken:
                async def next(self, frames: int, size: int) -> Sequence[NumberedTail]:
                    nonlocal calls
                    calls += 1
                    if calls > 1:
                        raise StoreError("disk")
                    return await good.next(frames, size)

            return Broken()

        stage.store.replay = broken_replay  # type: ignore[method-assign, assignment]
        second = await stage.resumed(peer.resume_from() | {"last_event_seq": 0})
        assert await close_code(second) == 1011
        assert second.seen[-1]["type"] == "session.error"
        assert second.seen[-1]["payload"]["code"] == "INTERNAL_ERROR"
        stage.store.replay = replay  # type: ignore[method-assign]
        third = await stage.resumed(second.resume_from() | {"last_event_seq": 0})
        await third.expect("job.result", event_seq=2_001)
