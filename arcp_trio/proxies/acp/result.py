"""What an agent says, as the streamed result of its job."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from arcp_trio.runtime.job.fitting import fitted_text, room
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.json import dumps

_AROUND: Final = 2 * 1024
"""Bytes of the frame with the result, beside the result."""

if TYPE_CHECKING:
    from arcp_trio.runtime.job.context import JobContext


class SpokenResult:
    """The chunks of a job's result, each of which stands between the other events.

    A result that has to fit into one frame is shortened, and the job's log says so.
    """

    def __init__(self, job: JobContext) -> None:
        limits = job.limits
        self._job = job
        self._most_bytes: Final = min(limits.chunk_bytes, room(limits))
        self._left: float = math.inf if job.sends_chunks else limits.frame_bytes_out - _AROUND
        """How many bytes the result may still have, as JSON."""
        self._id: Final = new_id("res_")
        self._count = 0

    async def add(self, text: str) -> None:
        """Add to the result."""
        for piece in pieces(text, self._most_bytes):
            if self._left <= 0:
                return
            self._left -= len(dumps(piece))
            if self._left <= 0:
                await self._job.log("the rest of the result does not fit into a frame", "warn")
                return
            await self._chunk(piece, more=True)

    async def end(self) -> str | None:
        """Finish the result, and return what the agent's function returns."""
        if not self._count:
            return ""
        await self._chunk("", more=False)
        return None

    async def _chunk(self, data: str, *, more: bool) -> None:
        number, self._count = self._count, self._count + 1
        body = {
            "result_id": self._id,
            "chunk_seq": number,
            "data": data,
            "encoding": "utf8",
            "more": more,
        }
        await self._job.emit("result_chunk", body)


def pieces(text: str, most_bytes: int) -> Iterator[str]:
    """Yield a text in pieces of at most this size as JSON, and of a character at least."""
    at = 0
    while at < len(text):
        piece = fitted_text(text[at : at + most_bytes], most_bytes) or text[at]
        yield piece
        at += len(piece)
