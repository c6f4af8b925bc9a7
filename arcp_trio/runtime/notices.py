"""Frames and errors in which the runtime itself tells a client something."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from arcp_trio.wire import envelope, events
from arcp_trio.wire.errors import ArcpError, InternalError
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.json import JsonLike, dumps
from arcp_trio.wire.messages import ErrorBody
from arcp_trio.wire.payloads import to_json
from arcp_trio.wire.timestamps import rfc3339

if TYPE_CHECKING:
    from arcp_trio.store.interface import Store


def store_trouble(store: Store) -> InternalError:
    """Return the error for requests that need a store that is in trouble."""
    why = ": the disk is full" if store.disk_full else ""
    return InternalError(f"the store cannot be used at the moment{why}")


def refusal(error: ArcpError, *, request_id: str | None = None, job_id: str | None = None) -> bytes:
    """Return the tail of a `session.error`, naming the request it answers (§12)."""
    body = ErrorBody.of(error, request_id=request_id, job_id=job_id)
    return frame(body.type, to_json(body))


def back_pressure(job_id: str, trace_id: str, lag: int, now: float) -> bytes:
    """Return the tail of a `status` event for a client that is falling behind (§6.5)."""
    body = {
        "phase": "back_pressure",
        "message": f"consumer lag {lag} events",
    }
    payload = events.encode_event("status", body, rfc3339(now))
    return envelope.tail("job.event", payload, id=new_id(), job_id=job_id, trace_id=trace_id)


def frame(
    message_type: str,
    payload: Mapping[str, JsonLike],
    *,
    job_id: str | None = None,
    trace_id: str | None = None,
) -> bytes:
    """Return the tail of a frame without a number."""
    return envelope.tail(
        message_type, dumps(payload), id=new_id(), job_id=job_id, trace_id=trace_id
    )
