"""How much memory a job takes that delegates again and again."""

from __future__ import annotations

import tracemalloc

import trio
from trio.testing import MockClock

from arcp_trio import JobContext, Limits
from arcp_trio.testing import open_peer
from arcp_trio.wire.json import Json
from tests.stage import make_runtime

INPUT_BYTES = 50_000
CHILDREN = 800
MOST_BYTES = 15_000_000
"""Journals, and all that is kept of ended jobs; the inputs alone would be 40 MB more."""


async def test_a_parent_does_not_keep_the_inputs_of_its_children(
    autojump_clock: MockClock,
) -> None:
    """What a child was given is let go of at its end, while its parent goes on."""
    runtime = make_runtime(limits=Limits(journal_bytes=1_000_000))
    held = 0
    over = trio.Event()

    @runtime.agent("child")
    async def child(_: JobContext) -> Json:
        return None

    @runtime.agent("parent")
    async def parent(job: JobContext) -> Json:
        nonlocal held
        for _ in range(CHILDREN):
            await (await job.delegate("child", "x" * INPUT_BYTES)).result()
        held = tracemalloc.get_traced_memory()[0]
        over.set()
        return None

    async with runtime, open_peer(runtime) as peer:
        await peer.hello()
        await peer.submit("parent", lease_request={"agent.delegate": ["child"]})
        await peer.drop()
        tracemalloc.start()
        try:
            await over.wait()
        finally:
            tracemalloc.stop()
    assert held < MOST_BYTES
