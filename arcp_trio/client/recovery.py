"""What is left to do after a resume where the runtime kept nothing meanwhile.

Some vendors' runtimes resume a session, but what its jobs said while nobody was connected is lost,
and what they say from then on is not sent either. Their ends can be had all the same. The events
cannot: `events()` says so, rather than going on with a hole.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

import trio

from arcp_trio.client.answers import ENDED
from arcp_trio.client.calls import LIST, SUBMIT, SUBSCRIBE, Call
from arcp_trio.client.link import Link
from arcp_trio.client.listing import JobListing
from arcp_trio.client.session import Session
from arcp_trio.client.stream import JobStream
from arcp_trio.wire.errors import ArcpError, HeartbeatLost, ResumeWindowExpired
from arcp_trio.wire.json import Json, JsonLike, dumps
from arcp_trio.wire.messages import Jobs

log = logging.getLogger(__name__)

PATIENCE_SECONDS: Final = 5.0
"""How long the end of a job may take to come that has ended already."""


async def recover(session: Session, link: Link) -> None:
    """Find out what became of each job, and have its end sent."""
    streams = list(session.jobs.running.values())
    for stream in streams:
        stream.miss(ResumeWindowExpired(f"events of {stream.id} were lost with the connection"))
    if streams:
        log.warning("this runtime does not keep events while the connection is down")
        await _Recovery(session, link).run(streams)


class _Recovery:
    def __init__(self, session: Session, link: Link) -> None:
        self._session = session
        self._link = link

    async def run(self, streams: list[JobStream]) -> None:
        statuses = await self._statuses()
        for stream in streams:
            try:
                await self._recover(stream, statuses.get(stream.id))
            except ArcpError as error:
                self._session.give_up(stream, error)

    async def _statuses(self) -> dict[str, str]:
        async def page(wanted: Mapping[str, JsonLike]) -> Jobs:
            answer: Jobs = await self._ask(Call(LIST, dumps(wanted)))
            return answer

        try:
            return {info.id: info.status async for info in JobListing(page, {})}
        except ArcpError as error:
            log.warning("cannot find out what became of the jobs: %s", error)
            return {}

    async def _recover(self, stream: JobStream, status: str | None) -> None:
        if status is None:
            # Submitting again might start another one.
            raise HeartbeatLost(f"what became of {stream.id} is not known")
        if status not in ENDED:
            stream.top = 0  # a subscription may count anew
            payload = {"job_id": stream.id, "history": False}
            subscribed = await self._ask(Call(SUBSCRIBE, dumps(payload), job_id=stream.id))
            status = subscribed[1].current_status
        if status in ENDED and not stream.end.arrived.is_set():
            await self._fetch_end(stream)

    async def _fetch_end(self, stream: JobStream) -> None:
        """Submit under the same key again: the acceptance comes once more, and the end with it."""
        if stream.request is not None:
            await self._ask(Call(SUBMIT, stream.request))
            with trio.move_on_after(PATIENCE_SECONDS):
                await stream.end.arrived.wait()
        if not stream.end.arrived.is_set():
            raise HeartbeatLost(f"{stream.id} has ended, and its end was lost with the connection")

    async def _ask(self, call: Call) -> Json:
        calls = self._session.calls
        calls.add(call)
        try:
            self._link.send_frame(calls.frame(call, self._session.id))
            await call.answer.arrived.wait()  # not in turn: nobody here has to see events first
            return call.answer.get()
        finally:
            calls.remove(call)
