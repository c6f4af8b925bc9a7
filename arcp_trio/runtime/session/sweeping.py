"""The sweep: what is past its window or its retention is dropped, every few seconds."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from arcp_trio.store.outage import Outage
from arcp_trio.store.writes import Expire

if TYPE_CHECKING:
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.session.sessions import Sessions

log = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 5.0
"""How late what is past its retention is dropped, at most."""


async def sweep(core: Core, jobs: Jobs, sessions: Sessions) -> None:
    """Drop sessions whose window is over, and what is past its retention, until cancelled."""
    counting = Outage(log, "stored bytes not counted")
    while True:
        next_window = sessions.drop_due()
        core.wrong_tokens.forget()
        expired = core.store.put(_expiry(core, jobs))
        with trio.move_on_at(min(next_window, trio.current_time() + SWEEP_SECONDS)):
            await expired.committed()
            with counting:
                core.ledger.stored.set_all(await core.store.stored_bytes())
            await core.store.much_written()


def _expiry(core: Core, jobs: Jobs) -> Expire:
    now, limits = core.clock.now(), core.limits
    return Expire(
        now=now,
        finished_before=now - limits.finished_job_seconds,
        finished_jobs=limits.finished_jobs,
        forgotten=jobs.take_forgotten(now - SWEEP_SECONDS),
        bytes_each=limits.stored_bytes_per_principal,
        bytes_total=limits.stored_bytes_total,
        parked_sessions=limits.parked_sessions_per_principal,
    )
