"""The errors that a client is sent: their codes, and what they name (§12)."""

from __future__ import annotations

from typing import Any

import pytest
from trio.testing import MockClock

from arcp_trio import ArcpError, JobContext, JobError, Limits
from arcp_trio.testing import open_peer, open_peers
from arcp_trio.testing.frames import CODES
from arcp_trio.wire import errors
from arcp_trio.wire.json import Json, JsonObject
from tests.protocol.support import answers, refused
from tests.reading import close_code
from tests.stage import BOB, make_runtime

RETRYABLE = {"INTERNAL_ERROR", "TIMEOUT", "HEARTBEAT_LOST"}
"""Codes after which trying again may help; the rest fail again in the same way."""

# -- codes and what they say about trying again

REFUSALS: dict[str, tuple[str, JsonObject, str]] = {
    "no agent": ("job.submit", {"agent": "nobody"}, "AGENT_NOT_AVAILABLE"),
    "no agent of a version": ("job.submit", {"agent": "nobody@1"}, "AGENT_NOT_AVAILABLE"),
    "no version": ("job.submit", {"agent": "echo@9"}, "AGENT_VERSION_NOT_AVAILABLE"),
    "no agent's name": ("job.submit", {"agent": "Echo"}, "INVALID_REQUEST"),
    "an empty version": ("job.submit", {"agent": "echo@"}, "INVALID_REQUEST"),
    "wrong fields": ("job.submit", {"agent": 1, "max_runtime_sec": 0}, "INVALID_REQUEST"),
    "no job": ("job.cancel", {"job_id": "job_nobodys"}, "JOB_NOT_FOUND"),
    "a key": ("job.submit", {"agent": "echo", "idempotency_key": "taken"}, "DUPLICATE_KEY"),
    "an open session": (
        "session.hello",
        {"client": {"name": "c"}, "auth": {"token": "test-token"}},
        "INVALID_REQUEST",
    ),
    "a resume": ("session.resume", {"resume_token": "rt_x"}, "INVALID_REQUEST"),
}


@pytest.mark.parametrize("name", REFUSALS)
@pytest.mark.spec("12-1", "12-2", "12-3", "12-5", "12-8", "7.2-2", "7.5-4", "1.0/12-1")
async def test_a_refusal_says_what_whose_and_whether_again(
    name: str, autojump_clock: MockClock
) -> None:
    """A refusal has the code of §12, the request's id, a message and `retryable`."""
    kind, payload, code = REFUSALS[name]
    async with make_runtime() as runtime, open_peer(runtime) as peer:
        await peer.hello()
        await peer.submit("echo", 1, idempotency_key="taken")
        body = await refused(peer, kind, payload)
        assert body["code"] == code
        assert body["retryable"] is False
        assert body["message"]
        assert set(body) == {"code", "message", "retryable", "request_id"} | (
            {"job_id"} if kind == "job.cancel" else set()
        )


@pytest.mark.spec("12-6", "1.0/6.1-1")
async def test_no_token_is_unauthenticated(autojump_clock: MockClock) -> None:
    """A hello without a token is UNAUTHENTICATED, and the socket is closed."""
    async with make_runtime() as runtime, open_peer(runtime) as peer:
        request = await peer.send("session.hello", {"client": {"name": "c"}})
        error = await peer.expect("session.error", request_id=request)
        assert error["payload"]["code"] == "UNAUTHENTICATED"
        assert error["payload"]["retryable"] is False
        assert error["session_id"].startswith("sess_")
        assert await close_code(peer) == 1008


@pytest.mark.parametrize("code", sorted(CODES))
@pytest.mark.spec("12-1", "12-8", "12-9", "12-7", "7.3-2")
async def test_every_code_can_end_a_job(code: str, autojump_clock: MockClock) -> None:
    """An agent can end its job with any code, which says whether to try again.

    CANCELLED and TIMEOUT become INTERNAL_ERROR: a job cannot claim them.
    """
    cls: type[ArcpError] = errors.CODES[code]
    async with make_runtime() as runtime, open_peer(runtime) as peer:

        @runtime.agent("raising")
        async def raising(_job: JobContext) -> Json:
            raise cls("the agent's words")

        await peer.hello()
        end = await peer.until_terminal((await peer.submit("raising"))["job_id"])
        expected = "INTERNAL_ERROR" if code in {"CANCELLED", "TIMEOUT"} else code
        assert end["type"] == "job.error"
        assert end["payload"]["code"] == expected
        assert end["payload"]["retryable"] is (expected in RETRYABLE)
        assert end["payload"]["final_status"] == "error"


@pytest.mark.spec("12-4", "12-8", "7.4-3")
async def test_only_an_end_from_outside_is_a_timeout_or_a_cancellation(
    autojump_clock: MockClock,
) -> None:
    """A cancel and a timeout have their own code and status, and `retryable`."""
    async with make_runtime() as runtime, open_peer(runtime) as peer:
        await peer.hello()
        slow = await peer.submit("sleeper", max_runtime_sec=5)
        end = (await peer.until_terminal(slow["job_id"]))["payload"]
        assert (end["code"], end["final_status"], end["retryable"]) == (
            "TIMEOUT",
            "timed_out",
            True,
        )
        unwanted = await peer.submit("sleeper")
        await peer.send("job.cancel", {"job_id": unwanted["job_id"]})
        end = (await peer.until_terminal(unwanted["job_id"]))["payload"]
        assert (end["code"], end["final_status"], end["retryable"]) == (
            "CANCELLED",
            "cancelled",
            False,
        )


@pytest.mark.spec("12-8", "6.4-4")
async def test_a_lost_heartbeat_may_be_tried_again(autojump_clock: MockClock) -> None:
    """HEARTBEAT_LOST names no request and is retryable."""
    async with make_runtime() as runtime, open_peer(runtime, answer_pings=False) as peer:
        peer.patience = 120
        await peer.hello()
        error = await peer.expect("session.error")
        assert error["payload"]["code"] == "HEARTBEAT_LOST"
        assert error["payload"]["retryable"] is True
        assert "request_id" not in error["payload"]
        assert await close_code(peer) == 1008


async def test_what_a_lost_session_is_told(autojump_clock: MockClock) -> None:
    """A resume that is not possible is RESUME_WINDOW_EXPIRED and not retryable."""
    async with make_runtime() as runtime, open_peer(runtime) as peer:
        await peer.send("session.resume", {"resume_token": "rt_x"}, id="r")
        error = await peer.expect("session.error", request_id="r")
        assert error["payload"]["code"] == "RESUME_WINDOW_EXPIRED"
        assert error["payload"]["retryable"] is False
        assert await close_code(peer) == 1008


# -- an error is one request's


async def test_one_bad_submit_fails_only_itself(autojump_clock: MockClock) -> None:
    """A bad submit between good ones, beside running jobs, fails only itself."""
    async with make_runtime() as runtime, open_peer(runtime) as peer:
        await peer.hello()
        running = [(await peer.submit("sleeper"))["job_id"] for _ in range(3)]
        first = await peer.send("job.submit", {"agent": "echo"})
        bad = await peer.send("job.submit", {"agent": "nobody"})
        last = await peer.send("job.submit", {"agent": "echo"})
        answered = await answers(peer, 3)
        assert [frame["payload"]["request_id"] for frame in answered] == [first, bad, last]
        assert [frame["type"] for frame in answered] == [
            "job.accepted",
            "session.error",
            "job.accepted",
        ]
        for job in running:
            await peer.send("job.cancel", {"job_id": job})
            assert (await peer.until_terminal(job))["payload"]["code"] == "CANCELLED"


async def test_what_one_error_says_is_in_no_other(autojump_clock: MockClock) -> None:
    """Changing the details of an error that was raised changes no other error."""
    async with make_runtime() as runtime, open_peer(runtime) as peer:
        kept: list[JobError] = []
        details: dict[str, Any] = {"attempts": [1]}

        @runtime.agent("keeper")
        async def keeper(_job: JobContext) -> Json:
            if not kept:
                kept.append(JobError("no", details))
            else:
                details["attempts"].append(2)
                details["another"] = 2
            raise kept[0]

        await peer.hello()
        for _ in range(2):
            end = await peer.until_terminal((await peer.submit("keeper"))["job_id"])
            assert end["payload"]["details"] == {"attempts": [1]}
        kept[0].details["more"] = 1
        body = await refused(peer, "job.submit", {"agent": "nobody"})
        assert "details" not in body


@pytest.mark.spec("6.6-5", "12-2")
async def test_a_strangers_job_is_a_job_that_does_not_exist(autojump_clock: MockClock) -> None:
    """Another principal's job, running or ended, is refused as an unknown one."""
    async with make_runtime() as runtime, open_peers(runtime) as peers:
        owner, stranger = await peers.connect(), await peers.connect()
        await owner.hello()
        await stranger.hello(token=BOB)
        running = (await owner.submit("sleeper"))["job_id"]
        finished = (await owner.submit("echo"))["job_id"]
        await owner.until_terminal(finished)
        bodies = []
        for job in (running, finished, "job_01ARZ3NDEKTSV4RRFFQ69G5FAV"):
            body = await refused(stranger, "job.cancel", {"job_id": job})
            assert body.pop("job_id") == job
            del body["request_id"]
            bodies.append(body)
        assert bodies == [{**bodies[0], "code": "JOB_NOT_FOUND"}] * 3


@pytest.mark.spec("7.6-14", "12-1")
async def test_a_sibling_session_may_not_cancel(autojump_clock: MockClock) -> None:
    """Another session of the principal is refused with PERMISSION_DENIED, and the job runs on."""
    async with make_runtime() as runtime, open_peers(runtime) as peers:
        owner, sibling = await peers.connect(), await peers.connect()
        await owner.hello()
        await sibling.hello()
        job = (await owner.submit("sleeper"))["job_id"]
        body = await refused(sibling, "job.cancel", {"job_id": job})
        assert (body["code"], body["job_id"]) == ("PERMISSION_DENIED", job)
        await owner.send("job.cancel", {"job_id": job})
        assert (await owner.until_terminal(job))["payload"]["code"] == "CANCELLED"


@pytest.mark.parametrize("limit", ["jobs", "jobs_per_principal"])
@pytest.mark.spec("1.0/14-4", "1.0/14-5", "12-7")
async def test_a_limit_names_itself(limit: str, autojump_clock: MockClock) -> None:
    """A refusal at a limit has its name and value in the details, and is retryable."""
    async with make_runtime(limits=Limits(**{limit: 1})) as runtime, open_peer(runtime) as peer:
        await peer.hello()
        await peer.submit("sleeper")
        body = await refused(peer, "job.submit", {"agent": "sleeper"})
        assert (body["code"], body["retryable"]) == ("INTERNAL_ERROR", True)
        assert body["details"] == {"limit": limit, "max": 1}
