"""Faults of the runtime itself: a request is answered all the same, without details (§12)."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import InternalError, JobContext, MemoryStore, Runtime
from arcp_trio.testing import TrioClock, open_peer, open_peers
from arcp_trio.wire.json import Json, JsonObject
from tests.inside import ACCEPTANCE, ACCEPTANCE_FRAME, SESSION_CLOSE, live_jobs
from tests.protocol.support import refused, text_of
from tests.stage import make_runtime

SECRET = "hunter2"


class DiskError(Exception):
    """An exception that the runtime does not expect."""


def broken(*_args: object, **_kwargs: object) -> Any:
    """Fail, in the place of a part of the runtime."""
    raise DiskError(SECRET)


async def broken_later(*_args: object, **_kwargs: object) -> Any:
    """Fail after a second, in the place of a part of the runtime."""
    await trio.sleep(1)
    raise DiskError(SECRET)


FAULTS: dict[str, tuple[object, str, Callable[..., Any], str, JsonObject]] = {
    "the registry": (Runtime, "agents.resolve", broken, "job.submit", {"agent": "echo"}),
    "the store's put": (MemoryStore, "put", broken, "job.submit", {"agent": "echo"}),
    "the store's keys": (
        MemoryStore,
        "key",
        broken_later,
        "job.submit",
        {"agent": "echo", "idempotency_key": "k"},
    ),
    "the acceptance": (*ACCEPTANCE, broken, "job.submit", {"agent": "echo"}),
    "its frame": (*ACCEPTANCE_FRAME, broken, "job.submit", {"agent": "echo"}),
    "the store's jobs": (MemoryStore, "owner", broken_later, "job.cancel", {"job_id": "job_x"}),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.logs_error(SECRET)
@pytest.mark.spec("12-7")
async def test_a_fault_is_answered_and_the_session_goes_on(
    name: str, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """A fault is answered with INTERNAL_ERROR, and its reason is in the log only."""
    owner, attribute, replacement, kind, payload = FAULTS[name]
    async with make_runtime() as runtime, open_peer(runtime) as peer:
        await peer.hello()
        running = (await peer.submit("sleeper"))["job_id"]
        with monkeypatch.context() as patch:
            if owner is Runtime:
                patch.setattr(runtime.agents, "resolve", replacement)
            else:
                patch.setattr(owner, attribute, replacement)
            body = await refused(peer, kind, payload)
        assert (body["code"], body["retryable"]) == ("INTERNAL_ERROR", True)
        assert SECRET not in json.dumps(body)
        # The session, the running job and the order of answers are unaffected.
        await peer.submit("echo")
        await peer.send("job.cancel", {"job_id": running})
        await peer.until_terminal(running)
        assert {frame["type"] for frame in peer.seen} <= {"job.result", "job.cancelled"}
        # The failed request left no job behind.
        await trio.sleep(1)
        assert not live_jobs(runtime)


@pytest.mark.logs_error(SECRET)
@pytest.mark.spec("12-7")
async def test_a_close_that_fails_is_answered_and_the_session_can_be_resumed(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """A close that fails is answered, and the client can resume on another connection."""
    async with make_runtime() as runtime, open_peers(runtime) as peers:
        peer = await peers.connect()
        await peer.hello()
        with monkeypatch.context() as patch:
            patch.setattr(*SESSION_CLOSE, broken)
            body = await refused(peer, "session.close", {})
        assert (body["code"], body["retryable"]) == ("INTERNAL_ERROR", True)
        again = await peers.connect()
        await again.hello(resume=peer.resume_from())
        await again.send("session.close")
        await again.expect("session.closed")


@pytest.mark.logs_error(SECRET)
async def test_no_frame_tells_of_the_inside(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    """No frame has a token, a path, or an exception's text, type or traceback."""
    frames: list[str] = []
    async with make_runtime() as runtime, open_peers(runtime) as peers:

        @runtime.agent("leaky")
        async def leaky(job: JobContext) -> Json:
            raise DiskError(f"{SECRET} {job.input}")

        peer = await peers.connect()
        frames.append(json.dumps((await peer.hello())["payload"]["capabilities"]))
        frames.append(json.dumps(await peer.until_terminal((await peer.submit("leaky"))["job_id"])))
        for text in ("{", text_of("job.submit", {"agent": SECRET}), text_of("session.ping")):
            await peer.send_raw(text)
            frames.append(json.dumps(await peer.expect("session.error")))
        stranger = await peers.connect()
        await stranger.send("session.hello", {"client": {"name": "c"}, "auth": {"token": SECRET}})
        frames.append(json.dumps(await stranger.expect("session.error")))
    text = "\n".join(frames)
    for inside in ("Traceback", "DiskError", "Error(", ".py", "msgspec", "cattrs", "test-token"):
        assert inside not in text
    # The refusal of an unknown agent names it, here with the secret.
    assert text.count(SECRET) == 1
    assert "test-token" not in caplog.text
    assert caplog.text.count("Traceback") == 1
    assert not [r for r in caplog.records if r.levelno > logging.ERROR]


@pytest.mark.logs_error("authenticator failed")
async def test_a_failing_authenticator_says_nothing_of_its_fault(
    autojump_clock: MockClock,
) -> None:
    """A failing authenticator is a retryable INTERNAL_ERROR, and the next hello is served."""
    first = True

    async def failing_once(_token: str) -> str:
        nonlocal first
        if first:
            first = False
            await broken_later()
        return "alice"

    async with (
        Runtime(auth=failing_once, clock=TrioClock()) as runtime,
        open_peers(runtime) as peers,
    ):
        peer = await peers.connect()
        with pytest.raises(InternalError) as failed:
            await peer.hello()
        assert failed.value.retryable
        assert SECRET not in failed.value.message
        await (await peers.connect()).hello()
