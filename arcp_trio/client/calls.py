"""Requests that are not answered yet, and which of them a frame answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import attrs

from arcp_trio.client.delivery import Answer
from arcp_trio.wire import envelope
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.messages import Accepted

SUBMIT: Final = "job.submit"
SUBSCRIBE: Final = "job.subscribe"
CANCEL: Final = "job.cancel"
LIST: Final = "session.list_jobs"

_IN_ORDER: Final = frozenset({SUBMIT, SUBSCRIBE, LIST})
"""What a runtime that names no request answers in the order of asking."""


@attrs.define(eq=False)
class Call:
    """One request. Sent again on another connection it has another id, and stays one request."""

    kind: str
    payload: bytes
    job_id: str | None = None
    trace_id: str | None = None
    answer: Answer[Any] = attrs.field(factory=Answer[Any])
    ids: list[str] = attrs.field(factory=list[str])
    """Under which it was sent, in order."""

    @property
    def repeated(self) -> bool:
        """Whether it was sent more than once."""
        return len(self.ids) > 1


class Calls:
    """A session's, in the order they were made."""

    def __init__(self) -> None:
        self._calls: dict[Call, None] = {}
        self._by_id: dict[str, Call] = {}

    def __iter__(self) -> Iterator[Call]:
        return iter(list(self._calls))

    def add(self, call: Call) -> None:
        """Expect an answer; before the request is sent, so that none is missed."""
        self._calls[call] = None

    def remove(self, call: Call) -> None:
        """Expect none any more: it has come, or nobody waits for it."""
        self._calls.pop(call, None)
        for request_id in call.ids:
            self._by_id.pop(request_id, None)

    def frame(self, call: Call, session_id: str) -> bytes:
        """Make the frame to send, under a fresh id."""
        request_id = new_id()
        call.ids.append(request_id)
        self._by_id[request_id] = call
        return envelope.encode(
            call.kind,
            call.payload,
            session_id=session_id,
            id=request_id,
            trace_id=call.trace_id,
            job_id=call.job_id,
        )

    def named(self, request_id: str) -> Call | None:
        """Find the one that was sent under this id."""
        return self._by_id.get(request_id)

    def accepted(self, frame: envelope.Envelope, body: Accepted) -> Call | None:
        """Find the submit that was accepted: by id, by trace if that tells, else by order.

        A child's acceptance answers nobody: its parent asked for it.
        """
        if body.parent_job_id is not None or body.delegate_id is not None:
            return None
        if body.request_id is not None:
            return self.named(body.request_id)
        trace_id = frame.trace_id or body.trace_id
        same = [c for c in self._of(SUBMIT) if c.trace_id is not None and c.trace_id == trace_id]
        return same[0] if len(same) == 1 else self.oldest(SUBMIT)

    def answered(self, kind: str, request_id: str | None, job_id: str | None = None) -> Call | None:
        """Find the one of a kind that an answer is for."""
        if request_id is not None:
            return self.named(request_id)
        if job_id is not None:
            return self.about(kind, job_id)
        return self.oldest(kind)

    def about(self, kind: str, job_id: str) -> Call | None:
        """Find the oldest of a kind that names this job."""
        return next((call for call in self._of(kind) if call.job_id == job_id), None)

    def oldest(self, *kinds: str) -> Call | None:
        """Find the oldest of these kinds."""
        return next((call for call in self._sent() if call.kind in kinds), None)

    def refused(self, request_id: str | None, job_id: str | None, *, in_order: bool) -> Call | None:
        """Find the one that a refusal is for: by id, by its job, else the oldest if so answered."""
        if request_id is not None:
            return self.named(request_id)
        about = None
        if job_id is not None:
            about = self.about(CANCEL, job_id) or self.about(SUBSCRIBE, job_id)
        return self.oldest(*_IN_ORDER) if about is None and in_order else about

    def largest(self) -> Call | None:
        """Find the one with the most bytes."""
        return max(self._sent(), key=lambda call: len(call.payload), default=None)

    def _of(self, kind: str) -> Iterator[Call]:
        return (call for call in self._sent() if call.kind == kind)

    def _sent(self) -> Iterator[Call]:
        return (call for call in self._calls if call.ids)
