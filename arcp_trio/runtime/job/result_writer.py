"""A streamed result on the job's side: what its agent writes is cut into chunks (§8.4)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias

import trio

from arcp_trio.runtime.job.events import add_event, give_way
from arcp_trio.runtime.job.result_chunks import ResultChunks, base64_text
from arcp_trio.runtime.limits import LEAST_CHUNK_BYTES
from arcp_trio.runtime.wake import Wake
from arcp_trio.wire.errors import ArcpError, InternalError
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.json import JsonLike, dumps

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


class ResultWriter:
    """Cuts the data of a job's one streamed result into chunks; text comes as valid UTF-8.

    What is written is sent within milliseconds, together with what follows in that time; a client
    that falls behind gets fewer and larger chunks.
    """

    def __init__(self, job: Job, chunks: ResultChunks, encoding: Encoding) -> None:
        self._job = job
        self._chunks = chunks
        self._encoding = encoding
        self._most = job.core.limits.chunk_bytes
        self._unsent = bytearray()
        self._since = 0.0
        """The time since which there is unsent data, or since which it is less than it was."""
        self._idle = True
        """Whether the task that flushes waits for something to be written."""
        self._written = Wake()
        self._flushing = trio.CancelScope()

    @classmethod
    async def begin(cls, job: Job, encoding: Encoding) -> Self:
        """Begin a job's result.

        Raises:
            InternalError: the job has begun one before.
        """
        await give_way(job)
        if job.chunks is not None:
            raise job.chunks.fail(InternalError("a job has only one streamed result"))
        job.chunks = ResultChunks(new_id("res_"))
        writer = cls(job, job.chunks, encoding)
        if job.sends_chunks:
            job.jobs.start_beside(job, writer._keep_flushing, f"chunks of {job.id}")
        return writer

    async def write(self, data: bytes) -> None:
        """Add to the result.

        Raises:
            InternalError: the result is larger than `result_bytes`, or the job has ended.
        """
        self._unsent += data
        if self._idle:
            self._idle, self._since = False, trio.current_time()
            self._written.set()
        while len(self._unsent) > self._most:
            await self._send(last=False)
        await give_way(self._job)

    def summarize(self, summary: str) -> None:
        """Say in words what the result is: the message that ends the job has it.

        Raises:
            ValueError: the summary does not fit into a frame.
        """
        self._chunks.summarize(summary, self._job.most_payload_bytes - CHUNK_ALLOWANCE)

    def leave(self) -> None:
        """Send nothing more: the result stays unfinished, unless `end` follows."""
        self._flushing.cancel(reason="the block is left")

    async def end(self) -> None:
        """Finish the result."""
        self.leave()
        while await self._send(last=True):
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
        data, size = self._next_data(last=last)
        more = not last or size < len(self._unsent)
        body: dict[str, JsonLike] = {
            "result_id": self._chunks.id,
            "chunk_seq": self._chunks.next_chunk,
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
            data = base64_text(piece) if self._encoding == "base64" else piece.decode()
            # A control character takes six bytes of a frame.
            if len(dumps(data)) <= room or most < 2 * LEAST_CHUNK_BYTES:
                return data, size
            most //= 2

    def _whole_characters(self, size: int) -> int:
        """Return how many of the first `size` bytes can be sent without the bytes after them."""
        if self._encoding == "base64":
            return size
        start = size - 1
        while start >= 0 and self._unsent[start] in _INSIDE_A_CHARACTER:
            start -= 1
        # The last character begins at `start`.
        return size if start < 0 or start + _length(self._unsent[start]) <= size else start


def _length(first: int) -> int:
    """Return how many bytes a character has in UTF-8, by its first one."""
    return 1 + sum(first >= least for least in _BEGINS_LONGER)
