"""Questions of durable jobs whose runtime shuts down, and that the next one goes on with."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from arcp_trio.testing import Peer
from arcp_trio.testing.frames import Frame
from tests.durable.stage import DurableStore
from tests.questions.lives import LATE, begun, copied, history, life, waiting
from tests.questions.support import MAY_ASK, answer, next_question


async def asks(peer: Peer, job_id: str) -> Frame:
    """Wait until a job asks, and return what it asks."""
    for _ in range(100):
        if asked := await waiting(peer, job_id):
            return asked[0]
        await trio.sleep(0.1)
    raise AssertionError(f"{job_id} does not ask")


async def test_an_answer_to_a_suspended_job(autojump_clock: MockClock) -> None:
    """While a runtime shuts down, what its suspended jobs ask is answered, for the next one."""
    store = DurableStore()
    async with life(store) as (runtime, peer):
        await peer.submit("stubborn", 20)
        job_id = await begun(peer, {"prompt": "a?"}, {"prompt": "b?"})
        question = await next_question(peer, job_id)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.shutdown, 30)
            await trio.sleep(5)
            assert await waiting(peer, job_id) == [question]
            await answer(peer, question, "meanwhile")
            assert await waiting(peer, job_id) == []
    async with life(copied(store)) as (runtime, peer):
        second = await asks(peer, job_id)
        assert second["prompt"] == "b?"
        await answer(peer, second, "then")
        assert await history(runtime, job_id) == [
            "begun",
            "call a?",
            "asks a?",
            "{'answer': 'meanwhile', 'by': 'alice'}",
            "resumed 2",
            "1 answered",
            "call b?",
            "asks b?",
            "{'answer': 'then', 'by': 'alice'}",
            "2 answered",
            "['meanwhile', 'then']",
        ]


async def test_a_time_out_of_a_suspended_job(autojump_clock: MockClock) -> None:
    """When the time ends after the suspension, the next run tells so, and only it."""
    store = DurableStore()
    async with life(store) as (runtime, peer):
        await peer.submit("stubborn", 20)
        job_id = (await peer.submit("stubborn-asker", lease_request=MAY_ASK))["job_id"]
        await next_question(peer, job_id)
        await trio.sleep(5)
        await runtime.shutdown(drain=10)
    async with life(copied(store)) as (runtime, peer):
        told = await history(runtime, job_id)
        assert told == [f"call {LATE}", f"asks {LATE}", "resumed 2", "TIMEOUT", "nobody"]
