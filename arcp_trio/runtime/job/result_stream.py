"""The agent's side of a streamed result: what it writes is cut into chunks (§8.4)."""

from __future__ import annotations

from codecs import getincrementaldecoder
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from arcp_trio.runtime.job.emitting import add_event, give_way
from arcp_trio.runtime.job.streamed_result import StreamedResult, base64_text
from arcp_trio.runtime.limits import LEAST_CHUNK_BYTES
from arcp_trio.wire.errors import InternalError
from arcp_trio.wire.events import ENCODINGS
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.json import dumps

if TYPE_CHECKING:
    from arcp_trio.runtime.job.job import Job

Encoding = Literal["utf8", "base64"]

CHUNK_ALLOWANCE = 256
"""Bytes of a chunk's payload around its data, at most."""

_INSIDE_A_CHARACTER = range(0x80, 0xC0)
"""Bytes of UTF-8 that continue one."""


class ResultStream:
    """`async with job.stream_result() as out: await out.write("…")`, and then return nothing.

    What was written is taken, also if the call is cancelled while it waits for the store or the
    client. Several tasks may write: each write stays in one piece. An exception that leaves the
    block leaves the result unfinished, and the job cannot succeed any more.
    """

    def __init__(self, job: Job, encoding: Encoding) -> None:
        if encoding not in ENCODINGS:
            raise ValueError(f"the encoding must be utf8 or base64, not {encoding!r}")
        self._job = job
        self._encoding = encoding
        self._decoder = getincrementaldecoder("utf-8")() if encoding == "utf8" else None
        self._held = bytearray()
        """Not sent yet: at least the last byte, for the last chunk to know that it is the last."""
        self._open = False

    async def __aenter__(self) -> Self:
        await give_way(self._job)
        if self._job.streamed is not None:
            raise self._job.streamed.fail(InternalError("a job has only one streamed result"))
        self._job.streamed = StreamedResult(new_id("res_"))
        self._open = True
        return self

    async def write(self, data: str | bytes | bytearray | memoryview) -> None:
        """Add to the result: text or UTF-8, whose characters several writes may share; or bytes.

        Raises:
            InternalError: the result is larger than `result_bytes`, or ends with the job.
            ValueError: it is not UTF-8, and nothing of it was taken; or the block was left.
        """
        if not self._open:
            raise ValueError("this is not the block of a streamed result")
        self._held += self._checked(data)
        while len(self._held) > self._job.core.limits.chunk_bytes:
            await self._send(last=False)
        await give_way(self._job)

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
        if error is not None:
            return
        while await self._send(last=True):  # noqa: ASYNC102 - nothing is being cancelled
            pass

    async def _send(self, *, last: bool) -> bool:
        """Emit the next chunk; tell whether it has others behind it."""
        streamed = self._job.streamed
        assert streamed is not None
        data, size = self._next_data()
        more = not last or size < len(self._held)
        body = {
            "result_id": streamed.id,
            "chunk_seq": streamed.next_chunk,
            "data": data,
            "encoding": self._encoding,
            "more": more,
        }
        add_event(self._job, "result_chunk", body)
        del self._held[:size]
        await give_way(self._job, at_once=True)
        return more

    def _next_data(self) -> tuple[str, int]:
        """The next chunk's data, and how many bytes it stands for: as many as a frame can hold."""
        room = self._job.most_bytes - CHUNK_ALLOWANCE
        most = self._job.core.limits.chunk_bytes
        while True:
            size = self._whole_characters(most)
            piece = self._held[:size]
            data = base64_text(piece) if self._decoder is None else piece.decode()
            # A control character takes six bytes of a frame.
            if len(dumps(data)) <= room or most < 2 * LEAST_CHUNK_BYTES:
                return data, size
            most //= 2

    def _whole_characters(self, most: int) -> int:
        held = self._held
        size = min(most, len(held))
        if self._decoder is not None and size < len(held):
            while held[size] in _INSIDE_A_CHARACTER:
                size -= 1
        return size
