"""Runtimes without a tracer, and with one that fails."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from trio.testing import MockClock

from arcp_trio import JobContext
from arcp_trio.runtime import tracing
from arcp_trio.wire.json import Json
from tests.credentials import runtimes as providing
from tests.credentials.upstream import Upstream
from tests.telemetry.spans import SECRET, SENT, TRACE, Spans, run, traced

ROOT = Path(__file__).parents[2]


# -- without


@pytest.mark.spec("11-1")
async def test_without_a_tracer_trace_ids_go_on_and_nothing_is_traced(
    spans: Spans, autojump_clock: MockClock
) -> None:
    """Without a tracer, the client's trace id is on the wire, and no span begins."""
    async with traced(None) as (_, peer):
        job = await run(peer, "caller", trace=SENT)
    assert job["trace_id"] == TRACE
    assert spans.all() == []


@pytest.mark.spec("11-1", "11-2")
async def test_a_trace_is_everywhere(autojump_clock: MockClock) -> None:
    """A trace id is in acceptances, of child jobs too, in credential orders and in listings."""
    upstream = Upstream()
    async with providing.provided(upstream, providing.SafeStore()) as (runtime, peer):

        @runtime.agent("chief")
        async def chief(job: JobContext) -> Json:
            await job.log("at it")
            child = await job.delegate("worker", 1, lease={"model.use": ["tier-fast/x"]})
            await child.result()
            return job.trace_id

        submit = {"agent": "chief", "lease_request": providing.LEASE}
        request = await peer.send("job.submit", submit, trace_id=SENT)
        accepted = await peer.answer("job.accepted", request)
        await peer.until_terminal(accepted["job_id"])
        await peer.send("session.list_jobs", {})
        listed = (await peer.expect("session.jobs"))["payload"]["jobs"]
    frames = [frame for frame in peer.seen if "job_id" in frame]
    assert {frame["type"] for frame in frames} == {"job.accepted", "job.event", "job.result"}
    assert {frame["trace_id"] for frame in frames} == {TRACE}
    assert len({frame["job_id"] for frame in frames}) == len(listed) == 2
    assert {entry["trace_id"] for entry in listed} == {TRACE}
    assert {order.trace_id for order in upstream.orders.values()} == {TRACE}


async def test_ids_cannot_be_foretold(autojump_clock: MockClock) -> None:
    """Ids and tokens do not come from Python's own, predictable random generator."""
    made: list[object] = []
    for _ in range(2):
        random.seed(1)
        async with traced(None) as (_, peer):
            job = await run(peer, "echo")
            made += [job["trace_id"], job["job_id"][-12:], peer.session_id, peer.resume_token]
    assert len(set(made)) == 8


class Broken:
    """A tracer, and its span, whose calls fail after the first `good_calls`."""

    trace_id = None

    def __init__(self, good_calls: int) -> None:
        self._good_calls = good_calls

    def _call(self) -> Broken:
        self._good_calls -= 1
        if self._good_calls < 0:
            raise OSError("the collector is gone")
        return self

    def start(self, *_args: object, **_named: object) -> Broken:
        """Begin a span, or fail."""
        return self._call()

    @contextmanager
    def current(self) -> Generator[None]:
        """Make the span current, or fail."""
        self._call()
        with suppress(BaseException):  # wrongly swallows an exception of the agent
            yield
        self._call()

    def end(self, *_args: object, **_named: object) -> None:
        """End the span, or fail."""
        self._call()


@pytest.mark.logs_error("tracer failed")
@pytest.mark.parametrize("good_calls", range(9))
async def test_a_tracer_that_fails_costs_no_job(good_calls: int, autojump_clock: MockClock) -> None:
    """A tracer that fails at any call changes nothing about its job."""
    async with traced(Broken(good_calls)) as (_, peer):
        job = await run(peer, "caller", trace=SENT)
        end = await peer.until_terminal(job["job_id"])
        if good_calls == 8:
            await run(peer, "caller")
    assert end["payload"]["result"] == TRACE


async def test_a_tracer_swallows_no_error(autojump_clock: MockClock) -> None:
    """A tracer that swallows exceptions does not hide an agent's exception."""
    async with traced(Broken(100)) as (_, peer):
        job = await run(peer, "sorry")
        end = await peer.until_terminal(job["job_id"])
    assert (end["type"], end["payload"]["message"]) == ("job.error", SECRET)


def test_nothing_of_it_is_needed() -> None:
    """Without OpenTelemetry installed, everything but its tracer can be imported and works."""
    script = """
import sys
sys.modules["opentelemetry"] = None
import trio, arcp_trio
for name in arcp_trio.__all__:
    getattr(arcp_trio, name)
import arcp_trio.cli.serve.serve, arcp_trio.testing.pair
async def main():
    runtime = arcp_trio.Runtime(auth=arcp_trio.StaticTokens({"t": "p"}))
    @runtime.agent("echo")
    async def echo(job):
        return job.trace_id
    async with runtime, arcp_trio.testing.open_pair(runtime, token="t") as client:
        assert len(await (await client.submit("echo")).result()) == 32
trio.run(main)
"""
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, timeout=60)


def test_no_tracer_is_a_tracer() -> None:
    """`NoTracer` accepts every call of the interface."""
    span = tracing.NoTracer().start("job x", {}, trace=None, parent=None)
    with span.current():
        assert span.start("tool y", {}) is span
    span.end({})
    assert span.trace_id is None
