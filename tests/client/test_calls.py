"""Requests and their answers: which belongs to which, refusals, and calls that are given up."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import (
    AgentNotAvailable,
    ArcpError,
    DuplicateKey,
    InvalidRequest,
    JobCancelled,
    JobFailed,
    JobNotFound,
    JobTimedOut,
    ProtocolError,
    ResumeWindowExpired,
    connect,
)
from arcp_trio.client.reading import budget_in
from tests.client.support import TOKEN, Network, Wire, real_runtime, scripted


async def test_concurrent_submits_each_get_their_own(autojump_clock: MockClock) -> None:
    """200 submits at once, with one trace id: each handle has the result of its own input."""
    results: dict[int, object] = {}

    async def one(n: int) -> None:
        job = await client.submit("echo", n, trace_id="ab" * 16)
        results[n] = await job.result()

    async with (
        real_runtime(jobs_per_principal=300) as runtime,
        connect(Network(runtime).open, token=TOKEN) as client,
        trio.open_nursery() as nursery,
    ):
        for n in range(200):
            nursery.start_soon(one, n)
    assert results == {n: n for n in range(200)}


async def test_no_fast_answer_is_missed(autojump_clock: MockClock) -> None:
    """A runtime that answers in the same instant, 10,000 times: no call hangs."""

    async def script(wire: Wire) -> None:
        await wire.welcome()
        while True:
            frame = await wire.receive()
            if frame["type"] == "session.close":
                return
            payload = {"request_id": frame["id"], "jobs": [], "next_cursor": None}
            await wire.send("session.jobs", payload)

    async with scripted(script) as runtime, connect(runtime.open, token=TOKEN) as client:
        for _ in range(10_000):
            assert [info async for info in client.jobs()] == []


async def test_a_refusal_reaches_its_call(autojump_clock: MockClock) -> None:
    """An unknown agent, an unknown job: the class of the code, with all that was said."""
    async with (
        real_runtime() as runtime,
        connect(Network(runtime).open, token=TOKEN) as client,
    ):
        running = await client.submit("stuck")
        with pytest.raises(AgentNotAvailable) as refused:
            await client.submit("nobody")
        assert refused.value.code == "AGENT_NOT_AVAILABLE"
        assert refused.value.message
        assert refused.value.retryable is False
        with pytest.raises(JobNotFound):
            await client.subscribe("job_none")
        with pytest.raises(InvalidRequest):
            [info async for info in client.jobs(status=["odd"])]
        # Only these calls failed.
        await running.cancel()
        with pytest.raises(JobCancelled):
            await running.result()


async def test_how_jobs_end(autojump_clock: MockClock) -> None:
    """Each end has its class, with code, message, details and the job it is about."""
    async with (
        real_runtime() as runtime,
        connect(Network(runtime).open, token=TOKEN) as client,
    ):
        failing = await client.submit("failing")
        with pytest.raises(JobFailed, match="no luck"):
            await failing.result()
        with pytest.raises(JobFailed, match="no luck") as failed:
            await failing.result()
        assert failed.value.code == "INTERNAL_ERROR"
        assert failed.value.details == {"tries": 3}
        assert failed.value.retryable is True
        assert failed.value.job_id == failing.id
        assert [event async for event in failing.events()] == []
        with pytest.raises(JobTimedOut):
            await (await client.submit("stuck", max_runtime=1)).result()


@pytest.mark.spec("9.5-2")
async def test_what_cannot_be_sent_hurts_nothing(autojump_clock: MockClock) -> None:
    """Input that is no JSON is refused on the spot, and the next submit gets the right job."""
    async with (
        real_runtime() as runtime,
        connect(Network(runtime).open, token=TOKEN) as client,
    ):
        for wrong in (float("nan"), object(), {"deep": [float("inf")]}):
            with pytest.raises(ValueError, match="@"):
                await client.submit("echo", wrong)
        with pytest.raises(ValueError, match="future"):
            await client.submit("echo", expires_in=0)
        with pytest.raises(ValueError, match="money"):
            await client.submit("echo", budget={"USD": "much"})
        assert await (await client.submit("echo", "fine")).result() == "fine"


async def test_every_call_can_be_given_up(autojump_clock: MockClock) -> None:
    """A call under a timeout returns in time, whatever it waits for; the client goes on."""

    async def script(wire: Wire) -> None:
        await wire.welcome()
        await wire.accept("job_1")
        late = await wire.receive("job.submit")
        await wire.receive("session.list_jobs")
        await wire.receive("job.subscribe")
        await wire.receive("job.cancel")
        await trio.sleep(1)
        # The answers come when nobody waits for them any more.
        await wire.accept("job_late", late)
        await wire.log(1, "job_late", "from afar")
        await wire.send("job.cancelled", {"job_id": "job_1"}, job_id="job_1")
        await wire.accept("job_2")
        await wire.result(2, "job_2", "second")
        await wire.end()

    async with scripted(script) as runtime, connect(runtime.open, token=TOKEN) as client:
        job = await client.submit("echo")
        for call in (
            lambda: client.submit("echo"),
            lambda: anext(client.jobs()),
            lambda: client.subscribe("job_3"),
            job.cancel,
            job.result,
            lambda: anext(job.events()),
            client.wait_closed,
        ):
            before = trio.current_time()
            with trio.move_on_after(0.1) as given_up:
                await call()
            assert given_up.cancelled_caught
            assert trio.current_time() - before < 0.2
        other = await client.submit("echo")
        assert other.id == "job_2"
        assert await other.result() == "second"


@pytest.mark.spec("1.0/8.2-2")
async def test_strays_are_ignored(autojump_clock: MockClock) -> None:
    """Answers that nobody asked for, jobs that nobody knows, types of the future."""

    async def script(wire: Wire) -> None:
        await wire.welcome()
        await wire.send("session.jobs", {"request_id": "stray", "jobs": [], "next_cursor": None})
        await wire.send("session.jobs", {"jobs": [], "next_cursor": None})
        await wire.send("job.accepted", {"job_id": "", "request_id": "stray"})
        await wire.send("job.cancelled", {"job_id": "job_9"}, job_id="job_9")
        await wire.send("job.subscribed", {"job_id": "job_9", "agent": "a", "current_status": "?"})
        await wire.send("session.novelty", {"of": "tomorrow"})
        await wire.send("x-vendor.acme.hello", {})
        await wire.send("session.error", {"code": "INTERNAL_ERROR", "message": "by the way"})
        await wire.event(1, "job_9", "x-vendor.acme.kind", [1])
        await wire.result(2, "job_9")
        await wire.accept("job_1")
        await wire.result(3, "job_1", "right")
        await wire.end()

    async with scripted(script) as runtime:
        async with connect(runtime.open, token=TOKEN) as client:
            assert await (await client.submit("echo")).result() == "right"
        # None of them comes back.
        said = [frame["type"] for frame in runtime.wires[0].seen]
        assert said == ["session.hello", "job.submit", "session.close"]


async def test_an_answer_that_is_none_fails_its_call_alone(autojump_clock: MockClock) -> None:
    """A payload against its schema is a protocol error of the one call it answers."""

    async def script(wire: Wire) -> None:
        await wire.welcome()
        listing = await wire.receive("session.list_jobs")
        await wire.send("session.jobs", {"request_id": listing["id"], "jobs": [{"job_id": 7}]})
        submit = await wire.receive("job.submit")
        await wire.send("job.accepted", {"request_id": submit["id"], "job_id": ["x"]})
        await wire.accept("job_1")
        await wire.send("job.result", {"result_id": 5}, job_id="job_1", event_seq=1)
        await wire.accept("job_2")
        await wire.result(2, "job_2", 2)
        await wire.end()

    async with scripted(script) as runtime, connect(runtime.open, token=TOKEN) as client:
        with pytest.raises(ProtocolError):
            [info async for info in client.jobs()]
        with pytest.raises(ProtocolError):
            await client.submit("echo")
        with pytest.raises(ProtocolError):
            await (await client.submit("echo")).result()
        assert await (await client.submit("echo")).result() == 2


async def test_a_reply_just_before_the_end_counts(autojump_clock: MockClock) -> None:
    """A result and the connection's end in one packet: the caller gets the result."""

    async def script(wire: Wire) -> None:
        await wire.welcome()
        await wire.accept("job_1")
        await wire.result(1, "job_1", "just in time")

    async with scripted(script) as runtime:
        stream = await runtime.open()
        async with connect(stream, token=TOKEN) as client:
            job = await client.submit("echo")
            assert await job.result() == "just in time"


@pytest.mark.spec("9.8.1-3", "9.8.2-12", "9.8.2-13")
async def test_a_submit_as_it_stands_on_the_wire(autojump_clock: MockClock) -> None:
    """Lease, budget, expiry and the key that makes it safe to repeat."""

    async def script(wire: Wire) -> None:
        await wire.welcome()
        submit = await wire.receive("job.submit")
        seen.append(submit)
        lease = submit["payload"]["lease_request"]
        secret = {"id": "cred_1", "scheme": "bearer", "value": "v1", "endpoint": "https://e"}
        unknown = {"id": "cred_2", "scheme": "smoke-signals"}
        await wire.accept(
            "job_1", submit, lease=lease, budget={"USD": 5.50}, credentials=[secret, unknown]
        )
        rotated = {"phase": "credential_rotated", "id": "cred_1", "value": "v2"}
        await wire.event(1, "job_1", "status", rotated)
        await wire.receive("session.ack")
        await wire.result(2, "job_1")
        await wire.end()

    seen: list[dict[str, object]] = []
    async with (
        scripted(script) as runtime,
        connect(runtime.open, token=TOKEN, now=lambda: 1_000_000_000) as client,
    ):
        job = await client.submit(
            "greeter@1.0.0",
            {"name": "Ada"},
            lease={"tool.call": ["search.*"]},
            budget={"USD": "5.50", "EUR": Decimal("1E+2")},
            expires_in=600,
            max_runtime=60,
        )
        payload = seen[0]["payload"]
        assert payload == {
            "agent": "greeter@1.0.0",
            "input": {"name": "Ada"},
            "lease_request": {"tool.call": ["search.*"], "cost.budget": ["USD:5.50", "EUR:100"]},
            "lease_constraints": {"expires_at": "2001-09-09T01:56:40.000Z"},
            "idempotency_key": job.idempotency_key,
            "max_runtime_sec": 60,
        }
        assert len(str(seen[0]["trace_id"])) == 32
        assert job.budget == {"USD": 5.5}
        assert job.lease == {"tool.call": ["search.*"], "cost.budget": ["USD:5.50", "EUR:100"]}
        await anext(job.events())
        (credential,) = job.credentials
        assert credential["value"] == "v2"
        assert "v1" not in repr(job)
        assert "v2" not in repr(job)
        await job.result()
        assert job.credentials == []


async def test_what_looks_right_and_is_not_is_refused(autojump_clock: MockClock) -> None:
    """A string in place of patterns, an amount that would add to another one, "" for a key."""
    async with real_runtime() as runtime, connect(Network(runtime).open, token=TOKEN) as client:
        with pytest.raises(TypeError, match=r"tool\.call: expected a list of patterns"):
            await client.submit("echo", lease={"tool.call": "abc"})
        with pytest.raises(ValueError, match="USD is in the budget, and in the lease's"):
            await client.submit("echo", lease={"cost.budget": ["USD:5"]}, budget={"USD": "4"})
        with pytest.raises(InvalidRequest, match="idempotency_key"):
            await client.submit("echo", idempotency_key="")


async def test_a_budget_is_exact(autojump_clock: MockClock) -> None:
    """Amounts come as the decimals they were granted as, more digits than a float has or not."""
    amounts = {"USD": Decimal("5.00"), "EUR": Decimal("123456789012345.123456789012")}
    async with (
        real_runtime() as runtime,
        connect(Network(runtime).open, token=TOKEN) as owner,
        connect(Network(runtime).open, token=TOKEN) as watcher,
    ):
        job = await owner.submit("stuck", budget=amounts)
        observed = await watcher.subscribe(job.id)
        await job.cancel()
        past = await watcher.subscribe(job.id, history=True)
        for budget in (job.budget, observed.budget, past.budget):
            assert budget == amounts
            assert {type(amount) for amount in budget.values()} == {Decimal}
        assert (await owner.submit("echo")).budget == {}


@pytest.mark.parametrize(
    ("said", "understood"),
    [
        ({"USD": 0.1, "EUR": 5}, {"USD": Decimal("0.1"), "EUR": Decimal(5)}),
        ({"USD": "USD:5.50", "EUR": "7.10"}, {"USD": Decimal("5.50"), "EUR": Decimal("7.10")}),
        ({"USD": "much", "EUR": None, "a": True, "b": "NaN", "c": [1], "d": 2}, {"d": Decimal(2)}),
        (None, {}),
    ],
)
def test_amounts(said: object, understood: object) -> None:
    """Numbers, and the texts of some runtimes; what is no amount is left out."""
    assert (
        budget_in(json.dumps({"type": "job.accepted", "payload": {"budget": said}})) == understood
    )


async def test_a_listing_is_read_page_by_page(autojump_clock: MockClock) -> None:
    """More jobs than a page has; filters go along with each request."""
    async with (
        real_runtime(jobs_per_principal=1_000) as runtime,
        connect(Network(runtime).open, token=TOKEN) as client,
    ):
        ids = [(await client.submit("echo", n)).id for n in range(130)]
        stuck = await client.submit("stuck")
        listed = [info.id async for info in client.jobs(agent="echo")]
        assert listed == ids[::-1]
        assert [i.id async for i in client.jobs(status=["running", "pending"])] == [stuck.id]


async def test_a_subscription_that_the_runtime_ends(autojump_clock: MockClock) -> None:
    """An error about a job that is only observed ends its handle, and not the session."""

    async def script(wire: Wire) -> None:
        await wire.welcome()
        frame = await wire.receive("job.subscribe")
        job = {"request_id": frame["id"], "job_id": "job_1", "agent": "a@1", "replayed": True}
        await wire.send("job.subscribed", job | {"current_status": "running"})
        await wire.log(1, "job_1", "one")
        gone = {"code": "RESUME_WINDOW_EXPIRED", "message": "events are gone", "job_id": "job_1"}
        await wire.send("session.error", gone)
        await wire.accept("job_2")
        await wire.result(2, "job_2", "fine")
        await wire.end()

    async with scripted(script) as runtime, connect(runtime.open, token=TOKEN) as client:
        observed = await client.subscribe("job_1", history=True)
        events = observed.events()
        assert (await anext(events)).seq == 1
        with pytest.raises(ResumeWindowExpired, match="events are gone"):
            await anext(events)
        assert await (await client.submit("echo")).result() == "fine"


@pytest.mark.spec("7.6-1")
async def test_observing(autojump_clock: MockClock) -> None:
    """History first, then what is live; unsubscribing ends the events and not the job."""
    async with (
        real_runtime() as runtime,
        connect(Network(runtime).open, token=TOKEN) as owner,
        connect(Network(runtime).open, token=TOKEN) as watcher,
    ):
        job = await owner.submit("paced", 5)
        await trio.sleep(2.5)
        observed = await watcher.subscribe(job.id, history=True)
        assert observed.status == "running"
        seen = []
        async for event in observed.events():
            seen.append(event.body["message"])
            if len(seen) == 3:
                await observed.unsubscribe()
                await observed.unsubscribe()
        assert seen == ["0", "1", "2"]
        with pytest.raises(InvalidRequest, match="no longer observed"):
            await observed.result()
        again = await watcher.subscribe(job.id, history=True, from_event_seq=1)
        assert [e.body["message"] async for e in again.events()] == ["1", "2", "3", "4"]
        assert await again.result() == await job.result() == {"n": 5}


async def test_observing_what_has_ended(autojump_clock: MockClock) -> None:
    """With history it is told once more; without, it ends at once and says why."""
    async with (
        real_runtime() as runtime,
        connect(Network(runtime).open, token=TOKEN) as owner,
        connect(Network(runtime).open, token=TOKEN) as watcher,
    ):
        job = await owner.submit("count", 2)
        await job.result()
        late = await watcher.subscribe(job.id)
        assert [event async for event in late.events()] == []
        with pytest.raises(InvalidRequest, match="history=True"):
            await late.result()
        for _ in range(2):
            full = await watcher.subscribe(job.id, history=True)
            assert [event.body["message"] async for event in full.events()] == ["0", "1"]
            assert await full.result() == {"n": 2}


async def test_one_key_one_job(autojump_clock: MockClock) -> None:
    """Submitting again under a key leads to the same job, ended or not; it must be the same."""
    async with (
        real_runtime() as runtime,
        connect(Network(runtime).open, token=TOKEN) as client,
    ):
        first = await client.submit("echo", 1, idempotency_key="k")
        assert await first.result() == 1
        second = await client.submit("echo", 1, idempotency_key="k")
        assert second.id == first.id
        assert await second.result() == 1
        with pytest.raises(DuplicateKey):
            await client.submit("echo", 2, idempotency_key="k")
        del first, second
        third = await client.submit("echo", 1, idempotency_key="k")
        with pytest.raises(InvalidRequest, match="has ended"):
            await third.result()
        async with connect(Network(runtime).open, token=TOKEN) as other:
            fourth = await other.submit("echo", 1, idempotency_key="k")
            assert await fourth.result() == 1


async def test_what_was_not_negotiated_is_not_used(autojump_clock: MockClock) -> None:
    """A client that offers no features connects, and is told what it cannot do."""
    async with (
        real_runtime() as runtime,
        connect(Network(runtime).open, token=TOKEN, features=()) as client,
    ):
        assert client.features == frozenset()
        assert [agent.name for agent in client.agents][:2] == ["count", "echo"]
        with pytest.raises(InvalidRequest, match="list_jobs"):
            client.jobs()
        with pytest.raises(InvalidRequest, match="subscribe"):
            await client.subscribe("job_1")
        job = await client.submit("count", 3)
        assert len([event async for event in job.events()]) == 3


async def test_a_refused_cancel(autojump_clock: MockClock) -> None:
    """A job that has ended cannot be cancelled."""
    async with (
        real_runtime() as runtime,
        connect(Network(runtime).open, token=TOKEN) as client,
    ):
        job = await client.submit("echo")
        await job.result()
        with pytest.raises(ArcpError, match="success"):
            await job.cancel()
