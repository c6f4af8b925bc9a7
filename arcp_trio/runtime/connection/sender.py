"""What goes out on a connection: the welcome, the replay, then whatever gets a number."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, Never

import trio

from arcp_trio.groups import consists_of
from arcp_trio.nurseries import tasks_beside
from arcp_trio.runtime.credentials.holes import fill_holes, has_holes, job_of
from arcp_trio.runtime.notices import refusal, store_trouble
from arcp_trio.runtime.wake import Wake
from arcp_trio.store.errors import Fenced, StoreError
from arcp_trio.store.interface import JournalTrimmed, LogTrimmed
from arcp_trio.store.records import NumberedTail
from arcp_trio.transport.base import SendsAtOnce, TransportClosed
from arcp_trio.transport.close_codes import CloseCode
from arcp_trio.wire import envelope
from arcp_trio.wire.errors import ResumeWindowExpired
from arcp_trio.wire.json import JsonObject

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from arcp_trio.runtime.connection.handshake import Opened
    from arcp_trio.runtime.farewell import Farewell
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.session.session import Session
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

    def __init__(self, opened: Opened, transport: Transport, arcp: str, jobs: Jobs) -> None:
        self.sent_seq = opened.after_seq
        """The highest number that was handed to the transport."""
        self._session = opened.session
        self._attachment = opened.attachment
        self._unsent = opened.attachment.unsent
        self._dialect = opened.attachment.dialect
        self._replay = opened.replay
        self._transport = transport
        self._jobs = jobs
        self._at_once: SendsAtOnce | None = None
        """None if all frames need a wait: for the transport, or because of the client."""
        if isinstance(transport, SendsAtOnce) and self._dialect.busy_after is None:
            self._at_once = transport
        self._numbered = envelope.numbered_head(opened.session.id, arcp)
        self._plain = envelope.plain_head(opened.session.id, arcp)
        self._control = [opened.welcome]
        """Frames of the connection itself, which go between batches and before all others."""
        self._has_begun = False
        """Frames were written at once, but for a rest."""
        self._taken: Sequence[NumberedTail] = ()
        """Frames with holes among them, which are sent before all that is unsent."""
        self._said_or_filled = Wake()
        self._nursery: trio.Nursery | None = None
        """The connection's. None until the sender begins, and after it was let go."""
        self._has_task = False
        self._wake_reader = Wake()
        """Wakes the reader, which waits for room, or for the end of the task."""

    async def say_welcome(self) -> None:
        """Send the welcome, before any other frame."""
        if self._writes_at_once:
            self._write_at_once(())
        if self._has_something_to_say:
            await self._write(())

    def begin(self, nursery: trio.Nursery) -> None:
        """Send everything else; what needs a wait is sent in a task of this nursery."""
        self._nursery = nursery
        self._unsent.send = self._send
        self._send()

    def say(self, tail: bytes) -> None:
        """Send a frame of the connection itself, before all others."""
        self._control.append(tail)
        self._said_or_filled.set()
        self._send()

    async def room(self) -> None:
        """Wait for room: a client that pings and does not read must not fill the memory."""
        while len(self._control) >= MOST_CONTROL:
            await self._wake_reader.wait()

    def let_go(self) -> None:
        """Stop after the write that is under way."""
        self._nursery = None

    async def stop(self) -> None:
        """Stop, and wait for the write that is under way."""
        self.let_go()
        while self._has_task:
            await self._wake_reader.wait()

    # -- the step, in the task of the session or of the connection

    def _send(self) -> None:
        """Send what there is: a little of it at once, and what is left in the task.

        What goes wrong is raised in a task of the connection: the session does not end with it.
        """
        if self._has_task or self._nursery is None:
            return
        work: Callable[[], Awaitable[None]] = self._run
        try:
            if self._replay is None and self._writes_at_once:
                frames = self._unsent.take(AT_ONCE_FRAMES, AT_ONCE_BYTES)
                if _any_holes(frames):
                    self._taken = frames
                else:
                    self._write_at_once(frames)
            if not self._has_work:
                return
        except Exception as error:  # noqa: BLE001 - it is raised in the task
            work = partial(_fail, error)
        self._has_task = True
        self._nursery.start_soon(work, name=f"sender of {self._session.id}")

    @property
    def _has_work(self) -> bool:
        unsent = self._unsent
        has_frames = bool(self._taken or unsent.frames or self._has_something_to_say)
        return has_frames or self._replay is not None or unsent.farewell is not None

    # -- the task

    async def _run(self) -> None:
        """Send everything there is."""
        try:
            if self._replay is not None and not await self._send_replay(self._replay):
                return
            self._replay = None
            if self._taken:
                await self._send_frames(self._taken)
                self._taken = ()
            await self._send_unsent()
        except TransportClosed:
            self._attachment.closing.now(CloseCode.NORMAL, "")
        except Exception as error:
            if not consists_of(error, Fenced):
                raise
            await trio.sleep_forever()  # this node is about to end, and the connection with it
        self._has_task = False
        self._wake_reader.set()

    async def _send_replay(self, replay: Replay) -> bool:
        try:
            while frames := await replay.next(WRITE_FRAMES, WRITE_BYTES):
                await self._send_frames(frames)
        except StoreError as failed:
            log.warning("replay failed", extra=self._session.facts | {"error": str(failed)})
            self._attachment.fail(store_trouble(self._jobs.core.store), CloseCode.FAILED)
            assert self._unsent.farewell is not None
            await self._say_farewell(self._unsent.farewell)
            return False
        except (JournalTrimmed, LogTrimmed) as gone:
            job_id = gone.job_id if isinstance(gone, JournalTrimmed) else None
            error = ResumeWindowExpired(f"events are gone before they were sent: {gone}")
            await self._write([(0, refusal(error, job_id=job_id))])
            self._attachment.closing.now(CloseCode.POLICY, "events are gone")
            return False
        return True

    async def _send_unsent(self) -> None:
        unsent = self._unsent
        while self._nursery is not None:
            frames = unsent.take(WRITE_FRAMES, WRITE_BYTES)
            if frames or self._has_something_to_say:
                await self._send_frames(frames)
            elif unsent.farewell is not None:
                await self._say_farewell(unsent.farewell)
                return
            else:
                return

    async def _say_farewell(self, farewell: Farewell) -> None:
        if farewell.last is not None:
            await self._write([(0, farewell.last)])
        self._attachment.closing.now(farewell.code, farewell.reason)

    async def _send_frames(self, frames: Sequence[NumberedTail]) -> None:
        """Send frames, with a pause after each one that the client's dialect asks it for."""
        if _any_holes(frames):
            frames = await self._filled(frames)
        busy_after, begin = self._dialect.busy_after, 0
        if busy_after is not None:
            for end, (seq, tail) in enumerate(frames, 1):
                if not seq and tail.startswith(busy_after):
                    await self._write(frames[begin:end])
                    await trio.sleep(PAUSE_SECONDS)
                    begin = end
        if begin < len(frames) or self._has_something_to_say:
            await self._write(frames[begin:])

    async def _filled(self, frames: Sequence[NumberedTail]) -> Sequence[NumberedTail]:
        """Fill the holes of frames. Pings and pongs do not wait for the nodes that are asked."""
        filled: list[Sequence[NumberedTail]] = []

        async def fill() -> None:
            filled.append(await _fill(frames, self._session, self._jobs))
            self._said_or_filled.set()

        async with tasks_beside() as nursery:
            nursery.start_soon(fill, name=f"holes of {self._session.id}")
            while not filled:
                await self._said_or_filled.wait()
                if self._has_something_to_say:
                    await self._write(())
        return filled[0]

    # -- writing

    @property
    def _has_something_to_say(self) -> bool:
        """Whether a frame of the connection waits, or the rest of what was written at once."""
        return self._has_begun or bool(self._control)

    async def _write(self, frames: Sequence[NumberedTail]) -> None:
        self._has_begun = False
        await self._transport.send(self._texts(frames))

    @property
    def _writes_at_once(self) -> bool:
        return self._at_once is not None and not self._has_begun and self._at_once.sends_at_once

    def _write_at_once(self, frames: Sequence[NumberedTail]) -> None:
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
            self._wake_reader.set()
        texts += [
            b"%b%d%b" % (numbered, seq, tail) if seq else plain + tail for seq, tail in frames
        ]
        # Before the write: a client may acknowledge its first frames while the rest is sent.
        self.sent_seq = next((seq for seq, _ in reversed(frames) if seq), self.sent_seq)
        return texts


async def _fail(error: Exception) -> Never:
    raise error


# -- holes that are still there when frames are sent: other nodes reveal what goes there


def _any_holes(frames: Sequence[NumberedTail]) -> bool:
    return any(has_holes(tail) for _, tail in frames)


async def _fill(
    frames: Sequence[NumberedTail], session: Session, jobs: Jobs
) -> Sequence[NumberedTail]:
    """Return frames as the client may read them, without what is not revealed in time."""
    frames = [(seq, session.with_secrets(tail, jobs)) for seq, tail in frames]
    revealed = dict[str, Mapping[str, JsonObject]]()

    async def ask(job_id: str) -> None:
        assert jobs.other_wallets is not None, "else there would not be holes"
        reveal = jobs.other_wallets.reveal
        revealed[job_id] = await reveal(job_id, session.id, session.principal)

    async with trio.open_nursery() as nursery:
        for job_id in {job_of(tail) for _, tail in frames if has_holes(tail)}:
            nursery.start_soon(ask, job_id, name=f"reveal {job_id}")

    def credential(job_id: str, credential_id: str) -> JsonObject | None:
        return revealed.get(job_id, {}).get(credential_id)

    return [
        (seq, fill_holes(tail, credential, revealed[job_of(tail)]) if has_holes(tail) else tail)
        for seq, tail in frames
    ]
