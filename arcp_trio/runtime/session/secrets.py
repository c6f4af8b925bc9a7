"""Which sessions read the secrets of which jobs (§9.8.1, §14)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from arcp_trio.runtime.credentials.holes import fill_holes
from arcp_trio.store.records import HOLES
from arcp_trio.wire.features import Feature

if TYPE_CHECKING:
    from arcp_trio.runtime.credentials.wallet import Wallet
    from arcp_trio.runtime.job.job import Job
    from arcp_trio.runtime.session.session import Session


def with_secrets(tail: bytes, session: Session, live: Mapping[str, Job]) -> bytes:
    """Return the tail of a frame as the session may read it; most frames have no holes."""
    return fill_holes(tail, partial(_wallet, session, live)) if tail[0] == HOLES else tail


def _wallet(session: Session, live: Mapping[str, Job], job_id: str) -> Wallet | None:
    """Return the wallet of a job that is alive, if the session may read what is in it.

    Only sessions of the job's own principal may, and only if they negotiated the feature, which is
    offered on private connections only. Other principals that observe the job may not.
    """
    job = live.get(job_id)
    if job is None or session.principal != job.principal:
        return None
    return job.wallet if Feature.PROVISIONED_CREDENTIALS in session.features else None
