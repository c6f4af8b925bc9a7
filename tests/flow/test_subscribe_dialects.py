"""Subscribers that need a pause between the answer and the history."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from arcp_trio.testing.frames import Frame
from tests.flow.support import open_flow

PYTHON: Frame = {"encodings": ["json"], "features": ["subscribe"], "agents": []}
"""The capabilities that one vendor's client sends."""


@pytest.mark.parametrize(("capabilities", "pause"), [({}, 0), ({"capabilities": PYTHON}, 0.01)])
async def test_history_does_not_come_together_with_the_answer(
    capabilities: Frame, pause: float, autojump_clock: MockClock
) -> None:
    """A client that would lose history sent right after the answer gets it later."""
    async with open_flow() as flow:
        owner, watcher = await flow.welcomed(), await flow.connect()
        await watcher.hello(**capabilities)
        job_id = (await owner.submit("tap"))["job_id"]
        await flow.tap.let_out(3)
        await flow.tap.shut()

        async def timed() -> tuple[Frame, float]:
            return await watcher.receive(), trio.current_time()

        await watcher.send("job.subscribe", {"job_id": job_id, "history": True})
        frames = [await timed() for _ in range(5)]
        assert [frame["type"] for frame, _ in frames] == [
            "job.subscribed",
            *["job.event"] * 3,
            "job.result",
        ]
        waits = [time - frames[0][1] for _, time in frames[1:]]
        assert waits == pytest.approx([pause] * 4)
