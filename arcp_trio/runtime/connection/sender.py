"""What goes out on a connection: the welcome, the replay, then whatever gets a number."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from arcp_trio.runtime.notices import refusal, store_trouble
from arcp_trio.runtime.session.secrets import with_secrets
from arcp_trio.store.errors import StoreError
from arcp_trio.store.interface import JournalTrimmed, LogTrimmed
from arcp_trio.store.records import HOLES
from arcp_trio.transport.close_codes import CloseCode
from arcp_trio.wire.errors import ResumeWindowExpired

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arcp_trio.runtime.connection.framing import FrameWriter
    from arcp_trio.runtime.connection.handshake import Opened
    from arcp_trio.runtime.farewell import Farewell
    from arcp_trio.runtime.job.job import Job

log = logging.getLogger(__name__)

WRITE_FRAMES: Final = 512
WRITE_BYTES: Final = 256 * 1024
"""One write takes what is there, up to these."""

AT_ONCE_FRAMES: Final = 16
AT_ONCE_BYTES: Final = 16 * 1024
"""What is sent without a turn of the sender's task is no more than this."""


class Sender:
    """Sends a session's frames on one connection, in order; only stored frames come here."""

    def __init__(self, opened: Opened, writer: FrameWriter, live: Mapping[str, Job]) -> None:
        self._session = opened.session
        self._attachment = opened.attachment
        self._unsent = opened.attachment.unsent
        self._replay = opened.replay
        self._writer = writer
        self._live = live
        self._letting_go = False
        # Before anything else: a client may have sent a ping after its hello.
        writer.say(opened.welcome)

    def say(self, tail: bytes) -> None:
        """Send a frame of the connection itself, before all others."""
        self._writer.say(tail)
        self._unsent.wake_sender.set()

    def let_go(self) -> None:
        """Stop after the write that is under way."""
        self._letting_go = True
        self._unsent.wake_sender.set()

    async def begin(self) -> None:
        """Send the welcome, before any other frame."""
        await self._writer.write(())

    async def run(self) -> None:
        """Send everything else, until the farewell is sent or the session is let go."""
        if await self._send_replay():
            await self._send_unsent()

    async def _send_replay(self) -> bool:
        session = self._session
        try:
            while frames := await self._replay.next(WRITE_FRAMES, WRITE_BYTES):
                if any(tail[0] == HOLES for _, tail in frames):
                    live = self._live
                    frames = [(seq, with_secrets(tail, session, live)) for seq, tail in frames]
                await self._writer.write(frames)
        except StoreError:
            log.exception("replay failed", extra=session.facts)
            self._attachment.fail(store_trouble(), CloseCode.FAILED)
            assert self._unsent.farewell is not None
            await self._say_farewell(self._unsent.farewell)
            return False
        except (JournalTrimmed, LogTrimmed) as gone:
            job_id = gone.job_id if isinstance(gone, JournalTrimmed) else None
            error = ResumeWindowExpired(f"events are gone before they were sent: {gone}")
            await self._writer.write([(0, refusal(error, job_id=job_id))])
            self._attachment.closing.now(CloseCode.POLICY, "events are gone")
            return False
        return True

    async def _send_unsent(self) -> None:
        unsent, writer = self._unsent, self._writer
        while True:
            frames = unsent.take(WRITE_FRAMES, WRITE_BYTES)
            if frames or writer.has_something_to_say:
                await writer.write(frames)
            elif unsent.farewell is not None:
                await self._say_farewell(unsent.farewell)
                return
            elif self._letting_go:
                return
            else:
                unsent.send_at_once = self._send_at_once
                try:
                    await unsent.wake_sender.wait()
                finally:
                    unsent.send_at_once = None

    def _send_at_once(self) -> None:
        """Send a few frames without a turn of the task, which sends what is left."""
        unsent, writer = self._unsent, self._writer
        begun = writer.writes_at_once and writer.write_at_once(
            unsent.take(AT_ONCE_FRAMES, AT_ONCE_BYTES)
        )
        if not begun or unsent.frames:
            unsent.wake_sender.set()

    async def _say_farewell(self, farewell: Farewell) -> None:
        if farewell.last is not None:
            await self._writer.write([(0, farewell.last)])
        self._attachment.closing.now(farewell.code, farewell.reason)
