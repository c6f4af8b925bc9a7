"""Frames with holes where secrets go: stored without them, filled for who may have them (§14)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arcp_trio.store.records import HOLES
from arcp_trio.wire.features import Feature
from arcp_trio.wire.json import Json, JsonObject, dumps, loads

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arcp_trio.runtime.credentials.wallet import Wallet
    from arcp_trio.runtime.job.job import Job
    from arcp_trio.runtime.session.session import Session

_HOLES = bytes([HOLES])


def sealed(tail: bytes) -> bytes:
    """The tail of a frame, marked as one that has holes."""
    return _HOLES + tail


def reveal(tail: bytes, session: Session, live: Mapping[str, Job]) -> bytes:
    """The tail as this session may see it: with values for the principal that submitted the job.

    They are shown until the job has ended. A credential whose value the session may not see is left
    out where credentials are listed: without a value it is none.
    """
    if tail[0] != HOLES:
        return tail
    fields: dict[str, Json] = loads(b"{" + tail[len(_HOLES) + 1 :])
    payload: dict[str, Json] = fields["payload"]
    wallet = _wallet(session, live.get(fields["job_id"]))
    if fields["type"] in ("job.accepted", "job.subscribed"):
        shown = [_filled(each, wallet) for each in payload.pop("credentials")]
        if any(shown):
            payload["credentials"] = [each for each in shown if each is not None]
    else:
        payload["body"] |= _filled(payload["body"], wallet) or {}
    return b"," + dumps(fields)[1:]


def _wallet(session: Session, job: Job | None) -> Wallet | None:
    if job is None or session.principal != job.principal:
        return None
    return job.wallet if Feature.PROVISIONED_CREDENTIALS in session.features else None


def _filled(stored: Mapping[str, Json], wallet: Wallet | None) -> JsonObject | None:
    """The credential as it is now; None if there is none for this session."""
    credential = None if wallet is None else wallet.get(stored["id"])
    return None if credential is None else credential.wire()
