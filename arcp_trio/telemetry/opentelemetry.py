"""Traces for OpenTelemetry; needs OpenTelemetry's API, the extra `otel`.

    runtime = arcp_trio.Runtime(auth=…, tracer=OpenTelemetry())

The program configures where the spans go, through OpenTelemetry's SDK.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final

import attrs

from arcp_trio.extras import how_to_install
from arcp_trio.runtime.tracing import Attributes, Span
from arcp_trio.version import __version__
from arcp_trio.wire.errors import JobCancelled

try:
    from opentelemetry import trace as otel
    from opentelemetry.context import Context
except ImportError as error:
    raise ImportError(
        f"this tracer needs OpenTelemetry: {how_to_install('otel')}", name="opentelemetry"
    ) from error

_TRACE_ID_DIGITS: Final = 32


class OpenTelemetry:
    """A tracer for `Runtime(tracer=…)`.

    A job's span is a child of the span in its client's `traceparent`, or is in the trace that the
    client named; without either it begins a trace. Inside an agent it is the current span, so that
    spans of the agent and its libraries are its children.
    """

    def __init__(self, tracer_provider: otel.TracerProvider | None = None) -> None:
        """Use the program's global provider by default."""
        self._tracer = otel.get_tracer("arcp_trio", __version__, tracer_provider)

    def start(
        self, name: str, attributes: Attributes, *, trace: str | None, parent: Span | None
    ) -> Span:
        """Begin a job's span."""
        kind = otel.SpanKind.SERVER
        above = Context()
        if isinstance(parent, _OtelSpan):
            kind, above = otel.SpanKind.INTERNAL, _under(parent.span)
        elif trace is not None:
            above = _under(otel.NonRecordingSpan(_remote(trace)))
        return _OtelSpan(self._tracer, self._tracer.start_span(name, above, kind, attributes))


@attrs.frozen
class _OtelSpan:
    _tracer: otel.Tracer
    span: otel.Span

    @property
    def trace_id(self) -> str | None:
        context = self.span.get_span_context()
        return otel.format_trace_id(context.trace_id) if context.is_valid else None

    def start(self, name: str, attributes: Attributes) -> Span:
        # The agent may have made a span of its own current. The current span may also be of another
        # job's trace, in a task that works for both.
        above = otel.get_current_span()
        if above.get_span_context().trace_id != self.span.get_span_context().trace_id:
            above = self.span
        span = self._tracer.start_span(name, _under(above), attributes=attributes)
        return _OtelSpan(self._tracer, span)

    def current(self) -> AbstractContextManager[object]:
        return otel.use_span(self.span)

    def end(self, attributes: Attributes, *, code: str | None = None) -> None:
        self.span.set_attributes(attributes)
        if code is not None:
            self.span.set_attribute("arcp.error.code", code)
            if code != JobCancelled.code:  # a cancelled job is not an error
                self.span.set_status(otel.StatusCode.ERROR, code)
        self.span.end()


def _under(span: otel.Span) -> Context:
    return otel.set_span_in_context(span, Context())


def _remote(sent: str) -> otel.SpanContext:
    """Return the span that a client named, by a `traceparent` or by a trace id alone."""
    if len(sent) == _TRACE_ID_DIGITS:
        # OpenTelemetry puts a span into a trace only through a parent. This parent does not exist,
        # and is the same for all jobs of the trace.
        trace_id, span_id, flags = sent, sent[16:], "01"
    else:
        _, trace_id, span_id, flags, *_ = sent.split("-")
    return otel.SpanContext(
        trace_id=int(trace_id, 16),
        span_id=int(span_id, 16) or 1,
        is_remote=True,
        trace_flags=otel.TraceFlags(int(flags, 16)),
    )
