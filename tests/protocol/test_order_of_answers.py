"""The order of answers, and how many requests may wait for theirs (§6.7)."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import JobContext, Limits, MemoryStore
from arcp_trio.testing import open_peer, open_peers
from arcp_trio.wire.json import Json
from tests.footprint import tasks
from tests.inside import set_batch_frames
from tests.protocol.support import answers, text_of
from tests.reading import close_code
from tests.stage import make_runtime


@pytest.mark.spec("6.7-1", "6.7-2")
async def test_a_close_waits_for_the_answers_before_it(autojump_clock: MockClock) -> None:
    """A submit right before a close is answered before it."""
    async with make_runtime() as runtime, open_peers(runtime) as peers:
        peer, other = await peers.connect(), await peers.connect()
        await peer.hello()
        await other.hello()
        await peer.transport.send(
            [
                text_of("job.submit", {"agent": "sleeper"}, id="s1").encode(),
                text_of("job.submit", {"agent": "nobody"}, id="s2").encode(),
                text_of("session.close", id="s3").encode(),
            ]
        )
        accepted, refused = await answers(peer, 2)
        assert (accepted["type"], accepted["payload"]["request_id"]) == ("job.accepted", "s1")
        assert refused["payload"]["request_id"] == "s2"
        await peer.expect("session.closed")
        assert await close_code(peer) == 1000
        await other.send("job.cancel", {"job_id": accepted["job_id"]})
        await other.expect("job.cancelled", job_id=accepted["job_id"])


@pytest.mark.spec("6.7-1")
async def test_nothing_comes_behind_the_close(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """`session.closed` is the last frame, however far behind the client is."""
    set_batch_frames(monkeypatch, 1)  # so that there is always more to be done next
    async with make_runtime(limits=Limits(tail_frames=1)) as runtime, open_peer(runtime) as peer:

        @runtime.agent("talker")
        async def talker(job: JobContext) -> Json:
            for n in range(1_000):
                await job.log(str(n))
                await trio.lowlevel.checkpoint()
            return None

        await peer.hello()
        for _ in range(3):
            await peer.submit("talker")
        await peer.send("session.close")
        assert await close_code(peer) == 1000
        assert peer.seen[-1]["type"] == "session.closed"


async def test_what_waits_behind_a_slow_submit_is_bounded(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """Past `outbox_items` unanswered submits no more are taken, and all are answered later."""

    async def key(*_args: object) -> None:
        await trio.sleep(50)

    monkeypatch.setattr(MemoryStore, "key", key)
    limits = {"outbox_items": 20, "inbox_items": 20}
    async with make_runtime(limits=Limits(**limits)) as runtime, open_peer(runtime) as peer:
        await peer.hello()
        before = tasks()
        requests = [await peer.send("job.submit", {"agent": "echo", "idempotency_key": "k"})]
        requests += [await peer.send("job.submit", {"agent": "nobody"}) for _ in range(80)]
        await wait_all_tasks_blocked()
        # One task takes the requests, and one reads the pings that come meanwhile.
        assert tasks() <= before + 2 + 20
        answered = await answers(peer, len(requests))
        assert [frame["payload"]["request_id"] for frame in answered] == requests
