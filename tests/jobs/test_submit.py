"""Submits: what is accepted, what is refused, and in which order the answers leave (§7.1)."""

from __future__ import annotations

import re

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import (
    ArcpError,
    InternalError,
    InvalidRequest,
    JobContext,
    Limits,
    MemoryStore,
    Runtime,
)
from arcp_trio.store.records import KeyRow
from arcp_trio.testing import Peer, open_peer
from arcp_trio.wire.json import Json
from tests.footprint import tasks, tasks_back_to
from tests.inside import live_jobs
from tests.stage import BOB, make_runtime

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.mark.spec("7.1-1", "7.5-6", "1.0/11-2")
async def test_an_acceptance_says_what_was_accepted(peer: Peer, autojump_clock: MockClock) -> None:
    """`job.accepted` names its request, the job, the resolved agent, lease, time and trace."""
    request = await peer.send("job.submit", {"agent": "echo"})
    frame = await peer.expect("job.accepted")
    payload = frame["payload"]
    assert payload["request_id"] == request
    assert re.fullmatch(r"job_[0-9A-Z]{26}", payload["job_id"])
    assert frame["job_id"] == payload["job_id"]
    assert payload["agent"] == "echo@1.0.0"
    assert payload["lease"] == {}
    assert payload["accepted_at"].endswith("Z")
    assert re.fullmatch(r"[0-9a-f]{32}", payload["trace_id"])
    assert "event_seq" not in frame


@pytest.mark.parametrize(
    "value", [None, False, 0, -1.5, "", "ü\u0000\U0001f600", [], {}, [1, {"a": [None]}], 2**63 - 1]
)
async def test_any_json_is_an_input(peer: Peer, value: Json, autojump_clock: MockClock) -> None:
    """An agent gets exactly the JSON value that was submitted."""
    job = await peer.submit("echo", value)
    end = await peer.until_terminal(job["job_id"])
    assert end["payload"]["result"] == value


async def test_a_missing_input_is_null(peer: Peer, autojump_clock: MockClock) -> None:
    """A submit without `input` gives the agent None."""
    await peer.send("job.submit", {"agent": "echo"})
    assert (await peer.expect("job.result"))["payload"]["result"] is None


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"agent": "nobody"}, "AGENT_NOT_AVAILABLE"),
        ({"agent": "nobody@1.0.0"}, "AGENT_NOT_AVAILABLE"),
        ({"agent": "echo@9"}, "AGENT_VERSION_NOT_AVAILABLE"),
        ({"agent": "echo@"}, "INVALID_REQUEST"),
        ({"agent": "@1"}, "INVALID_REQUEST"),
        ({"agent": "Echo"}, "INVALID_REQUEST"),
        ({"agent": "echo@1@2"}, "INVALID_REQUEST"),
        ({"agent": "echo "}, "INVALID_REQUEST"),
        ({"agent": "echo\n"}, "INVALID_REQUEST"),
        ({"agent": ""}, "INVALID_REQUEST"),
        ({"agent": "a" * 10_000}, "INVALID_REQUEST"),
        ({"agent": None}, "INVALID_REQUEST"),
        ({"agent": 7}, "INVALID_REQUEST"),
        ({"agent": ["echo"]}, "INVALID_REQUEST"),
        ({}, "INVALID_REQUEST"),
        ({"agent": "echo", "max_runtime_sec": 0}, "INVALID_REQUEST"),
        ({"agent": "echo", "max_runtime_sec": -1}, "INVALID_REQUEST"),
        ({"agent": "echo", "max_runtime_sec": 1.5}, "INVALID_REQUEST"),
        ({"agent": "echo", "max_runtime_sec": True}, "INVALID_REQUEST"),
        ({"agent": "echo", "max_runtime_sec": "60"}, "INVALID_REQUEST"),
        ({"agent": "echo", "max_runtime_sec": 2**63}, "INVALID_REQUEST"),
        ({"agent": "echo", "idempotency_key": ""}, "INVALID_REQUEST"),
        ({"agent": "echo", "idempotency_key": "k" * 300}, "INVALID_REQUEST"),
        ({"agent": "echo", "idempotency_key": 5}, "INVALID_REQUEST"),
        ({"agent": "echo", "lease_request": ["tool.call"]}, "INVALID_REQUEST"),
        ({"agent": "echo", "lease_constraints": {"expires_at": "soon"}}, "INVALID_REQUEST"),
    ],
)
@pytest.mark.spec("7.5-1", "7.5-4", "12-3", "12-5", "12-8")
async def test_a_bad_submit_is_refused_and_leaves_no_trace(
    runtime: Runtime, peer: Peer, fields: dict[str, Json], code: str, autojump_clock: MockClock
) -> None:
    """A bad submit is refused with code and request, and leaves no job and no task."""
    await peer.answer("session.jobs", await peer.send("session.list_jobs"))  # one task stays
    await wait_all_tasks_blocked()
    before = tasks()
    request = await peer.send("job.submit", fields)
    refusal = await peer.receive()
    assert refusal["type"] == "session.error"
    assert refusal["payload"]["code"] == code
    assert refusal["payload"]["request_id"] == request
    assert refusal["payload"]["retryable"] is False
    assert len(refusal["payload"]["message"]) < 1000
    assert await tasks_back_to(before)
    assert not live_jobs(runtime)
    await peer.submit("echo", "still here")


@pytest.mark.parametrize(
    "fields",
    [
        {"max_runtime_sec": 1},
        {"max_runtime_sec": 2**63 - 1},
        {"idempotency_key": "k"},
        {"idempotency_key": "k" * 256},
        {"idempotency_key": None, "max_runtime_sec": None, "lease_request": None},
        {"lease_request": {"tool.call": ["search.*"]}},
        {"lease_constraints": {}},
        {"parent_job_id": "job_of_another", "delegate_id": "d1"},
        {"unheard_of": {"by": "this version"}},
    ],
)
async def test_a_good_submit_is_accepted(
    peer: Peer, fields: dict[str, Json], autojump_clock: MockClock
) -> None:
    """Bounds are inclusive, null is absent, and unknown fields and claims are ignored."""
    job = await peer.submit("echo", 1, **fields)
    assert "parent_job_id" not in job
    end = await peer.until_terminal(job["job_id"])
    assert end["payload"]["result"] == 1


async def test_a_refused_submit_does_not_take_its_key(
    peer: Peer, autojump_clock: MockClock
) -> None:
    """A key of a refused submit is free, even for other parameters."""
    with pytest.raises(ArcpError):
        await peer.submit("nobody", 1, idempotency_key="k")
    job = await peer.submit("echo", 2, idempotency_key="k")
    assert (await peer.until_terminal(job["job_id"]))["payload"]["result"] == 2


async def test_refused_submits_leave_no_timer(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """A hundred refused submits with `max_runtime_sec` never lead to another frame."""
    await peer.submit("echo", 0, idempotency_key="k")
    await peer.expect("job.result")
    await wait_all_tasks_blocked()
    before = tasks()
    for number in range(1, 101):
        fields = {"agent": "echo", "input": number, "idempotency_key": "k", "max_runtime_sec": 1}
        await peer.send("job.submit", fields)
        await peer.expect("session.error", code="DUPLICATE_KEY")
    assert await tasks_back_to(before)
    peer.seen.clear()
    with trio.move_on_after(3):
        await peer.receive()
        pytest.fail("a frame of nothing that was accepted")


class SlowKeys(MemoryStore):
    """A store in which the lookup of key `3.5` takes 3.5 seconds, and that of `broken` fails."""

    async def key(self, principal: str, key: str, now: float) -> KeyRow | None:
        """Wait, and return what the key stands for."""
        if key == "broken":
            raise RuntimeError("a broken disk called s3cret")
        await trio.sleep(float(key))
        return await super().key(principal, key, now)


async def test_answers_leave_in_the_order_of_the_submits(autojump_clock: MockClock) -> None:
    """Acceptances and refusals keep the order of their submits, however long each takes."""
    async with make_runtime(store=SlowKeys()) as runtime, open_peer(runtime) as peer:
        await peer.hello()
        requests = [
            await peer.send("job.submit", fields)
            for fields in (
                {"agent": "echo", "idempotency_key": "3"},
                {"agent": "nobody"},
                {"agent": "echo"},
                {"agent": "echo", "idempotency_key": "1"},
                {"agent": "nobody", "idempotency_key": "2"},
                {"agent": "echo", "idempotency_key": "3"},
                {"agent": "echo"},
            )
        ]
        answered: list[Json] = []
        while len(answered) < len(requests):
            frame = await peer.receive()
            if "request_id" in frame["payload"]:
                answered.append((frame["payload"]["request_id"], frame["type"]))
        kinds = [
            "job.accepted",
            "session.error",
            "job.accepted",
            "job.accepted",
            "session.error",
            "job.accepted",
            "job.accepted",
        ]
        assert answered == list(zip(requests, kinds, strict=True))


async def test_a_slow_submit_holds_up_no_other_session_and_no_cancel(
    autojump_clock: MockClock,
) -> None:
    """While one submit is being decided, other sessions submit and this one cancels."""
    async with (
        make_runtime(store=SlowKeys()) as runtime,
        open_peer(runtime) as peer,
        open_peer(runtime) as other,
    ):
        await peer.hello()
        await other.hello()
        job = await peer.submit("sleeper")
        begun = trio.current_time()
        await peer.send("job.submit", {"agent": "echo", "idempotency_key": "20"})
        await other.submit("echo")
        await peer.send("job.cancel", {"job_id": job["job_id"]})
        await peer.until_terminal(job["job_id"])
        assert trio.current_time() - begun < 1


@pytest.mark.logs_error("a broken disk")
@pytest.mark.spec("12-7")
async def test_a_fault_of_the_runtime_is_answered(autojump_clock: MockClock) -> None:
    """A fault is answered with INTERNAL_ERROR without its text, and the session goes on."""
    async with make_runtime(store=SlowKeys()) as runtime, open_peer(runtime) as peer:
        await peer.hello()
        with pytest.raises(InternalError) as refused:
            await peer.submit("echo", idempotency_key="broken")
        assert refused.value.retryable
        assert "s3cret" not in refused.value.message
        await peer.submit("echo")


@pytest.mark.parametrize("kind", ["job.event", "job.result", "job.error", "job.accepted"])
async def test_a_client_cannot_speak_for_a_job(
    peer: Peer, kind: str, autojump_clock: MockClock
) -> None:
    """A client that sends a runtime's message gets INVALID_REQUEST, and the job is unaffected."""
    job = await peer.submit("sleeper")
    forged = {"kind": "log", "final_status": "success", "job_id": job["job_id"]}
    request = await peer.send(kind, forged, job_id=job["job_id"], event_seq=1)
    with pytest.raises(InvalidRequest):
        await peer.answer("session.error", request)
    await peer.send("job.cancel", {"job_id": job["job_id"]})
    end = await peer.until_terminal(job["job_id"])
    assert end["payload"]["final_status"] == "cancelled"


# -- trace (§11)


@pytest.mark.parametrize("sent", [TRACE, f"00-{TRACE}-00f067aa0ba902b7-01"])
@pytest.mark.spec("11-1")
async def test_a_trace_is_carried_through(
    runtime: Runtime, peer: Peer, sent: str, autojump_clock: MockClock
) -> None:
    """The submit's trace id is the agent's, and on the acceptance, every event and the terminal."""

    @runtime.agent("tracer")
    async def tracer(job: JobContext) -> Json:
        await job.log("hello")
        return job.trace_id

    await peer.send("job.submit", {"agent": "tracer"}, trace_id=sent)
    accepted = await peer.expect("job.accepted")
    event = await peer.expect("job.event")
    result = await peer.expect("job.result")
    assert accepted["payload"]["trace_id"] == TRACE
    assert result["payload"]["result"] == TRACE
    assert [frame["trace_id"] for frame in (event, result)] == [TRACE, TRACE]


@pytest.mark.parametrize("sent", ["", "no trace", "0" * 32, TRACE[:-1], TRACE.upper() + "x", 5])
@pytest.mark.spec("1.0/11-2")
async def test_a_malformed_trace_is_as_none(
    peer: Peer, sent: Json, autojump_clock: MockClock
) -> None:
    """A malformed trace id is replaced by a new one, and the submit is accepted."""
    await peer.send("job.submit", {"agent": "echo"}, trace_id=sent)
    accepted = await peer.expect("job.accepted")
    assert re.fullmatch(r"(?!0{32})[0-9a-f]{32}", accepted["payload"]["trace_id"])


# -- limits (§14)


@pytest.mark.parametrize("limit", ["jobs", "jobs_per_principal"])
@pytest.mark.spec("1.0/14-4", "1.0/14-5")
async def test_jobs_past_a_limit_are_refused_until_one_ends(
    limit: str, autojump_clock: MockClock
) -> None:
    """A submit past a limit is refused with its name and value until a job ends."""
    async with make_runtime(limits=Limits(**{limit: 3})) as runtime, open_peer(runtime) as peer:
        await peer.hello()
        jobs = [await peer.submit("sleeper") for _ in range(3)]
        with pytest.raises(InternalError) as refused:
            await peer.submit("sleeper")
        assert refused.value.retryable
        assert refused.value.details == {"limit": limit, "max": 3}
        assert refused.value.message == (
            f"the limit {limit} is reached: try again when a job has ended"
        )
        await peer.send("job.cancel", {"job_id": jobs[1]["job_id"]})
        await peer.until_terminal(jobs[1]["job_id"])
        await peer.submit("sleeper")


async def test_a_refused_submit_takes_no_place(autojump_clock: MockClock) -> None:
    """Unknown agents and known keys do not use up the jobs a principal may have."""
    async with (
        make_runtime(limits=Limits(jobs_per_principal=1)) as runtime,
        open_peer(runtime) as peer,
    ):
        await peer.hello()
        for _ in range(5):
            with pytest.raises(ArcpError):
                await peer.submit("nobody")
        job = await peer.submit("sleeper", idempotency_key="k")
        for _ in range(5):
            assert (await peer.submit("sleeper", idempotency_key="k"))["job_id"] == job["job_id"]
        await peer.send("job.cancel", {"job_id": job["job_id"]})
        await peer.until_terminal(job["job_id"])
        await peer.submit("echo")


async def test_one_principal_does_not_use_up_the_places_of_another(
    autojump_clock: MockClock,
) -> None:
    """`jobs_per_principal` counts per principal, whatever the number of sessions."""
    async with (
        make_runtime(limits=Limits(jobs_per_principal=2)) as runtime,
        open_peer(runtime) as peer,
        open_peer(runtime) as again,
        open_peer(runtime) as bob,
    ):
        await peer.hello()
        await again.hello()
        await bob.hello(token=BOB)
        await peer.submit("sleeper")
        await again.submit("sleeper")
        for full in (peer, again):
            with pytest.raises(InternalError):
                await full.submit("sleeper")
        await bob.submit("sleeper")
