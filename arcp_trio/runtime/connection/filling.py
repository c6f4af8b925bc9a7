"""Filling holes that are still there when frames are sent: other nodes reveal what goes there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import trio

from arcp_trio.runtime.credentials.holes import fill_holes, has_holes, job_of
from arcp_trio.wire.json import JsonObject

if TYPE_CHECKING:
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.session.session import Session
    from arcp_trio.store.records import NumberedTail


class HoleFiller:
    """Fills the holes of one session's frames, in as long as a command to another node may take."""

    def __init__(self, session: Session, jobs: Jobs) -> None:
        self._session = session
        self._jobs = jobs

    async def fill(self, frames: Sequence[NumberedTail]) -> list[NumberedTail]:
        """Return the frames as the client may read them; what is not revealed is left out."""
        session, jobs = self._session, self._jobs
        frames = [(seq, session.with_secrets(tail, jobs)) for seq, tail in frames]
        elsewhere = {job_of(tail) for _, tail in frames if has_holes(tail)}
        revealed = dict[str, Mapping[str, JsonObject]]()
        async with trio.open_nursery() as nursery:
            for job_id in elsewhere:
                nursery.start_soon(self._ask, job_id, revealed, name=f"reveal {job_id}")
        return [(seq, _filled(tail, revealed)) for seq, tail in frames]

    async def _ask(self, job_id: str, revealed: dict[str, Mapping[str, JsonObject]]) -> None:
        wallets = self._jobs.other_wallets
        assert wallets is not None, "else there would not be holes"
        revealed[job_id] = await wallets.reveal(job_id, self._session.id, self._session.principal)


def _filled(tail: bytes, revealed: Mapping[str, Mapping[str, JsonObject]]) -> bytes:
    if not has_holes(tail):
        return tail
    return fill_holes(tail, partial(_credential, revealed), revealed[job_of(tail)])


def _credential(
    revealed: Mapping[str, Mapping[str, JsonObject]], job_id: str, credential_id: str
) -> JsonObject | None:
    return revealed.get(job_id, {}).get(credential_id)
