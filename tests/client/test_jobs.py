"""Jobs of a client: how they are submitted, listed and observed, and how they end."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import (
    DuplicateKey,
    InvalidRequest,
    JobCancelled,
    JobFailed,
    JobNotFound,
    JobTimedOut,
    ResumeWindowExpired,
    connect,
)
from arcp_trio.client.reading import budget_in
from tests.client.support import TOKEN, Network, Wire, real_runtime, scripted


@pytest.mark.spec("9.8.1-3", "9.8.2-12", "9.8.2-13")
async def test_a_submit_as_it_stands_on_the_wire(autojump_clock: MockClock) -> None:
    """A submit has its lease, budget, expiry and key; its handle has what was granted."""

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


async def test_a_budget_is_exact(autojump_clock: MockClock) -> None:
    """Budgets come as the exact decimals that were granted, with more digits than a float has."""
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
    """Amounts are read from numbers and from texts; invalid ones are left out."""
    assert (
        budget_in(json.dumps({"type": "job.accepted", "payload": {"budget": said}})) == understood
    )


async def test_one_key_one_job(autojump_clock: MockClock) -> None:
    """The same submit under the same key leads to the same job, also after its end."""
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
        assert await third.result() == 1
        async with connect(Network(runtime).open, token=TOKEN) as other:
            fourth = await other.submit("echo", 1, idempotency_key="k")
            assert await fourth.result() == 1


async def test_how_jobs_end(autojump_clock: MockClock) -> None:
    """Each end of a job has its exception class, with code, message, details and the job's id."""
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


async def test_the_terminal_as_it_stands_on_the_wire(autojump_clock: MockClock) -> None:
    """`terminal` is the payload of the last message with its type, whichever way the job ended."""
    async with real_runtime() as runtime, connect(Network(runtime).open, token=TOKEN) as client:
        job = await client.submit("paced", 3)
        before = job.terminal
        assert before is None
        await job.result()
        assert job.terminal is not None
        assert job.terminal.pop("completed_at")
        assert job.terminal["type"] == "job.result"
        assert (job.terminal["final_status"], job.terminal["result"]) == ("success", {"n": 3})

        job = await client.submit("failing")
        with pytest.raises(JobFailed):
            await job.result()
        assert job.terminal is not None
        assert job.terminal["type"] == "job.error"
        assert (job.terminal["code"], job.terminal["details"]) == ("INTERNAL_ERROR", {"tries": 3})


async def test_a_listing_is_read_page_by_page(autojump_clock: MockClock) -> None:
    """A listing goes on over several pages, and each request has the filters."""
    async with (
        real_runtime(jobs_per_principal=1_000) as runtime,
        connect(Network(runtime).open, token=TOKEN) as client,
    ):
        ids = [(await client.submit("echo", n)).id for n in range(130)]
        stuck = await client.submit("stuck")
        listed = [info.id async for info in client.jobs(agent="echo")]
        assert listed == ids[::-1]
        assert [i.id async for i in client.jobs(status=["running", "pending"])] == [stuck.id]


@pytest.mark.spec("7.6-1")
async def test_observing(autojump_clock: MockClock) -> None:
    """An observer gets the history and then live events; unsubscribing does not end the job."""
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
    """An ended job is replayed with history; without it, the handle ends at once and says why."""
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


async def test_a_subscription_that_the_runtime_ends(autojump_clock: MockClock) -> None:
    """An error about an observed job ends its handle, and not the session."""

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


async def test_a_job_left_behind_can_be_cancelled_from_a_later_session(
    autojump_clock: MockClock,
) -> None:
    """Another session can cancel a job once the session that submitted it is closed (§7.4)."""
    async with real_runtime() as runtime:
        network = Network(runtime)
        async with connect(network.open, token=TOKEN) as first:
            job_id = (await first.submit("stuck")).id
        async with connect(network.open, token=TOKEN) as second:
            with pytest.raises(JobNotFound):
                await second.cancel("job_that_never_was")
            observed = await second.subscribe(job_id, history=True)
            await second.cancel(job_id, "enough")
            with pytest.raises(JobCancelled):
                await observed.result()
