"""What a context hands out: a tool call, a streamed result, a child; under Trio or asyncio."""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from arcp_trio.runtime.job.authors import OUTSIDE
from arcp_trio.runtime.job.awaiting import awaited
from arcp_trio.runtime.job.desk import Desk
from arcp_trio.runtime.job.durable.keys import key_of
from arcp_trio.runtime.job.durable.places import (
    Telling,
    enter_tool,
    here,
    leave,
)
from arcp_trio.wire.event_bodies import ENCODINGS
from arcp_trio.wire.ids import new_id, stable_id
from arcp_trio.wire.json import Json, JsonLike

if TYPE_CHECKING:
    from arcp_trio.runtime.job.awaitable_context import AwaitableContext
    from arcp_trio.runtime.job.link import Link
    from arcp_trio.runtime.job.result_writer import Encoding

MOST_THOUGHT: Final = 1_000
"""Characters of a thought that are told although no sentence has ended."""

_SENTENCE_END: Final = re.compile(r"\S\s*?\n|[.!?…]['\")\]]*\s+|[。！？]+")  # noqa: RUF001


class ToolCall:
    """The block around a tool's call. Set `result`; an exception becomes the call's error."""

    def __init__(self, link: Link, tool: str, args: JsonLike, *, job_id: str | None) -> None:
        """Make the block; with a durable job's id, the call's is the same in each of its runs."""
        self.id = new_id("call_")
        self._job_id = job_id
        self.result: Json = None
        self._link = link
        self._tool = tool
        self._args = args
        self._current: AbstractContextManager[object] = nullcontext()

    async def __aenter__(self) -> Self:
        place = here(self._link.task())
        if self._job_id is not None:
            # The same in each run, so that a later one emits the same events.
            path = place.count(f"tool_call of {self._tool}")
            self.id = stable_id("call_", self._job_id, key_of(path))
        telling = int(place.telling) if self._job_id is not None else int(Telling.ALWAYS)
        try:
            if await self._link.do(Desk.begin_call, self.id, self._tool, self._args, telling):
                await self._link.do(Desk.decision, self.id)
        except BaseException as error:
            self._link.ask(Desk.fail_call, self.id, error)
            raise
        self._current = self._link.span(self.id)
        self._current.__enter__()
        self._outer = enter_tool(self._link.task(), self._tool)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._current.__exit__(None, None, None)
        leave(self._outer)
        if error is not None:
            self._link.ask(Desk.fail_call, self.id, error)
            return
        # No exception is leaving the block.
        await self._link.do(Desk.end_call, self.id, self.result)  # noqa: ASYNC102


class ResultStream:
    """`async with job.stream_result() as out: await out.write("…")`, and then return nothing.

    What is written is sent within milliseconds, together with what follows in that time; a client
    that falls behind gets fewer and larger chunks. What was written stays written, even if the call
    is cancelled while it waits for the store or the client. Several tasks may write: each write
    stays in one piece. An exception that leaves the block leaves the result unfinished, and the job
    can no longer succeed.
    """

    def __init__(self, link: Link, encoding: Encoding) -> None:
        if encoding not in ENCODINGS:
            raise ValueError(f"the encoding must be utf8 or base64, not {encoding!r}")
        self._link = link
        self._encoding: Encoding = encoding
        self._decoder = getincrementaldecoder("utf-8")() if encoding == "utf8" else None
        self._open = False

    async def __aenter__(self) -> Self:
        await self._link.do(Desk.begin_result, self._encoding, self._author())
        self._open = True
        return self

    @awaited
    async def write(self, data: str | bytes | bytearray | memoryview) -> None:
        """Add to the result: text or UTF-8, whose characters several writes may share; or bytes.

        Raises:
            InternalError: the result is larger than `result_bytes`, or the job has ended.
            ValueError: the data is not UTF-8, and nothing of it was added; or the block was left.
        """
        if not self._open:
            raise ValueError("this is not the block of a streamed result")
        await self._link.do(Desk.write_result, self._checked(data), self._author())

    def summarize(self, summary: str) -> None:
        """Say in words what the result is: the message that ends the job has it (§8.4).

        A later summary replaces an earlier one. A client that takes no chunks is not told.

        Raises:
            ValueError: the summary does not fit into a frame, or the block was left.
        """
        if not self._open:
            raise ValueError("this is not the block of a streamed result")
        self._link.ask(Desk.summarize, summary)

    def _author(self) -> str:
        step = here(self._link.task()).step
        return OUTSIDE if step is None else key_of(step.path)

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
            self._link.ask(Desk.leave_result)
        else:
            await self._link.do(Desk.end_result)  # noqa: ASYNC102 - nothing is being cancelled


class ThoughtStream:
    """`async with job.stream_thought() as out: await out.write("…")`, a word or a token at a time.

    An event has as many whole sentences or lines as there are, so that a model that thinks in
    tokens neither fills the job's journal nor has a line for each. The rest is told by `flush`, and
    at the end of the block, however that is left.
    """

    def __init__(self, link: Link, job: AwaitableContext) -> None:
        self._link = link
        self._job = job
        self._text = ""

    async def __aenter__(self) -> Self:
        return self

    @awaited
    async def write(self, text: str) -> None:
        """Go on thinking."""
        self._text += text
        ends = [end.end() for end in _SENTENCE_END.finditer(self._text)]
        if ends:
            await self._tell(ends[-1])
        elif len(self._text) > MOST_THOUGHT:
            await self._tell(len(self._text))

    @awaited
    async def flush(self) -> None:
        """Tell what was written and is not told yet, unless it is blank."""
        if self._text.strip():
            await self._tell(len(self._text))
        else:
            self._text = ""

    async def _tell(self, size: int) -> None:
        thought, self._text = self._text[:size], self._text[size:]
        await self._job.thought(thought)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.flush()  # noqa: ASYNC102 - a task that is cancelled tells no more


class Child:
    """A delegated job, as the agent that delegated has it."""

    def __init__(self, link: Link, job_id: str) -> None:
        self._link = link
        self._id = job_id

    @property
    def id(self) -> str:
        """The child job's id."""
        return self._id

    @awaited
    async def result(self) -> Json:
        """Wait for the child's end and return what its agent returned, or streamed.

        A streamed result comes whole: as text if it was streamed as utf8, else as bytes.

        Raises:
            JobFailed, JobCancelled, JobTimedOut: the child did not succeed.
            InternalError: what it streamed is no longer stored.
        """
        return await self._link.do(Desk.child_result, self._id)
