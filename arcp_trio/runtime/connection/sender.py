"""What goes out on a connection: the welcome, the replay, then whatever gets a number."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from arcp_trio.nurseries import tasks_beside
from arcp_trio.runtime.connection.filling import HoleFiller
from arcp_trio.runtime.credentials.holes import has_holes
from arcp_trio.runtime.notices import refusal, store_trouble
from arcp_trio.runtime.wake import Wake
from arcp_trio.store.errors import StoreError
from arcp_trio.store.interface import JournalTrimmed, LogTrimmed
from arcp_trio.store.records import NumberedTail
from arcp_trio.transport.base import SendsAtOnce
from arcp_trio.transport.close_codes import CloseCode
from arcp_trio.wire import envelope
from arcp_trio.wire.dialects import Dialect
from arcp_trio.wire.errors import ResumeWindowExpired

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from arcp_trio.runtime.connection.handshake import Opened
    from arcp_trio.runtime.farewell import Farewell
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.store.interface import Replay
    from arcp_trio.transport.base import Transport

log = logging.getLogger(__name__)

WRITE_FRAMES: Final = 512
WRITE_BYTES: Final = 256 * 1024
"""One write takes what is there, up to these."""

AT_ONCE_FRAMES: Final = 16
AT_ONCE_BYTES: Final = 16 * 1024
"""What is sent without a turn of the sender's task is no more than this."""

PAUSE_SECONDS: Final = 0.01
"""The pause after a frame that some clients need time for before they read the next."""

MOST_CONTROL: Final = 256
"""Control frames that may wait to be sent; past it, the reader waits, too."""


class Sender:
    """Sends a session's frames on one connection, in order; only stored frames come here.

    A few frames are sent in the step that hands them over. A task sends what needs a wait: it is
    started when there is such a thing, and ends when everything is sent.
    """

    def __init__(self, opened: Opened, writer: FrameWriter, jobs: Jobs) -> None:
        self._session = opened.session
        self._store = jobs.core.store
        self._attachment = opened.attachment
        self._unsent = opened.attachment.unsent
        self._welcome = opened.welcome
        self._replay = opened.replay
        self._writer = writer
        self._filler = HoleFiller(opened.session, jobs)
        self._taken: Sequence[NumberedTail] = ()
        """Frames with holes among them, which are sent before all that is unsent."""
        self._said_or_filled = Wake()
        self._start_task: Callable[[], None] | None = None
        """None until the sender begins, and after it was let go."""
        self._has_task = False

    async def say_welcome(self) -> None:
        """Send the welcome, before any other frame."""
        self._writer.say(self._welcome)
        self._welcome = b""  # it is large
        if self._writer.writes_at_once:
            self._writer.write_at_once(())
        if self._writer.has_something_to_say:
            await self._writer.write(())

    def begin(self, start_task: Callable[[], None]) -> None:
        """Send everything else; `start_task` starts a task that calls `run`."""
        self._start_task = start_task
        self._unsent.send = self._send
        self._send()

    def say(self, tail: bytes) -> None:
        """Send a frame of the connection itself, before all others."""
        self._writer.say(tail)
        self._said_or_filled.set()
        self._send()

    def let_go(self) -> None:
        """Stop after the write that is under way."""
        self._start_task = None

    def _send(self) -> None:
        """Send what there is: a little of it at once, and what is left in the task."""
        if self._has_task or self._start_task is None:
            return
        if self._replay is None and self._writer.writes_at_once:
            frames = self._unsent.take(AT_ONCE_FRAMES, AT_ONCE_BYTES)
            if _any_holes(frames):
                self._taken = frames
            else:
                self._writer.write_at_once(frames)
        if self._has_work:
            self._has_task = True
            self._start_task()

    @property
    def _has_work(self) -> bool:
        unsent = self._unsent
        has_frames = bool(self._taken or unsent.frames or self._writer.has_something_to_say)
        return has_frames or self._replay is not None or unsent.farewell is not None

    async def run(self) -> None:
        """Send everything there is, in a task."""
        if self._replay is not None and not await self._send_replay(self._replay):
            return
        self._replay = None
        if self._taken:
            await self._write(self._taken)
            self._taken = ()
        await self._send_unsent()
        self._has_task = False

    async def _send_replay(self, replay: Replay) -> bool:
        try:
            while frames := await replay.next(WRITE_FRAMES, WRITE_BYTES):
                await self._write(frames)
        except StoreError as failed:
            log.warning("replay failed", extra=self._session.facts | {"error": str(failed)})
            self._attachment.fail(store_trouble(self._store), CloseCode.FAILED)
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
        while self._start_task is not None:
            frames = unsent.take(WRITE_FRAMES, WRITE_BYTES)
            if frames or writer.has_something_to_say:
                await self._write(frames)
            elif unsent.farewell is not None:
                await self._say_farewell(unsent.farewell)
                return
            else:
                return

    async def _write(self, frames: Sequence[NumberedTail]) -> None:
        if _any_holes(frames):
            frames = await self._filled(frames)
        await self._writer.write(frames)

    async def _filled(self, frames: Sequence[NumberedTail]) -> Sequence[NumberedTail]:
        """Fill the holes of frames. Pings and pongs do not wait for the nodes that are asked."""
        filled: list[Sequence[NumberedTail]] = []

        async def fill() -> None:
            filled.append(await self._filler.fill(frames))
            self._said_or_filled.set()

        async with tasks_beside() as nursery:
            nursery.start_soon(fill, name=f"holes of {self._session.id}")
            while not filled:
                await self._said_or_filled.wait()
                if self._writer.has_something_to_say:
                    await self._writer.write(())
        return filled[0]

    async def _say_farewell(self, farewell: Farewell) -> None:
        if farewell.last is not None:
            await self._writer.write([(0, farewell.last)])
        self._attachment.closing.now(farewell.code, farewell.reason)


def _any_holes(frames: Sequence[NumberedTail]) -> bool:
    return any(has_holes(tail) for _, tail in frames)


class FrameWriter:
    """Writes one session's frames to one transport; used by one sender."""

    def __init__(
        self, transport: Transport, session_id: str, arcp: str, dialect: Dialect, after_seq: int
    ) -> None:
        self.sent_seq = after_seq
        """The highest number that was handed to the transport."""
        self._transport = transport
        self._at_once = transport if isinstance(transport, SendsAtOnce) else None
        self._dialect = dialect
        self._numbered = envelope.numbered_head(session_id, arcp)
        self._plain = envelope.plain_head(session_id, arcp)
        self._control: list[bytes] = []
        self._control_sent = Wake()
        self._has_begun = False
        """Frames were written at once, but for a rest."""

    # -- frames of the connection itself, which go between batches and before all others

    def say(self, tail: bytes) -> None:
        """Have a ping, a pong or a welcome written before anything else."""
        self._control.append(tail)

    @property
    def has_something_to_say(self) -> bool:
        """Whether such a frame waits, or the rest of frames that were written at once."""
        return self._has_begun or bool(self._control)

    async def room(self) -> None:
        """Wait for room: a client that pings and does not read must not fill the memory."""
        while len(self._control) >= MOST_CONTROL:
            await self._control_sent.wait()

    # -- writing

    async def write(self, frames: Sequence[NumberedTail]) -> None:
        """Write frames, with a pause after each one that the client's dialect asks it for."""
        busy_after, begin = self._dialect.busy_after, 0
        if busy_after is not None:
            for end, (seq, tail) in enumerate(frames, 1):
                if not seq and tail.startswith(busy_after):
                    await self._write(frames[begin:end])
                    await trio.sleep(PAUSE_SECONDS)
                    begin = end
        if begin < len(frames) or self.has_something_to_say:
            await self._write(frames[begin:])

    async def _write(self, frames: Sequence[NumberedTail]) -> None:
        self._has_begun = False
        await self._transport.send(self._texts(frames))

    @property
    def writes_at_once(self) -> bool:
        """Whether `write_at_once` can be called: nothing is to be written before, nor a pause."""
        if self._at_once is None or self._dialect.busy_after is not None:
            return False
        return not self._has_begun and self._at_once.sends_at_once

    def write_at_once(self, frames: Sequence[NumberedTail]) -> None:
        """Begin to write frames, without waiting; if there is a rest, there is something to say."""
        assert self._at_once is not None
        if frames or self._control:
            self._has_begun = not self._at_once.send_at_once(self._texts(frames))

    def _texts(self, frames: Sequence[NumberedTail]) -> Sequence[bytes]:
        numbered, plain, translate = self._numbered, self._plain, self._dialect.translate
        if translate is not None:
            translated = [(seq, translate(tail)) for seq, tail in frames]
            frames = [(seq, tail) for seq, tail in translated if tail is not None]
        texts = [plain + tail for tail in self._control]
        if texts:
            self._control.clear()
            self._control_sent.set()
        texts += [
            b"%b%d%b" % (numbered, seq, tail) if seq else plain + tail for seq, tail in frames
        ]
        # Before the write: a client may acknowledge its first frames while the rest is sent.
        self.sent_seq = next((seq for seq, _ in reversed(frames) if seq), self.sent_seq)
        return texts
