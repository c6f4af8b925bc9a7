"""What goes out on a connection: the welcome, what is replayed, then whatever is numbered."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from arcp_trio.runtime.connection.writer import FrameWriter
from arcp_trio.runtime.notices import FAILED, refusal, store_trouble
from arcp_trio.runtime.session.secrets import with_secrets
from arcp_trio.runtime.session.unsent import POLICY, Farewell, Unsent
from arcp_trio.store.errors import StoreError
from arcp_trio.store.interface import JournalTrimmed, LogTrimmed, Replay
from arcp_trio.store.records import HOLES
from arcp_trio.wire.errors import ResumeWindowExpired

if TYPE_CHECKING:
    from arcp_trio.runtime.connection.connection import Connection
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.session.session import Session

log = logging.getLogger(__name__)

WRITE_FRAMES = 512
WRITE_BYTES = 256 * 1024
"""One write is what is there, up to these."""


class Sender:
    """Sends a session's frames on one connection, in order; only what is stored gets here."""

    def __init__(
        self,
        jobs: Jobs,
        connection: Connection,
        session: Session,
        writer: FrameWriter,
        welcome: bytes,
        replay: Replay,
        tail: Unsent,
    ) -> None:
        self.writer = writer
        self._jobs = jobs
        self._connection = connection
        self._session = session
        self._replay = replay
        self._tail = tail
        self._letting_go = False
        # Before anything else: a client may have sent a ping behind its hello.
        writer.say(welcome)

    def say(self, tail: bytes) -> None:
        """Send a frame of the connection itself, before all others."""
        self.writer.say(tail)
        self._connection.wake.set()

    def let_go(self) -> None:
        """Send nothing more, from between two writes on."""
        self._letting_go = True
        self._connection.wake.set()

    async def welcome(self) -> None:
        """Send the welcome."""
        await self.writer.write(())

    async def run(self) -> None:
        """Send everything else, until the farewell is sent or the session is let go."""
        if await self._send_replay():
            await self._follow_tail()

    async def _send_replay(self) -> bool:
        session, live = self._session, self._jobs.live
        try:
            while frames := await self._replay.next(WRITE_FRAMES, WRITE_BYTES):
                if any(tail[0] == HOLES for _, tail in frames):
                    frames = [(seq, with_secrets(tail, session, live)) for seq, tail in frames]
                await self.writer.write(frames)
        except StoreError:
            log.exception("replay failed", extra=session.facts)
            self._connection.fail(store_trouble(), FAILED)
            assert self._tail.farewell is not None
            await self._take_leave(self._tail.farewell)
            return False
        except (JournalTrimmed, LogTrimmed) as gone:
            job_id = gone.job_id if isinstance(gone, JournalTrimmed) else None
            error = ResumeWindowExpired(f"events are gone before they were sent: {gone}")
            await self.writer.write([(0, refusal(error, job_id=job_id))])
            self._connection.end(POLICY, "events are gone")
            return False
        return True

    async def _follow_tail(self) -> None:
        tail = self._tail
        while True:
            frames = tail.take(WRITE_FRAMES, WRITE_BYTES)
            if frames or self.writer.has_something_to_say:
                await self.writer.write(frames)
            elif tail.farewell is not None:
                await self._take_leave(tail.farewell)
                return
            elif self._letting_go:
                return
            else:
                await self._connection.wake.wait()

    async def _take_leave(self, farewell: Farewell) -> None:
        if farewell.last is not None:
            await self.writer.write([(0, farewell.last)])
        self._connection.end(farewell.code, farewell.reason)
