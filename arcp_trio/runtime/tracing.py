"""What a tracer sees: a span per job, from its acceptance to its end, and one per tool call.

Events have no spans. Without a tracer nothing is traced, at hardly any cost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final, Protocol, TypeAlias, TypeVar

import attrs

_T = TypeVar("_T")

log = logging.getLogger(__name__)

Attributes: TypeAlias = Mapping[str, str | int | float | bool | Sequence[str]]


class Span(Protocol):
    """A piece of work that is being traced."""

    @property
    def trace_id(self) -> str | None:
        """Its W3C trace id, 32 hex digits; None if the tracer gave it no id."""
        ...

    def start(self, name: str, attributes: Attributes) -> Span:
        """Begin a span below this one: below the current span, if that is itself below this one."""
        ...

    def current(self) -> AbstractContextManager[object]:
        """Make this the current span of the task, inside the block.

        The span is not told of an exception, whose text may hold secrets (§12).
        """
        ...

    def end(self, attributes: Attributes, *, code: str | None = None) -> None:
        """Finish the span; `code` is that of the error that ended the work, if one did (§12)."""
        ...


class Tracer(Protocol):
    """Begins spans. `arcp_trio.telemetry.opentelemetry.OpenTelemetry` is one."""

    def start(
        self, name: str, attributes: Attributes, *, trace: str | None, parent: Span | None
    ) -> Span:
        """Begin a job's span; the current span is not its parent.

        Args:
            trace: what the client said of the trace it belongs to: a trace id, or a whole W3C
                `traceparent`.
            parent: the span of the job that delegated to it.
        """
        ...


@attrs.frozen
class _NoSpan:
    trace_id: str | None = None

    def start(self, name: str, attributes: Attributes) -> Span:  # noqa: ARG002 - as it is called
        return self

    def current(self) -> AbstractContextManager[object]:
        return nullcontext()

    def end(self, attributes: Attributes, *, code: str | None = None) -> None:
        pass


NO_SPAN: Final[Span] = _NoSpan()


class NoTracer:
    """Traces nothing."""

    def start(
        self,
        name: str,  # noqa: ARG002 - as it is called
        attributes: Attributes,  # noqa: ARG002
        *,
        trace: str | None,  # noqa: ARG002
        parent: Span | None,  # noqa: ARG002
    ) -> Span:
        """Begin nothing."""
        return NO_SPAN


def _fenced(act: Callable[[], _T], otherwise: _T) -> _T:
    """Call into a tracer; its failure is logged and costs a span, never a job."""
    try:
        return act()
    except Exception:
        log.exception("tracer failed")
        return otherwise


@attrs.frozen
class FencedTracer:
    """Wraps a tracer: its failures are logged and go no further."""

    _tracer: Tracer

    def start(
        self, name: str, attributes: Attributes, *, trace: str | None, parent: Span | None
    ) -> Span:
        """Begin a job's span, if the tracer can."""
        above = parent.span if isinstance(parent, _FencedSpan) else None

        def begin() -> Span:
            return _FencedSpan.of(self._tracer.start(name, attributes, trace=trace, parent=above))

        return _fenced(begin, NO_SPAN)


@attrs.frozen
class _FencedSpan:
    span: Span
    trace_id: str | None

    @classmethod
    def of(cls, span: Span) -> Span:
        return cls(span, span.trace_id)

    def start(self, name: str, attributes: Attributes) -> Span:
        return _fenced(lambda: self.of(self.span.start(name, attributes)), NO_SPAN)

    @contextmanager
    def current(self) -> Generator[None]:
        def enter() -> AbstractContextManager[object]:
            context = self.span.current()
            context.__enter__()
            return context

        nothing: AbstractContextManager[object] = nullcontext()
        entered = _fenced(enter, nothing)
        try:
            yield
        finally:
            # A tracer neither sees nor swallows what the block raises.
            _fenced(lambda: entered.__exit__(None, None, None), None)

    def end(self, attributes: Attributes, *, code: str | None = None) -> None:
        _fenced(lambda: self.span.end(attributes, code=code), None)
