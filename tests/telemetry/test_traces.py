"""Traces: a span per job and per tool call, in the client's trace (§11)."""

from __future__ import annotations

import pytest
import trio
from opentelemetry import trace as otel
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode
from trio.testing import MockClock

from arcp_trio import ArcpError, JobContext
from arcp_trio.telemetry.opentelemetry import OpenTelemetry
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.timestamps import rfc3339
from tests.telemetry.spans import LEASE, SECRET, SENT, SPAN, TRACE, Spans, _attributes, run, traced


def trace_of(span: ReadableSpan) -> str:
    """Return the id of a span's trace."""
    return otel.format_trace_id(span.context.trace_id)


def under(span: ReadableSpan, above: ReadableSpan) -> bool:
    """Return whether a span is the child of another, in the same trace."""
    return (
        span.parent is not None
        and span.parent.span_id == above.context.span_id
        and span.context.trace_id == above.context.trace_id
    )


# -- which trace


@pytest.mark.spec("11-1")
async def test_a_job_is_under_the_span_its_client_named(
    spans: Spans, autojump_clock: MockClock
) -> None:
    """A job's span is a child of the span in the client's traceparent, and ends with the job."""
    async with traced(OpenTelemetry(spans.provider)) as (_, peer):
        job = await run(peer, "caller", trace=SENT)
    span = spans.of("job caller")
    assert trace_of(span) == TRACE == job["trace_id"]
    assert span.parent is not None
    assert otel.format_span_id(span.parent.span_id) == SPAN
    assert span.parent.is_remote
    assert _attributes(span) == {
        "arcp.job.id": job["job_id"],
        "arcp.agent.name": "caller",
        "arcp.agent.version": "2.1.0",
        "arcp.job.outcome": "success",
        "arcp.budget.remaining": ("USD:5",),
    }
    assert span.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize("sent", [TRACE, f"00-{TRACE}-{'0' * 16}-01", "0" * 16 + "1" * 16])
async def test_a_trace_may_be_named_without_a_span(
    spans: Spans, sent: str, autojump_clock: MockClock
) -> None:
    """A job's span is in the trace whose id the client sent."""
    trace = sent if "-" not in sent else TRACE
    async with traced(OpenTelemetry(spans.provider)) as (_, peer):
        job = await run(peer, "echo", trace=sent)
    assert trace_of(spans.of("job echo")) == trace == job["trace_id"]


@pytest.mark.spec("11-3")
async def test_a_span_says_until_when_and_for_how_much(
    spans: Spans, autojump_clock: MockClock
) -> None:
    """A job's span has the lease's expiry and what is left of its budget."""
    async with traced(OpenTelemetry(spans.provider)) as (runtime, peer):

        @runtime.agent("spender")
        async def spender(job: JobContext) -> None:
            await job.metric("cost.search", 1.5, unit="USD")

        expires_at = rfc3339(runtime.clock.now() + 60)
        await run(peer, "spender", lease_constraints={"expires_at": expires_at})
    its = _attributes(spans.of("job spender"))
    assert its["arcp.lease.expires_at"] == expires_at
    assert its["arcp.budget.remaining"] == ("USD:3.5",)


async def test_a_job_without_a_trace_begins_one(spans: Spans, autojump_clock: MockClock) -> None:
    """Without a client's trace, the job's trace id is that of its span."""
    async with traced(OpenTelemetry(spans.provider)) as (_, peer):
        first, second = [await run(peer, "caller") for _ in range(2)]
    for job in (first, second):
        span = spans.of("job caller", **{"job.id": job["job_id"]})
        assert trace_of(span) == job["trace_id"]
        assert span.parent is None
    assert first["trace_id"] != second["trace_id"]


async def test_what_is_not_sampled_keeps_its_trace(spans: Spans, autojump_clock: MockClock) -> None:
    """A client's decision not to record is respected, and its trace id passed on."""
    async with traced(OpenTelemetry(spans.provider)) as (_, peer):
        job = await run(peer, "caller", trace=SENT[:-2] + "00")
    assert job["trace_id"] == TRACE
    assert spans.all() == []


# -- what stands under what


@pytest.mark.spec("11-2")
async def test_what_an_agent_does_stands_under_its_job(
    spans: Spans, autojump_clock: MockClock
) -> None:
    """A job's span is current in its agent's tasks, and a tool call's inside the call."""
    mine = spans.provider.get_tracer("mine")

    async with traced(OpenTelemetry(spans.provider)) as (runtime, peer):

        @runtime.agent("busy")
        async def busy(job: JobContext) -> None:
            async def aside() -> None:
                with mine.start_as_current_span("aside"):
                    await trio.sleep(1)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(aside)
                with mine.start_as_current_span("step"):
                    async with job.tool_call("good.one"):
                        with mine.start_as_current_span("request"):
                            await trio.sleep(1)
            with mine.start_as_current_span("behind"):
                pass

        await run(peer, "busy", trace=SENT)
    job, call, step = spans.of("job busy"), spans.of("tool good.one"), spans.of("step")
    assert under(spans.of("aside"), job)
    assert under(step, job)
    assert under(call, step)
    assert under(spans.of("request"), call)
    assert under(spans.of("behind"), job)
    assert not call.status.description


async def test_a_tool_call_of_a_task_without_context_is_its_jobs(
    spans: Spans, autojump_clock: MockClock
) -> None:
    """A tool call in a task that another job's agent started is part of its own job's trace."""
    send, receive = trio.open_memory_channel[JobContext](2)
    done = trio.Event()

    async def call_for_others() -> None:
        for _ in range(2):
            job = await receive.receive()
            async with job.tool_call("good.shared"):
                pass
        done.set()

    async with traced(OpenTelemetry(spans.provider)) as (runtime, peer):

        @runtime.agent("host")
        async def host(job: JobContext) -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(call_for_others)
                await send.send(job)
                await done.wait()

        @runtime.agent("guest")
        async def guest(job: JobContext) -> None:
            await send.send(job)
            await done.wait()

        submit = {"agent": "host", "lease_request": LEASE}
        request = await peer.send("job.submit", submit)
        first = await peer.answer("job.accepted", request)
        await run(peer, "guest")
        await peer.until_terminal(first["job_id"])
    above = [spans.of("job host"), spans.of("job guest")]
    calls = [span for span in spans.all() if span.name == "tool good.shared"]
    assert sorted(next(i for i in (0, 1) if under(call, above[i])) for call in calls) == [0, 1]


@pytest.mark.spec("11-2")
async def test_a_child_stands_under_its_parent(spans: Spans, autojump_clock: MockClock) -> None:
    """A delegated job's span is a child of its parent's, in the same trace."""
    async with traced(OpenTelemetry(spans.provider)) as (_, peer):
        await run(peer, "boss", trace=SENT)
    assert under(spans.of("job echo"), spans.of("job boss"))
    assert trace_of(spans.of("job echo")) == TRACE


async def test_jobs_side_by_side_do_not_mix(spans: Spans, autojump_clock: MockClock) -> None:
    """Jobs that run at the same time have traces and tool calls of their own."""
    async with traced(OpenTelemetry(spans.provider)) as (_, peer):
        jobs: list[Frame] = []
        for number in range(1, 6):
            submit = {"agent": "caller", "input": number, "lease_request": LEASE}
            request = await peer.send("job.submit", submit, trace_id=f"{number:032x}")
            jobs.append(await peer.answer("job.accepted", request))
        for job in jobs:
            await peer.until_terminal(job["job_id"])
    calls = [span for span in spans.all() if span.name == "tool good.one"]
    for number, job in enumerate(jobs, 1):
        span = spans.of("job caller", **{"job.id": job["job_id"]})
        assert trace_of(span) == f"{number:032x}"
        assert len([call for call in calls if under(call, span)]) == 1


async def test_a_job_does_not_inherit_its_connections_span(
    spans: Spans, autojump_clock: MockClock
) -> None:
    """The span that is current around the runtime or the client is not part of a job's trace."""
    mine = spans.provider.get_tracer("mine")
    with mine.start_as_current_span("the program"):
        async with traced(OpenTelemetry(spans.provider)) as (_, peer):
            with mine.start_as_current_span("the client"):
                await run(peer, "caller")
    assert spans.of("job caller").parent is None


# -- ends


@pytest.mark.parametrize(
    ("agent", "fields", "outcome", "code", "status"),
    [
        ("sorry", {}, "error", "INTERNAL_ERROR", StatusCode.ERROR),
        ("sleeper", {"max_runtime_sec": 2}, "timed_out", "TIMEOUT", StatusCode.ERROR),
        ("sleeper", {}, "cancelled", "CANCELLED", StatusCode.UNSET),
    ],
)
async def test_how_a_job_ended(
    spans: Spans,
    agent: str,
    fields: Frame,
    outcome: str,
    code: str,
    status: StatusCode,
    autojump_clock: MockClock,
) -> None:
    """A failed job's span has its outcome and code; a cancelled one's is not an error."""
    async with traced(OpenTelemetry(spans.provider)) as (_, peer):
        job = await peer.submit(agent, **fields)
        if outcome == "cancelled":
            await peer.send("job.cancel", {"job_id": job["job_id"], "reason": SECRET})
        await peer.until_terminal(job["job_id"])
    span = spans.of(f"job {agent}", **{"job.outcome": outcome, "error.code": code})
    assert span.status.status_code is status
    assert span.status.description == (code if status is StatusCode.ERROR else None)
    assert not span.events
    assert SECRET not in span.to_json()


async def test_how_a_tool_call_ended(spans: Spans, autojump_clock: MockClock) -> None:
    """A failed or refused tool call's span has the code of its error, without any text."""
    async with traced(OpenTelemetry(spans.provider)) as (runtime, peer):

        def fail() -> None:
            raise ValueError(SECRET)

        @runtime.agent("clumsy")
        async def clumsy(job: JobContext) -> None:
            for tool in ("good.one", "bad.one"):
                try:
                    async with job.tool_call(tool):
                        fail()
                except (ValueError, ArcpError):
                    pass

        await run(peer, "clumsy")
    failed, refused = spans.of("tool good.one"), spans.of("tool bad.one")
    assert failed.status.description == "INTERNAL_ERROR"
    assert refused.status.description == "PERMISSION_DENIED"
    assert all(under(span, spans.of("job clumsy")) for span in (failed, refused))
    assert all(SECRET not in span.to_json() for span in spans.all())


async def test_every_span_ends(spans: Spans, autojump_clock: MockClock) -> None:
    """Spans end also for jobs that a shutdown ends, and for agents that do not stop."""
    async with traced(OpenTelemetry(spans.provider)) as (_, peer):
        await peer.submit("sleeper")
        await peer.submit("stubborn", 5)
        await trio.sleep(0.1)
    assert sorted(span.name for span in spans.all()) == ["job sleeper", "job stubborn"]
    assert all(_attributes(span)["arcp.job.outcome"] == "error" for span in spans.all())
