"""Puts a streamed result together from its chunks (§8.4), and refuses what does not fit."""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import Final

from arcp_trio.client.errors import BrokenResult
from arcp_trio.wire.errors import clip
from arcp_trio.wire.event_bodies import ResultChunkBody
from arcp_trio.wire.events import InvalidEvent, read_body
from arcp_trio.wire.json import JsonValue

MAX_RESULT_BYTES: Final = 256 * 1024 * 1024
"""The largest streamed result, unless the program sets another bound."""


class Assembly:
    """The chunks of one job's result so far. After a fault the result stays broken."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parts: list[str | bytes] = []
        self._bytes = 0
        self._result_id: str | None = None
        self._finished = False
        self._fault: str | None = None

    @property
    def begun(self) -> bool:
        """Whether there were any chunks, valid or not."""
        return self._result_id is not None or self._fault is not None

    def add(self, body: JsonValue) -> None:
        """Add a chunk. A fault is kept for `result`, so that it fails this one job."""
        if self._fault is not None:
            return
        try:
            self._add(body)
        except BrokenResult as error:
            self._fault = str(error)
            self._parts.clear()

    def result(self, result_id: str, size: int | None) -> str | bytes:
        """Return the whole result: text if all of its chunks are text, else bytes.

        Raises:
            BrokenResult: chunks are missing or invalid, or contradict the end of the job.
        """
        if self._fault is not None:
            raise BrokenResult(self._fault)
        if self._result_id is None:
            if size:
                raise BrokenResult("none of the result's chunks came")
            return ""
        if result_id != self._result_id:
            raise BrokenResult(
                f"the chunks were of {clip(self._result_id)}, the result is {clip(result_id)}"
            )
        if not self._finished:
            raise BrokenResult(f"the last chunk is missing after {len(self._parts)}")
        if size is not None and size != self._bytes:
            raise BrokenResult(f"the result has {self._bytes} bytes and should have {size}")
        if all(isinstance(part, str) for part in self._parts):
            return "".join(part for part in self._parts if isinstance(part, str))
        return b"".join(part.encode() if isinstance(part, str) else part for part in self._parts)

    def _begin(self, result_id: str) -> None:
        """Begin a result: a job may begin it anew, under another id."""
        self._result_id, self._bytes, self._finished = result_id, 0, False
        self._parts.clear()

    def _add(self, body: JsonValue) -> None:
        try:
            chunk = read_body("result_chunk", body)
        except InvalidEvent as error:
            raise BrokenResult(f"an invalid chunk: {error}") from None
        assert isinstance(chunk, ResultChunkBody)
        data = _decode(chunk)
        if chunk.result_id != self._result_id and (self._result_id is None or not chunk.chunk_seq):
            self._begin(chunk.result_id)
        if chunk.result_id != self._result_id:
            raise BrokenResult("the job has chunks of two results")
        if chunk.chunk_seq < len(self._parts):
            if self._parts[chunk.chunk_seq] != data:
                raise BrokenResult(f"chunk {chunk.chunk_seq} came twice, and not the same")
            return
        if self._finished:
            raise BrokenResult(f"chunk {chunk.chunk_seq} came after the last one")
        if chunk.chunk_seq > len(self._parts):
            raise BrokenResult(f"chunk {len(self._parts)} is missing")
        self._bytes += len(data.encode() if isinstance(data, str) else data)
        if self._bytes > self._max_bytes:
            raise BrokenResult(f"the result is larger than max_result_bytes, {self._max_bytes}")
        self._parts.append(data)
        self._finished = not chunk.more


def _decode(chunk: ResultChunkBody) -> str | bytes:
    if chunk.encoding == "utf8":
        return chunk.data
    try:
        return b64decode(chunk.data, validate=True)
    except (binascii.Error, ValueError):
        raise BrokenResult(f"chunk {chunk.chunk_seq} is not base64") from None
