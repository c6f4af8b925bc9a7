"""A streamed result on the job's side: what its agent writes is cut into chunks (§8.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias

from arcp_trio.runtime.job.events import add_event, give_way
from arcp_trio.runtime.job.result_chunks import ResultChunks, base64_text
from arcp_trio.runtime.limits import LEAST_CHUNK_BYTES
from arcp_trio.wire.errors import InternalError
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.json import dumps

if TYPE_CHECKING:
    from arcp_trio.runtime.job.job import Job

Encoding: TypeAlias = Literal["utf8", "base64"]

CHUNK_ALLOWANCE: Final = 256
"""Bytes of a chunk's payload around its data, at most."""

_INSIDE_A_CHARACTER: Final = range(0x80, 0xC0)
"""Bytes of UTF-8 that continue a character."""


class ResultWriter:
    """Cuts the data of a job's one streamed result; text comes as valid UTF-8."""

    def __init__(self, job: Job, chunks: ResultChunks, encoding: Encoding) -> None:
        self._job = job
        self._chunks = chunks
        self._encoding = encoding
        self._unsent = bytearray()
        """At least the last byte written, so that the last chunk can say that it is the last."""

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
        return cls(job, job.chunks, encoding)

    async def write(self, data: bytes) -> None:
        """Add to the result.

        Raises:
            InternalError: the result is larger than `result_bytes`, or the job has ended.
        """
        self._unsent += data
        while len(self._unsent) > self._job.core.limits.chunk_bytes:
            await self._send(last=False)
        await give_way(self._job)

    def summarize(self, summary: str) -> None:
        """Say in words what the result is: the message that ends the job has it.

        Raises:
            ValueError: the summary does not fit into a frame.
        """
        self._chunks.summarize(summary, self._job.most_payload_bytes - CHUNK_ALLOWANCE)

    async def end(self) -> None:
        """Finish the result."""
        while await self._send(last=True):
            pass

    async def _send(self, *, last: bool) -> bool:
        """Emit the next chunk; return whether others follow it."""
        data, size = self._next_data()
        more = not last or size < len(self._unsent)
        body = {
            "result_id": self._chunks.id,
            "chunk_seq": self._chunks.next_chunk,
            "data": data,
            "encoding": self._encoding,
            "more": more,
        }
        add_event(self._job, "result_chunk", body)
        del self._unsent[:size]
        await give_way(self._job, at_once=True)
        return more

    def _next_data(self) -> tuple[str, int]:
        """Return as much data as a frame can hold, and how many bytes that is undecoded."""
        room = self._job.most_payload_bytes - CHUNK_ALLOWANCE
        most = self._job.core.limits.chunk_bytes
        while True:
            size = self._whole_characters(most)
            piece = self._unsent[:size]
            data = base64_text(piece) if self._encoding == "base64" else piece.decode()
            # A control character takes six bytes of a frame.
            if len(dumps(data)) <= room or most < 2 * LEAST_CHUNK_BYTES:
                return data, size
            most //= 2

    def _whole_characters(self, most: int) -> int:
        unsent = self._unsent
        size = min(most, len(unsent))
        if self._encoding == "utf8" and size < len(unsent):
            while unsent[size] in _INSIDE_A_CHARACTER:
                size -= 1
        return size
