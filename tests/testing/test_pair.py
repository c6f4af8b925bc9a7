"""The client of `open_pair`: a real client, on the runtime's clock, whose frames are checked."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import BudgetExhausted, Client, Event, JobContext, LeaseExpired, Runtime
from arcp_trio.testing import TrioClock, WireRecorder, open_pair
from arcp_trio.transport import Transport
from arcp_trio.transport.base import SendsAtOnce
from arcp_trio.wire.errors import JobFailed, Unauthenticated


@pytest.fixture
def arcp_runtime(arcp_runtime: Runtime) -> Runtime:
    """Register the agents of these tests."""

    @arcp_runtime.agent("chatty", version="1.0.0")
    async def chatty(job: JobContext) -> object:
        for n in range(job.input):
            await job.log(str(n))
        return job.input

    @arcp_runtime.agent("spender", version="1.0.0")
    async def spender(job: JobContext) -> object:
        while True:
            async with job.tool_call("search.web", {}) as call:
                call.result = str(job.budget["USD"])
            await job.metric("cost.search", Decimal("0.40"), unit="USD")

    @arcp_runtime.agent("late", version="1.0.0")
    async def late(job: JobContext) -> None:
        await trio.sleep(job.input)
        job.authorize("tool.call", "search.web")

    return arcp_runtime


async def test_an_event_is_what_stood_on_the_wire(arcp_runtime: Runtime) -> None:
    """A recorder that the test passes in has the frames of the events that the client yields."""
    recorder = WireRecorder()
    async with open_pair(arcp_runtime, recorder=recorder) as client:
        job = await client.submit("chatty", 1)
        [event] = [event async for event in job.events()]
        [frame] = recorder.events(job.id)
        assert event == Event(
            seq=1,
            job_id=job.id,
            kind="log",
            body={"level": "info", "message": "0"},
            ts=frame["payload"]["ts"],
        )


async def test_what_a_lease_and_a_budget_allow(arcp_client: Client) -> None:
    """An agent that spends its budget is refused over the protocol once the budget is used up."""
    job = await arcp_client.submit("spender", lease={"tool.call": ["search.*"]}, budget={"USD": 1})
    with pytest.raises(JobFailed) as failed:
        await job.result()
    assert failed.value.code == BudgetExhausted.code
    results = [e.body.get("result") async for e in job.events() if e.kind == "tool_result"]
    assert results == ["1", "0.60", "0.20", None]


@pytest.mark.parametrize(("seconds", "code"), [(3_599, None), (3_601, LeaseExpired.code)])
async def test_a_lease_expires_in_virtual_time(
    arcp_client: Client, autojump_clock: MockClock, seconds: int, code: str | None
) -> None:
    """The client takes the runtime's time, so `expires_in` passes in virtual time."""
    job = await arcp_client.submit(
        "late", seconds, lease={"tool.call": ["search.*"]}, expires_in=3_600
    )
    if code is None:
        assert await job.result() is None
    else:
        with pytest.raises(JobFailed) as failed:
            await job.result()
        assert failed.value.code == code


async def test_the_fixtures_go_by_one_clock(arcp_runtime: Runtime) -> None:
    """The clock of the fixture's runtime follows Trio's clock."""
    assert isinstance(arcp_runtime.clock, TrioClock)


@pytest.fixture
def transports(monkeypatch: pytest.MonkeyPatch) -> list[Transport]:
    """Collect the runtime's ends of all transports."""
    seen: list[Transport] = []
    attend = Runtime.attend

    async def collect(runtime: Runtime, transport: Transport, **options: Any) -> None:
        seen.append(transport)
        await attend(runtime, transport, **options)

    monkeypatch.setattr(Runtime, "attend", collect)
    return seen


async def test_a_connection_lost_is_resumed_and_still_checked(
    arcp_runtime: Runtime, autojump_clock: MockClock, transports: list[Transport]
) -> None:
    """The client resumes after a lost connection; the recorder checks the session across both."""
    recorder = WireRecorder()
    async with open_pair(arcp_runtime, recorder=recorder) as client:
        first = await client.submit("chatty", 3)
        await first.result()
        await transports[-1].close()
        second = await client.submit("chatty", 2)
        assert [event.seq async for event in second.events()] == [5, 6]
    assert len(transports) == 2
    assert len(recorder.events(first.id)) == 3
    assert recorder.highest(client.session_id) == 7


async def test_a_refused_session(arcp_runtime: Runtime) -> None:
    """A wrong token raises the class of the refusal's code, not in a group."""
    with pytest.raises(Unauthenticated):
        async with open_pair(arcp_runtime, token="wrong"):
            pytest.fail("it connected")


class _Stutter:
    """The runtime's end of a transport, which gives the second event the number of the first."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> object:
        return getattr(self._transport, name)

    async def send(self, frames: Sequence[bytes]) -> None:
        await self._transport.send(_wrong(frames))

    def send_at_once(self, frames: Sequence[bytes]) -> bool:
        assert isinstance(self._transport, SendsAtOnce)
        return self._transport.send_at_once(_wrong(frames))


def _wrong(frames: Sequence[bytes]) -> list[bytes]:
    return [frame.replace(b'"event_seq":2,', b'"event_seq":1,') for frame in frames]


async def test_a_runtime_that_breaks_a_promise_is_found_out(
    arcp_runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame that breaks the protocol fails the test, even if the client would tolerate it."""
    attend = Runtime.attend

    async def stutter(runtime: Runtime, transport: Transport, **options: Any) -> None:
        await attend(runtime, cast("Transport", _Stutter(transport)), **options)

    monkeypatch.setattr(Runtime, "attend", stutter)
    async with open_pair(arcp_runtime) as client:
        with pytest.raises(AssertionError, match="event_seq 1 where 2 is due"):
            await (await client.submit("chatty", 3)).result()
