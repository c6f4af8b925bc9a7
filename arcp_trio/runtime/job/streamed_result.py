"""What a job has streamed of its result: chunks as events, then a terminal that names them (§8.4).

Whether a job's chunks go on the wire is decided when it is accepted, by what the session that
submitted it had negotiated (a child's is its root's). If that was not `result_chunk`, they are
kept, and the whole is the inline result. No job has both: a session without the feature that
comes to the job later is sent the terminal as it is, with the id of chunks that it is not sent.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from collections.abc import Mapping
from typing import TYPE_CHECKING

from arcp_trio.runtime.limits import limit_hit
from arcp_trio.store.interface import JournalTrimmed
from arcp_trio.wire.errors import ArcpError, InternalError, clip, error_from_payload
from arcp_trio.wire.events import InvalidEvent
from arcp_trio.wire.features import Feature
from arcp_trio.wire.json import Json, JsonObject, loads_object

if TYPE_CHECKING:
    from arcp_trio.runtime.job.job import Job

PAGE_ENTRIES, PAGE_BYTES = 1_024, 4 * 1024 * 1024
"""What is read of a journal in one go, to put a result together again."""


class StreamedResult:
    """What a job has streamed so far, and what may come next."""

    def __init__(self, result_id: str) -> None:
        self.id = result_id
        self.size = 0
        """Decoded bytes."""
        self.next_chunk = 0
        self.finished = False
        self.failure: ArcpError | None = None
        """Why the job cannot succeed any more, even if its agent goes on."""
        self._all_text = True
        self._kept: list[bytes] = []

    def take(self, job: Job, chunk: Mapping[str, Json]) -> None:
        """Count the next chunk, whose fields are of the right types; keep it if that is due.

        Raises:
            InvalidEvent: it is not the next chunk.
            InternalError: it would be too much (§14), which is the end of the stream.
        """
        if self.failure is not None:
            raise error_from_payload(self.failure.payload())
        if chunk["result_id"] != self.id:
            raise InvalidEvent(f"result_chunk: expected {clip(repr(self.id))} @ $.result_id")
        if self.finished:
            raise InvalidEvent("result_chunk: expected nothing behind the last chunk @ $")
        if chunk["chunk_seq"] != self.next_chunk:
            raise InvalidEvent(f"result_chunk: expected {self.next_chunk} @ $.chunk_seq")
        data = _decoded(chunk)
        self._count(job, len(data))
        self.next_chunk += 1
        self.finished = not chunk["more"]
        self._all_text = self._all_text and chunk["encoding"] == "utf8"
        if not job.streams:
            self._kept.append(data)

    def _count(self, job: Job, size: int) -> None:
        limits = job.core.limits
        if self.size + size > limits.result_bytes:
            raise self._refuse(job, limit_hit("result_bytes", limits.result_bytes))
        if not job.streams and self.size + size > job.most_bytes:
            raise self._refuse(job, limit_hit("frame_bytes_out", limits.frame_bytes_out))
        self.size += size

    def _refuse(self, job: Job, error: ArcpError) -> ArcpError:
        return self.fail(job.core.metrics.refused(error))

    def fail(self, error: ArcpError) -> ArcpError:
        """Have the job end with this error; return a copy that its agent may do with as it likes.

        A success would be a lie, also if the agent overlooks the error.
        """
        self.failure = error
        return error_from_payload(error.payload())

    def fault(self, returned: Json) -> ArcpError | None:
        """Why the job did not succeed, although its agent has returned."""
        if self.failure is None and returned is not None:
            return InternalError("the agent returned a value beside its streamed result")
        if self.failure is None and not self.finished:
            return InternalError("the agent did not finish its streamed result")
        return self.failure

    def inline(self) -> str:
        """What was kept, as JSON can have it: text, or base64 unless all of it was text."""
        whole = b"".join(self._kept)
        return whole.decode() if self._all_text else base64_text(whole)

    async def whole(self, job: Job) -> str | bytes:
        """The result of a job that has ended: text, or bytes unless all of it was text.

        Raises:
            InternalError: it is not stored any more.
        """
        data = b"".join([_decoded(c) for c in await _stored(job)] if job.streams else self._kept)
        return data.decode() if self._all_text else data


async def _stored(job: Job) -> list[JsonObject]:
    """The chunks that are in a job's journal."""
    store = job.core.store
    await store.flushed()
    chunks: list[JsonObject] = []
    at = 0
    while at < job.journal.length:
        try:
            page = await store.owed({job.id: at}, PAGE_ENTRIES, PAGE_BYTES)
        except JournalTrimmed:
            raise InternalError("the streamed result is not stored any more") from None
        at += len(page)
        tails = [entry.tail for _, entry in page if entry.feature == Feature.RESULT_CHUNK]
        chunks += [loads_object(b"{" + tail[1:])["payload"]["body"] for tail in tails]
    return chunks


def _decoded(chunk: Mapping[str, Json]) -> bytes:
    data: str = chunk["data"]
    if chunk["encoding"] == "utf8":
        return data.encode()
    try:
        return a2b_base64(data, strict_mode=True)
    except ValueError:
        raise InvalidEvent("result_chunk: expected base64 @ $.data") from None


def base64_text(data: bytes | bytearray) -> str:
    """Data as a string of JSON can have it."""
    return b2a_base64(data, newline=False).decode()
