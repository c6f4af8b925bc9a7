"""The agent's side of a streamed result: what it writes is cut into chunks (§8.4)."""

from __future__ import annotations

from codecs import getincrementaldecoder
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias

import trio

from arcp_trio.runtime.job.events import add_event, give_way
from arcp_trio.runtime.job.result_chunks import ResultChunks, base64_text
from arcp_trio.runtime.limits import LEAST_CHUNK_BYTES
from arcp_trio.runtime.wake import Wake
from arcp_trio.wire.errors import ArcpError, InternalError
from arcp_trio.wire.events import ENCODINGS
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.json import dumps

if TYPE_CHECKING:
    from arcp_trio.runtime.job.job import Job

Encoding: TypeAlias = Literal["utf8", "base64"]

CHUNK_ALLOWANCE: Final = 256
"""Bytes of a chunk's payload around its data, at most."""

FLUSH_SECONDS: Final = 0.03
"""How long data waits for more to be written, so that a burst of writes makes few chunks."""

_INSIDE_A_CHARACTER: Final = range(0x80, 0xC0)
"""Bytes of UTF-8 that continue a character."""
_BEGINS_LONGER: Final = (0xC0, 0xE0, 0xF0)
"""The least bytes of UTF-8 that begin a character of two, of three, and of four bytes."""


class ResultStream:
    """`async with job.stream_result() as out: await out.write("…")`, and then return nothing.

    What is written is sent within milliseconds, together with what follows in that time; a client
    that falls behind gets fewer and larger chunks. What was written stays written, also if the call
    is cancelled while it waits for the store or the client. Several tasks may write: each write
    stays in one piece. An exception that leaves the block leaves the result unfinished, and the job
    can no longer succeed.
    """

    def __init__(self, job: Job, encoding: Encoding) -> None:
        if encoding not in ENCODINGS:
            raise ValueError(f"the encoding must be utf8 or base64, not {encoding!r}")
        self._job = job
        self._encoding = encoding
        self._decoder = getincrementaldecoder("utf-8")() if encoding == "utf8" else None
        self._most = job.core.limits.chunk_bytes
        self._unsent = bytearray()
        self._since = 0.0
        """The time since which there is unsent data, or since which it is less than it was."""
        self._idle = True
        """Whether the task that flushes waits for something to be written."""
        self._written = Wake()
        self._flushing = trio.CancelScope()
        self._open = False

    async def __aenter__(self) -> Self:
        await give_way(self._job)
        if self._job.chunks is not None:
            raise self._job.chunks.fail(InternalError("a job has only one streamed result"))
        self._job.chunks = ResultChunks(new_id("res_"))
        self._open = True
        if self._job.sends_chunks:
            name = f"chunks of {self._job.id}"
            self._job.jobs.start_beside(self._job, self._keep_flushing, name)
        return self

    async def write(self, data: str | bytes | bytearray | memoryview) -> None:
        """Add to the result: text or UTF-8, whose characters several writes may share; or bytes.

        Raises:
            InternalError: the result is larger than `result_bytes`, or the job has ended.
            ValueError: the data is not UTF-8, and nothing of it was added; or the block was left.
        """
        if not self._open:
            raise ValueError("this is not the block of a streamed result")
        self._unsent += self._checked(data)
        if self._idle:
            self._idle, self._since = False, trio.current_time()
            self._written.set()
        while len(self._unsent) > self._most:
            await self._send(last=False)
        await give_way(self._job)

    def summarize(self, summary: str) -> None:
        """Say in words what the result is: the message that ends the job has it (§8.4).

        A later summary replaces an earlier one. A client that takes no chunks is not told.

        Raises:
            ValueError: the summary does not fit into a frame, or the block was left.
        """
        chunks = self._job.chunks
        if not self._open or chunks is None:
            raise ValueError("this is not the block of a streamed result")
        chunks.summarize(summary, self._job.most_payload_bytes - CHUNK_ALLOWANCE)

    def _checked(self, data: str | bytes | bytearray | memoryview) -> bytes:
        if isinstance(data, str) and self._decoder is not None:
            data = data.encode()
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"not what a {self._encoding} result is made of: {type(data).__name__}")
        data = bytes(data)
        if self._decoder is not None:
            self._decoder.decode(data)
        return data

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open = False
        self._flushing.cancel(reason="the block is left")
        if error is not None:
            return
        while await self._send(last=True):  # noqa: ASYNC102 - nothing is being cancelled
            pass

    async def _keep_flushing(self) -> None:
        """Send what has waited for `FLUSH_SECONDS`, unless the client is behind."""
        # The agent meets the same error at its next write, or at the end of the block.
        with self._flushing, suppress(ArcpError):
            while True:
                await self._written.wait()
                while self._whole_characters(len(self._unsent)):
                    await self._job.journal.followed()
                    wait = self._since + FLUSH_SECONDS - trio.current_time()
                    if wait > 0:
                        await trio.sleep(wait)
                    elif self._whole_characters(len(self._unsent)):
                        await self._send(last=False)
                self._idle = True

    async def _send(self, *, last: bool) -> bool:
        """Emit the next chunk; return whether others follow it."""
        chunks = self._job.chunks
        assert chunks is not None
        data, size = self._next_data(last=last)
        more = not last or size < len(self._unsent)
        body = {
            "result_id": chunks.id,
            "chunk_seq": chunks.next_chunk,
            "data": data,
            "encoding": self._encoding,
            "more": more,
        }
        add_event(self._job, "result_chunk", body)
        del self._unsent[:size]
        self._since = trio.current_time()
        await give_way(self._job, at_once=True)
        return more

    def _next_data(self, *, last: bool) -> tuple[str, int]:
        """Return as much data as a frame can hold, and how many bytes that is undecoded."""
        room = self._job.most_payload_bytes - CHUNK_ALLOWANCE
        most = self._most
        while True:
            size = min(most, len(self._unsent))
            if not last or size < len(self._unsent):
                size = self._whole_characters(size)
            piece = self._unsent[:size]
            data = base64_text(piece) if self._decoder is None else piece.decode()
            # A control character takes six bytes of a frame.
            if len(dumps(data)) <= room or most < 2 * LEAST_CHUNK_BYTES:
                return data, size
            most //= 2

    def _whole_characters(self, size: int) -> int:
        """Return how many of the first `size` bytes can be sent without the bytes after them."""
        if self._decoder is None:
            return size
        start = size - 1
        while start >= 0 and self._unsent[start] in _INSIDE_A_CHARACTER:
            start -= 1
        # The last character begins at `start`.
        return size if start < 0 or start + _length(self._unsent[start]) <= size else start


def _length(first: int) -> int:
    """Return how many bytes a character has in UTF-8, by its first one."""
    return 1 + sum(first >= least for least in _BEGINS_LONGER)
