"""Finds out how jobs ended after a resume by a runtime that keeps nothing for an absent client.

Some vendors' runtimes resume a session, but the frames of its jobs from the time without a
connection are lost, and the frames that follow are not sent either. The ends of the jobs can still
be asked for. The events cannot: `events()` raises, rather than going on as if none were missing.
"""

from __future__ import annotations

import logging
from typing import Final, TypeVar

import trio

from arcp_trio.client.answers import ENDED
from arcp_trio.client.calls import SUBMIT, Call, WantedEvents, list_call, subscribe_call
from arcp_trio.client.errors import ProtocolError
from arcp_trio.client.job_stream import EventView, JobStream
from arcp_trio.client.listing import JobIterator
from arcp_trio.client.session import ClientSession
from arcp_trio.wire.errors import ArcpError, HeartbeatLost, ResumeWindowExpired
from arcp_trio.wire.messages import Accepted, JobListing

log = logging.getLogger(__name__)

PATIENCE_SECONDS: Final = 5.0
"""How long the end of a job that has ended may take to come."""

T = TypeVar("T")


async def recover(session: ClientSession) -> None:
    """Find out how each running job ended, or go on observing it."""
    streams = list(session.jobs.running.values())
    for stream in streams:
        stream.miss(ResumeWindowExpired(f"events of {stream.id} were lost with the connection"))
    if not streams:
        return
    log.warning("this runtime does not keep events while the connection is down")
    statuses = await _statuses(session)
    for stream in streams:
        try:
            await _recover(session, stream, statuses.get(stream.id))
        except (ArcpError, ProtocolError) as error:
            session.jobs.lose(stream, error)


async def _statuses(session: ClientSession) -> dict[str, str]:
    async def page(cursor: str | None) -> JobListing:
        return await _ask(session, list_call({}, cursor))

    try:
        return {info.id: info.status async for info in JobIterator(session, page)}
    except (ArcpError, ProtocolError) as error:
        log.warning("cannot find out how the jobs ended: %s", error)
        return {}


async def _recover(session: ClientSession, stream: JobStream, status: str | None) -> None:
    if status is None:
        # Submitting the job again could start another one.
        raise HeartbeatLost(f"it is not known how {stream.id} ended")
    if status not in ENDED:
        stream.top = 0  # the new subscription may be numbered from 1
        _, subscribed = await _ask(session, subscribe_call(stream.id, WantedEvents()))
        status = subscribed.current_status
    if status in ENDED and not stream.end.arrived.is_set():
        await _fetch_end(session, stream)


async def _fetch_end(session: ClientSession, stream: JobStream) -> None:
    """Submit the job again under its key: the runtime repeats the acceptance and the end."""
    if stream.submission is not None:
        again: Call[tuple[EventView, Accepted]] = Call(SUBMIT, stream.submission)
        await _ask(session, again)
        with trio.move_on_after(PATIENCE_SECONDS):
            await stream.end.arrived.wait()
    if not stream.end.arrived.is_set():
        raise HeartbeatLost(f"{stream.id} has ended, and its end was lost with the connection")


async def _ask(session: ClientSession, call: Call[T]) -> T:
    """Make a call and return its reply as soon as it arrives, whatever else is to be handed on."""
    with session.pending(call):
        await call.reply.arrived.wait()
        return call.reply.get()
