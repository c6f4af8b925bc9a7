"""How long a job waits for its credentials, and its end for their revocation."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from arcp_trio.wire.errors import InternalError
from tests.credentials.runtimes import LEASE, SafeStore, provided
from tests.credentials.upstream import Upstream
from tests.metrics import scrape


async def test_issuing_takes_no_longer(autojump_clock: MockClock) -> None:
    """A job is refused after `issue_seconds`, and other requests do not wait for it."""
    upstream = Upstream(slow=60)
    async with provided(upstream, SafeStore(), issue_seconds=3) as (_, peer):
        began = trio.current_time()
        slow = await peer.send("job.submit", {"agent": "worker", "lease_request": LEASE})
        await peer.send("session.ping", {"nonce": "meanwhile"})
        await peer.expect("session.pong")
        assert trio.current_time() == began
        with pytest.raises(InternalError) as refused:
            await peer.answer("job.accepted", slow)
        assert refused.value.retryable
        assert refused.value.details == {"limit": "issue_seconds", "max": 3}
        assert trio.current_time() - began == 3


async def test_an_end_waits_no_longer_for_revoking(autojump_clock: MockClock) -> None:
    """The terminal comes after `revoke_seconds`, and the revocation goes on."""
    upstream = Upstream(slow_revoke=60)
    async with provided(upstream, SafeStore(), revoke_seconds=2) as (runtime, peer):
        job = await peer.submit("worker", lease_request=LEASE)
        began = trio.current_time()
        await peer.until_terminal(job["job_id"])
        assert trio.current_time() - began == pytest.approx(2, abs=0.1)
        assert scrape(runtime)("credentials_outstanding") == 1
        upstream.slow_revoke = 0
        await trio.sleep(70)
        assert scrape(runtime)("credentials_outstanding") == 0
