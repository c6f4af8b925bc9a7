"""Traced runtimes, and the spans that they export."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from arcp_trio import JobContext, JobError, Limits, Runtime, StaticTokens, Tracer
from arcp_trio.testing import Peer, TrioClock, open_peer
from arcp_trio.testing.frames import Frame
from arcp_trio.testing.peer import TEST_TOKEN
from arcp_trio.wire.json import Json
from tests.stage import simple_agents, stubborn_agents

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SENT = f"00-{TRACE}-{SPAN}-01"
LEASE: Frame = {"tool.call": ["good.*"], "agent.delegate": ["*"], "cost.budget": ["USD:5"]}
SECRET = "hunter2"


class Spans:
    """The exported spans."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def all(self) -> list[ReadableSpan]:
        """Return all spans that have ended, in the order of their ends."""
        return list(self._exporter.get_finished_spans())

    def of(self, name: str, **attributes: Json) -> ReadableSpan:
        """Return the only span with this name and these attributes."""
        (span,) = [
            span
            for span in self.all()
            if span.name == name
            and all(_attributes(span).get(f"arcp.{key}") == attributes[key] for key in attributes)
        ]
        return span


def _attributes(span: ReadableSpan) -> Frame:
    return dict(span.attributes or {})


@asynccontextmanager
async def traced(tracer: Tracer | None) -> AsyncGenerator[tuple[Runtime, Peer]]:
    """Connect a client to a traced runtime with some agents, and say hello."""
    runtime = Runtime(
        auth=StaticTokens({TEST_TOKEN: "tester"}),
        clock=TrioClock(),
        tracer=tracer,
        limits=Limits(cancel_grace_seconds=1),
    )
    runtime.add(simple_agents)
    runtime.add(stubborn_agents)

    @runtime.agent("caller", version="2.1.0")
    async def caller(job: JobContext) -> Json:
        async with job.tool_call("good.one") as call:
            await trio.sleep(job.input or 1)
            call.result = 1
        return job.trace_id

    @runtime.agent("boss")
    async def boss(job: JobContext) -> Json:
        return await (await job.delegate("echo", 1)).result()

    @runtime.agent("sorry")
    async def sorry(_job: JobContext) -> None:
        raise JobError(SECRET)

    async with runtime, open_peer(runtime) as peer:
        await peer.hello()
        yield runtime, peer


async def run(peer: Peer, agent: str, input_: Json = None, **fields: Json) -> Frame:
    """Submit a job, wait for its end, and return the payload of its acceptance."""
    trace = {"trace_id": fields.pop("trace")} if "trace" in fields else {}
    payload = {"agent": agent, "input": input_, "lease_request": LEASE, **fields}
    request = await peer.send("job.submit", payload, **trace)
    accepted = await peer.answer("job.accepted", request)
    await peer.until_terminal(accepted["job_id"])
    return accepted
