"""What the metrics show about refusals and failures, without anybody's names."""

from __future__ import annotations

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import JobContext, Runtime, StaticTokens, __version__
from arcp_trio.runtime.metrics import COMMIT_SECONDS, Metrics
from arcp_trio.testing import Peer
from arcp_trio.testing.peer import TEST_TOKEN
from arcp_trio.wire.errors import CODES, ArcpError, InternalError
from tests.inside import set_version
from tests.metrics import NAMING_PRINCIPALS, scrape
from tests.reading import close_code, refusal
from tests.sessions.support import Stage, open_stage
from tests.stage import hello_payload

# -- refusals


async def test_refusals_are_counted_by_limit_or_code(autojump_clock: MockClock) -> None:
    """Each refusal counts once, by its limit or its code."""
    async with open_stage(jobs_per_principal=1, sessions_per_principal=1) as stage:
        stranger = await stage.connect()
        await stranger.send("session.hello", hello_payload(token="wrong"))
        await refusal(stranger)
        peer = await stage.welcomed()
        second = await stage.connect()
        await second.send("session.hello", hello_payload())
        await refusal(second)
        await peer.submit("puppet")
        for agent in ("puppet", "nobody", "nobody"):
            with pytest.raises(ArcpError):
                await peer.submit(agent)
        await peer.send_raw("{")
        await peer.expect("session.error")
        await peer.send("job.cancel", {"job_id": "job_unknown"})
        await peer.expect("session.error")
        assert refusals(stage) == {
            "UNAUTHENTICATED": 1,
            "sessions_per_principal": 1,
            "jobs_per_principal": 1,
            "AGENT_NOT_AVAILABLE": 2,
            "INVALID_REQUEST": 1,
            "JOB_NOT_FOUND": 1,
        }


def refusals(stage: Stage) -> dict[str, float]:
    """Return the counts of refusals that are not zero, by reason."""
    samples = scrape(stage.runtime).families["arcp_refusals_total"].samples
    return {dict(labels)["reason"]: value for (_, labels), value in samples.items() if value}


@pytest.mark.logs_error("agent returned too much")
async def test_what_an_agent_is_refused_counts(autojump_clock: MockClock) -> None:
    """An agent's refused event, result and delegation are counted."""
    async with open_stage(frame_bytes_out=5_000) as stage:

        @stage.runtime.agent("greedy")
        async def greedy(job: JobContext) -> str:
            with pytest.raises(ArcpError):
                await job.log("x" * 6_000)
            with pytest.raises(ArcpError):
                await job.delegate("puppet")
            return "x" * 6_000

        peer = await stage.welcomed()
        job = await peer.submit("greedy")
        end = await peer.until_terminal(job["job_id"])
        assert end["payload"]["details"]["limit"] == "frame_bytes_out"
        assert end["payload"]["message"] == (
            "the limit frame_bytes_out is reached: the result is 6,002 bytes as JSON, of at most"
            " 4,488; write it with job.stream_result()"
        )
        assert refusals(stage) == {"frame_bytes_out": 2, "PERMISSION_DENIED": 1}


# -- connections that fail


async def test_connections_that_fail_are_counted_by_reason(autojump_clock: MockClock) -> None:
    """Failed connections are counted by reason: silence, a large frame, malformed frames."""
    async with open_stage(heartbeat_seconds=1, frame_bytes_in=200_000, malformed_frames=3) as stage:
        silent = await stage.connect()
        assert await close_code(silent) == 1008
        for peer in (await stage.connect(), await stage.welcomed()):
            await peer.send_raw("x" * 200_001)
            assert await close_code(peer) == 1009
        wrong = await stage.welcomed()
        for _ in range(4):
            await wrong.send_raw("{")
        assert await close_code(wrong) == 1008
        lost = await stage.welcomed(answer_pings=False)
        assert await close_code(lost) == 1008
        assert failures(stage) == {
            "handshake_seconds": 1,
            "frame_bytes_in": 2,
            "malformed_frames": 1,
            "heartbeat_lost": 1,
        }


def failures(stage: Stage) -> dict[str, float]:
    """Return the counts of failed connections that are not zero, by reason."""
    samples = scrape(stage.runtime).families["arcp_connection_failures_total"].samples
    return {dict(labels)["reason"]: value for (_, labels), value in samples.items() if value}


@pytest.mark.logs_error("connection")
async def test_a_fault_of_ours_counts(autojump_clock: MockClock) -> None:
    """An exception in a connection's task counts as a fault."""

    async def broken() -> None:
        raise RuntimeError("a bug")

    async with open_stage() as stage:
        stage.runtime.start_connection(broken, "connection of nobody")
        await wait_all_tasks_blocked()
        assert failures(stage) == {"fault": 1}


async def test_who_listens_can_count_its_own(autojump_clock: MockClock) -> None:
    """A listener counts failures under words of its own; other texts count as one reason."""
    async with open_stage() as stage:
        for reason in ("tls", "tls", "origin", "GET /admin", 'a"b', "", "x" * 1_000, "ö"):
            stage.runtime.connection_failed(reason)
        assert failures(stage) == {"tls": 2, "origin": 1, "other": 5}


# -- names


HOSTILE = 'ev"il\\{}\nname'


async def test_no_name_of_anybodys_appears(autojump_clock: MockClock) -> None:
    """No name of a principal, agent, session, job or made-up limit is a label."""

    async def authenticate(token: str) -> str | None:
        if token == TEST_TOKEN:
            return HOSTILE
        raise InternalError(HOSTILE, details={"limit": HOSTILE})

    async with open_stage(auth=authenticate) as stage:
        stranger = await stage.connect()
        await stranger.send("session.hello", hello_payload(token="wrong"))
        await refusal(stranger)
        peer: Peer = await stage.welcomed()
        with pytest.raises(ArcpError):
            await peer.submit('evil"name')
        await peer.submit("puppet")
        await peer.send("job.subscribe", {"job_id": HOSTILE})
        await peer.expect("session.error")
        assert refusals(stage) == {
            "INTERNAL_ERROR": 1,
            "INVALID_REQUEST": 1,
            "JOB_NOT_FOUND": 1,
        }
        assert shown(stage) <= KNOWN | {__version__}


KNOWN = {
    *("connected", "parked", "pending", "running", "success", "error", "cancelled", "timed_out"),
    *("waiting", "suspended"),
    *("ending", "going_on", "waiting_for_people"),
    *("fault", "handshake_seconds", "heartbeat_lost", "frame_bytes_in", "malformed_frames"),
    *(
        "received_bytes",
        "tail_bytes",
        "input_bytes",
        "waiting_submits",
        "stored_bytes",
        "abandoned",
        "waiting",
        "suspended",
    ),
    *(*CODES, "other", "+Inf", *(f"{bound:g}" for bound in COMMIT_SECONDS)),
}


def shown(stage: Stage) -> set[str]:
    """Return the values of all labels but those of the metrics that name principals."""
    return {
        value
        for family in scrape(stage.runtime).families.values()
        if family.name not in NAMING_PRINCIPALS
        for _, labels in family.samples
        for _, value in labels
    }


def test_a_reason_of_nobodys_is_other() -> None:
    """A reason that is neither a limit nor a known code counts as `other`."""
    metrics = Metrics()
    metrics.refused(ArcpError("no", code=HOSTILE))
    metrics.refused(ArcpError("no", code="jobs", details={"limit": ["jobs"]}))
    assert metrics.refusals["other"] == 2
    metrics.refused(ArcpError("no", code=HOSTILE, details={"limit": "jobs"}))
    assert metrics.refusals["jobs"] == 1


async def test_a_version_is_escaped() -> None:
    """The version is escaped in its label, whatever its text."""
    async with Runtime(auth=StaticTokens({})) as runtime:
        set_version(runtime, HOSTILE)
        assert scrape(runtime)("build_info", version=HOSTILE) == 1
