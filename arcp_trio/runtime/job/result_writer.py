"""A streamed result on the job's side: what its agent writes is cut into chunks (§8.4)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias

import trio

from arcp_trio.runtime.job.authors import OUTSIDE, Authors
from arcp_trio.runtime.job.durable.keys import is_within, named
from arcp_trio.runtime.job.events import add_event, give_way
from arcp_trio.runtime.job.result_chunks import (
    ResultChunks,
    base64_text,
    recall_result,
)
from arcp_trio.runtime.limits import LEAST_CHUNK_BYTES
from arcp_trio.runtime.wake import Wake
from arcp_trio.wire.errors import ArcpError, InternalError
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.json import JsonLike, dumps

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from arcp_trio.runtime.job.job import Job
    from arcp_trio.wire.json import JsonObject, JsonValue

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

    A later run of a durable job goes on with the chunks that are stored: what it writes again is
    not sent again (see `authors`). If it writes something else, what counts is sent as another
    result, whose id the terminal has.
    """

    def __init__(self, job: Job, chunks: ResultChunks, encoding: Encoding, author: str) -> None:
        self.is_left = False
        """Whether the step has failed in which it was begun, and is called again."""
        self._job = job
        self._author = author
        self._chunks = chunks
        self._encoding = encoding
        self._most = job.core.limits.chunk_bytes
        self._authors = Authors()
        self._unsent = bytearray()
        self._since = 0.0
        """The time since which there is unsent data, or since which it is less than it was."""
        self._idle = True
        """Whether the task that flushes waits for something to be written."""
        self._written = Wake()
        self._flushing = trio.CancelScope()
        self._reading = trio.Lock()
        """Held while what was sent is read back."""
        self._sent_meanwhile = bytearray()

    @classmethod
    async def begin(cls, job: Job, encoding: Encoding, author: str) -> Self:
        """Begin a job's result, or go on with that of an earlier run.

        `author` says in which step that is.

        Raises:
            InternalError: the job has begun one before, or it is no longer stored.
        """
        await give_way(job)
        if job.chunks is not None:
            raise job.chunks.fail(InternalError("a job has only one streamed result"))
        left = job.memory.result
        job.chunks = ResultChunks(new_id("res_"))
        try:
            text = await recall_result(job, job.chunks) if left else b""
        except BaseException:
            job.chunks = None  # the next try begins where this one did
            raise
        job.memory.result = []
        writer = cls(job, job.chunks, encoding, author)
        writer._recall(left, text)
        writer._start()
        return writer

    def _recall(self, left: Sequence[JsonObject], text: bytes) -> None:
        """Go on with what earlier runs have written."""
        mine = [each for each in left if each["result_id"] == self._chunks.id]
        spans = {int(str(each["from"])): _text(each["by"]) for each in mine if "from" in each}
        self._authors.recall(spans, text, self._job.memory.is_done)

    def _start(self) -> None:
        if self._job.spec.sends_chunks:
            work, name = self._keep_flushing, f"chunks of {self._job.id}"
            self._job.jobs.start_beside(self._job, work, name)

    def begin_again(self, encoding: Encoding) -> None:
        """Begin the result again, in the next call of the step that had begun it."""
        self.is_left, self._encoding = False, encoding
        self._idle, self._flushing = True, trio.CancelScope()
        self._start()

    async def write(self, data: bytes, author: str) -> None:
        """Add to the result what its author, a step or the code outside of steps, has to add.

        Raises:
            InternalError: the result is larger than `result_bytes`, or the job has ended.
        """
        job, authors = self._job, self._authors
        if authors.is_unread(author):
            async with self._reading:
                whole = await self._whole()
                if authors.is_unread(author):
                    authors.read_back(author, whole)
        # Of a suspended job, only what steps write counts that still return.
        if not job.suspended or author != OUTSIDE:
            new = authors.new_part(author, data, self._size)
            if authors.dropped or (new and self._chunks.finished):
                await self._begin_anew()
            if new:
                authors.note(author, self._size)
                self._unsent += new
                if self._idle:
                    self._idle, self._since = False, trio.current_time()
                    self._written.set()
        while len(self._unsent) > self._most and not job.suspended:
            await self._send(last=False)
        await give_way(job)

    def summarize(self, summary: str) -> None:
        """Say in words what the result is: the message that ends the job has it.

        Raises:
            ValueError: the summary does not fit into a frame.
        """
        self._chunks.summarize(summary, self._job.most_payload_bytes - CHUNK_ALLOWANCE)
        self._remember_id()

    def leave(self) -> None:
        """Send nothing more: the result stays unfinished, unless `end` follows."""
        self._flushing.cancel(reason="the block is left")

    async def end(self) -> None:
        """Finish the result."""
        self.leave()
        if self._job.suspended:
            return
        for author in self._authors.unrepeated:
            self._authors.drop_rest(author, self._size)
        if self._authors.dropped:
            await self._begin_anew()
        if self._unsent or not self._chunks.finished:
            while await self._send(last=True):
                pass

    # -- steps, and runs

    def finish_step(self, key: str) -> None:
        """Have what a step has written stored before its end is: no later run calls it again.

        Raises:
            ValueError: the step has written a part of a character.
        """
        for author in self._authors.unrepeated:
            if is_within(author, key):
                self._authors.drop_rest(author, self._size)
        size = len(self._unsent)
        if self._whole_characters(size) < size and is_within(self._authors.last or OUTSIDE, key):
            raise ValueError(f"step {named(key)} ends inside of a character of the result")
        if self._job.memory.durable:
            self._flush()
            self._remember_authors(self._chunks.size)

    def fail_step(self, key: str) -> None:
        """Expect a step whose function is called again to write again what it has written."""
        self.is_left = self.is_left or is_within(self._author, key)
        for author in self._authors.all:
            if is_within(author, key) and not self._job.memory.is_done(author):
                self._authors.begin_again(author)

    async def _begin_anew(self) -> None:
        """Send what counts of the result as another one, unless that is done meanwhile."""
        async with self._reading:
            whole = await self._whole()
            if not self._authors.dropped and not self._chunks.finished:
                return
            who = self._authors.dropped
            self._unsent[:] = self._authors.without_dropped(whole)
            if self._job.spec.sends_chunks:
                why = _why_anew(who, len(whole) - len(self._unsent))
                add_event(self._job, "log", {"level": "warn", "message": why})
            self._chunks.begin_anew(new_id("res_"))
            # In one step: what is stored is the one result or the other.
            self._flush()
            self._sent_meanwhile.clear()

    async def _whole(self) -> bytes:
        """Return all that was written, also what is written while the rest is read back."""
        self._sent_meanwhile.clear()
        sent = await self._chunks.data(self._job)
        return sent + self._sent_meanwhile + self._unsent

    # -- sending

    @property
    def _size(self) -> int:
        return self._chunks.size + len(self._unsent)

    async def _keep_flushing(self) -> None:
        """Send what has waited for `FLUSH_SECONDS`, unless the client is behind."""
        # The agent meets the same error at its next write, or at the end of the block.
        with self._flushing, suppress(ArcpError):
            while not self._job.suspended:
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
        more = self._emit(last=last)
        await give_way(self._job, at_once=True)
        return more

    def _flush(self) -> None:
        """Emit all whole characters in one step."""
        while self._whole_characters(len(self._unsent)):
            self._emit(last=False)

    def _emit(self, *, last: bool) -> bool:
        data, size = self._next_data(last=last)
        more = not last or size < len(self._unsent)
        body: dict[str, JsonLike] = {
            "result_id": self._chunks.id,
            "chunk_seq": self._chunks.next_chunk,
            "data": data,
            "encoding": self._encoding,
            "more": more,
        }
        self._remember(body, self._chunks.size + size)
        # A job that is suspended emits it only because a step has returned.
        add_event(self._job, "result_chunk", body, to_remember=True)
        if self._reading.locked():
            self._sent_meanwhile += self._unsent[:size]
        del self._unsent[:size]
        self._since = trio.current_time()
        return more

    def _remember(self, chunk: dict[str, JsonLike], size: int) -> None:
        """Store what a later run has to know of a chunk, in the same group as the chunk.

        Its authors are stored if they change in it, and the chunk itself if it is not sent.
        """
        memory, index = self._job.memory, self._job.journal.length
        if chunk["chunk_seq"] == 0:
            self._remember_id()
        self._remember_authors(size)
        if not self._job.spec.sends_chunks:
            memory.keep_result(index, chunk, "chunk", self._chunks.next_chunk)

    def _remember_id(self) -> None:
        known: JsonObject = {"result_id": self._chunks.id, "summary": self._chunks.summary}
        self._job.memory.keep_result(self._job.journal.length, known)

    def _remember_authors(self, below: int) -> None:
        for start, author in self._authors.take_unsaved(below).items():
            span: JsonObject = {"result_id": self._chunks.id, "from": start, "by": author}
            self._job.memory.keep_result(self._job.journal.length, span, "from", start)

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


def _why_anew(who: Collection[str | None], lost: int) -> str:
    """Say why a result begins anew, of which `lost` bytes no longer count."""
    if not lost:
        return "the result begins anew: it had ended, and more was written"
    steps = ", ".join(sorted(named(each) for each in who if each))
    whom = f"step {steps} has" if steps else "the agent has"
    return f"the result begins anew, without {lost:,} bytes that {whom} not written again"


def _text(value: JsonValue) -> str | None:
    return None if value is None else str(value)
