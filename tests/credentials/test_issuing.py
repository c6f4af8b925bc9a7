"""Credentials are issued with the acceptance, or the job is refused."""

from __future__ import annotations

from trio.testing import MockClock

from tests.credentials.runtimes import LEASE, SafeStore, provided
from tests.credentials.upstream import ENDPOINT, Upstream


async def test_an_acceptance_shows_what_was_issued(autojump_clock: MockClock) -> None:
    """The acceptance has the whole credential; the end has it revoked, before the terminal."""
    upstream, store = Upstream(), SafeStore()
    async with provided(upstream, store) as (_, peer):
        accepted = await peer.submit("worker", 1, lease_request=LEASE)
        (credential,) = accepted["credentials"]
        key = upstream.keys["vk_1"]
        assert credential == {
            "id": credential["id"],
            "scheme": "bearer",
            "value": key.value,
            "endpoint": ENDPOINT,
            "profile": "openai",
            "constraints": {"cost.budget": ["USD:2.00"], "model.use": ["tier-fast/*"]},
        }
        end = await peer.until_terminal(accepted["job_id"])
        assert end["payload"]["result"] == 1
        assert upstream.live == set()
    assert store.credentials == []
