"""The chunks of a streamed result, on the job's side: counted, checked, and kept if need be (§8.4).

Whether a job's chunks go on the wire is decided when it is accepted, by whether the session that
submitted it had negotiated `result_chunk`; for a child, by its root's. If not, chunks are kept, and
the whole is the inline result. A job never has both: a session without the feature that comes to
the job later is sent the terminal as it is, with the id of chunks that it is not sent.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from typing import TYPE_CHECKING, Final

from arcp_trio.runtime.limits import limit_hit
from arcp_trio.store.interface import JournalTrimmed
from arcp_trio.wire.envelope import payload_of
from arcp_trio.wire.errors import ArcpError, InternalError, clip, error_from_payload
from arcp_trio.wire.event_bodies import ResultChunkBody
from arcp_trio.wire.events import InvalidEvent, read_body
from arcp_trio.wire.features import Feature
from arcp_trio.wire.json import JsonLike, JsonValue, dumps, loads_object

if TYPE_CHECKING:
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.job import Job

PAGE_ENTRIES: Final = 1_024
PAGE_BYTES: Final = 4 * 1024 * 1024
"""How much of a journal is read in one go, to put a result together again."""


class ResultChunks:
    """The chunks that a job has streamed so far: their count and size, and which may come next."""

    def __init__(self, result_id: str) -> None:
        self.id = result_id
        self.size = 0
        """Decoded bytes."""
        self.next_chunk = 0
        self.summary: str | None = None
        """What the agent says of the result; the terminal has it beside the id."""
        self._finished = False
        self._failure: ArcpError | None = None
        """Why the job can no longer succeed, even if its agent goes on."""
        self._all_text = True
        self._kept: list[bytes] = []

    def take(self, job: Job, chunk: ResultChunkBody) -> None:
        """Count the next chunk, whose fields are of the right types; keep it if it is not sent.

        Raises:
            InvalidEvent: it is not the next chunk.
            InternalError: the result would be too large (§14), which is the end of the stream.
        """
        if self._failure is not None:
            raise error_from_payload(self._failure.payload())
        if chunk.result_id != self.id:
            raise InvalidEvent(f"result_chunk: expected {clip(repr(self.id))} @ $.result_id")
        if self._finished:
            raise InvalidEvent("result_chunk: expected nothing after the last chunk @ $")
        if chunk.chunk_seq != self.next_chunk:
            raise InvalidEvent(f"result_chunk: expected {self.next_chunk} @ $.chunk_seq")
        data = decoded_chunk(chunk)
        self._count(job, len(data))
        self.next_chunk += 1
        self._finished = not chunk.more
        self._all_text = self._all_text and chunk.encoding == "utf8"
        if not job.spec.sends_chunks:
            self._kept.append(data)

    def _count(self, job: Job, size: int) -> None:
        limits, metrics = job.core.limits, job.core.metrics
        if self.size + size > limits.result_bytes:
            raise self.fail(metrics.refused(limit_hit("result_bytes", limits.result_bytes)))
        if not job.spec.sends_chunks and self.size + size > job.most_payload_bytes:
            helps = "the client that has submitted the job takes the result in one message only"
            inline = limit_hit("frame_bytes_out", limits.frame_bytes_out, what_helps=helps)
            raise self.fail(metrics.refused(inline))
        self.size += size

    @property
    def finished(self) -> bool:
        """Whether its last chunk is there."""
        return self._finished

    def begin_anew(self, result_id: str) -> None:
        """Begin another result, in place of this one."""
        self.id, self.size, self.next_chunk = result_id, 0, 0
        self._finished, self._all_text = False, True
        self._kept.clear()

    def summarize(self, summary: str, most_bytes: int) -> None:
        """Have the terminal say this of the result.

        Raises:
            ValueError: it is too long for a frame, or has half of a surrogate pair.
        """
        if len(dumps(summary)) > most_bytes:
            raise ValueError(f"the summary is longer than {most_bytes:,} bytes")
        self.summary = summary

    def fail(self, error: ArcpError) -> ArcpError:
        """Have the job end with `error`, even if its agent ignores it; return a copy to raise."""
        self._failure = error
        return error_from_payload(error.payload())

    def fault(self, returned: JsonLike) -> ArcpError | None:
        """Return why the job does not succeed although its agent has returned; None if it does."""
        if self._failure is None and returned is not None:
            return InternalError("the agent returned a value beside its streamed result")
        if self._failure is None and not self._finished:
            return InternalError("the agent did not finish its streamed result")
        return self._failure

    def inline(self) -> str:
        """Return what was kept as a JSON string: the text, or base64 unless all of it was text."""
        whole = b"".join(self._kept)
        return whole.decode() if self._all_text else base64_text(whole)

    async def whole(self, job: Job) -> str | bytes:
        """Return the result of a job that has ended: text, or bytes unless all of it was text.

        Raises:
            InternalError: the result is no longer stored.
        """
        data = await self.data(job)
        return data.decode() if self._all_text else data

    async def data(self, job: Job) -> bytes:
        """Return what the chunks so far have.

        Raises:
            InternalError: it is no longer stored.
        """
        if not job.spec.sends_chunks:
            return b"".join(self._kept)
        count = self.next_chunk
        chunks = await stored_chunks(job.core, job.principal, job.id, self.id)
        return b"".join(map(decoded_chunk, chunks[:count]))


async def recall_result(job: Job, result: ResultChunks) -> bytes:
    """Have a job's result be the one that earlier runs have left; return what that has so far.

    Raises:
        InternalError: it is no longer stored.
    """
    left = job.memory.result
    (head,) = [each for each in left if "summary" in each]
    summary = head["summary"]
    result.id, result.summary = str(head["result_id"]), None if summary is None else str(summary)
    if job.spec.sends_chunks:
        chunks = await stored_chunks(job.core, job.principal, job.id, result.id)
    else:
        mine = [each for each in left if each["result_id"] == result.id]
        chunks = [chunk_of(each) for each in mine if "data" in each]
    for chunk in chunks:
        result.take(job, chunk)
    return b"".join(map(decoded_chunk, chunks))


async def stored_chunks(
    core: Core, principal: str, job_id: str, result_id: str
) -> list[ResultChunkBody]:
    """Read the chunks of a result that are stored back from the journal of its job.

    Raises:
        InternalError: the result is no longer stored.
    """
    reads = core.store.for_principal(principal)
    await core.store.flushed()
    chunks: list[ResultChunkBody] = []
    at, ended = 0, False
    while not ended:
        try:
            page = await reads.owed({job_id: at}, PAGE_ENTRIES, PAGE_BYTES)
        except JournalTrimmed:
            most = min(core.limits.journal_bytes, core.store.journal_bytes)
            raise InternalError(
                "the beginning of the streamed result is no longer stored: with what else the job"
                f" has emitted, it is longer than journal_bytes, {most:,} bytes"
            ) from None
        at, ended = at + len(page), not page or page[-1][1].terminal
        tails = [entry.tail for _, entry in page if entry.feature == Feature.RESULT_CHUNK]
        # A result that was begun anew has left the chunks of the one before.
        found = (chunk_of(loads_object(payload_of(tail))["body"]) for tail in tails)
        chunks += [each for each in found if each.result_id == result_id]
    return chunks


def chunk_of(body: JsonValue) -> ResultChunkBody:
    """Return a chunk that is stored."""
    chunk = read_body("result_chunk", body)
    assert isinstance(chunk, ResultChunkBody)
    return chunk


def decoded_chunk(chunk: ResultChunkBody) -> bytes:
    """Return the data of a chunk."""
    if chunk.encoding == "utf8":
        return chunk.data.encode()
    try:
        return a2b_base64(chunk.data, strict_mode=True)
    except ValueError:
        raise InvalidEvent("result_chunk: expected base64 @ $.data") from None


def base64_text(data: bytes | bytearray) -> str:
    """Return data as a JSON string can have it."""
    return b2a_base64(data, newline=False).decode()
