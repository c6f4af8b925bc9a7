"""How the tests of jobs cancel, and look at what came of it."""

from __future__ import annotations

import json

import pytest

from arcp_trio import ArcpError
from arcp_trio.testing import Peer
from arcp_trio.wire.json import Json


async def refused(peer: Peer, job_id: str) -> ArcpError:
    """Cancel a job, which must be refused, and return the refusal."""
    request = await peer.send("job.cancel", {"job_id": job_id})
    with pytest.raises(ArcpError) as refusal:
        await peer.answer("nothing else", request)
    return refusal.value


async def cancelled(peer: Peer, job_id: str) -> None:
    """Cancel a job and wait for the acknowledgement."""
    await peer.send("job.cancel", {"job_id": job_id})
    await peer.expect("job.cancelled", job_id=job_id)


async def status_of(peer: Peer, job_id: str) -> str:
    """Return the status that a listing shows for a job of the peer's principal."""
    request = await peer.send("session.list_jobs")
    listing = await peer.answer("session.jobs", request)
    (status,) = [entry["status"] for entry in listing["jobs"] if entry["job_id"] == job_id]
    return str(status)


def encoded(kind: str, payload: Json) -> bytes:
    """Return a frame as bytes, to be written together with others."""
    return json.dumps({"arcp": "1.1", "id": "1", "type": kind, "payload": payload}).encode()
