"""However connections, sessions and jobs end, every gauge returns to zero."""

from __future__ import annotations

from contextlib import suppress

import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from arcp_trio.testing import Peer
from arcp_trio.transport import TransportClosed
from arcp_trio.wire.errors import ArcpError
from arcp_trio.wire.json import JsonObject
from tests.inside import SWEEP_SECONDS
from tests.metrics import scrape
from tests.sessions.support import Stage, open_stage
from tests.stage import TOKENS, hello_payload

LIMITS = {
    "resume_window_seconds": 20,
    "heartbeat_seconds": 5,
    "cancel_grace_seconds": 1,
    "malformed_frames": 3,
    "sessions_per_principal": 2,
    "parked_sessions_per_principal": 1,
    "jobs_per_principal": 2,
    "frame_bytes_in": 20_000,
    "first_frame_bytes": 5_000,
    "tail_bytes": 5_000,
}
GAUGES = ("connections", "session_lag_events_max", "tail_bytes", "credentials_outstanding")
STATES = {"sessions": ("connected", "parked"), "jobs": ("pending", "running")}

ACTS: dict[str, tuple[str, JsonObject]] = {
    "chat": ("job.submit", {"agent": "chatty", "input": 30}),
    "sleep": ("job.submit", {"agent": "sleeper", "input": 3}),
    "fail": ("job.submit", {"agent": "sleeper", "input": "no number"}),
    "nobody": ("job.submit", {"agent": "nobody"}),
    "hurry": ("job.submit", {"agent": "sleeper", "input": 30, "max_runtime_sec": 1}),
    "list": ("session.list_jobs", {}),
    "again": ("session.hello", hello_payload()),
    "bad": ("job.cancel", {}),
    "big": ("session.ping", {"nonce": "x" * 30_000}),
    "close": ("session.close", {}),
    "bye": ("session.bye", {}),
}
FIRST = st.sampled_from(["good", "wrong token", "no hello", "too large", "resume", "steal"])
LAST = st.sampled_from(["drop", "close", "stay", "silent"])
VISITS = st.tuples(FIRST, st.lists(st.sampled_from(sorted(ACTS)), max_size=5), LAST)


async def visit(stage: Stage, first: str, acts: list[str], last: str, before: Peer | None) -> Peer:
    """Connect, send these requests, and leave in this way or stay."""
    peer = await stage.connect(answer_pings=last != "silent")
    with suppress(ArcpError, TransportClosed, TimeoutError):
        if first == "no hello":
            await peer.send("job.submit", {"agent": "chatty", "input": 1})
        elif first == "too large":
            await peer.hello(pad="x" * 6_000)
        elif first == "wrong token":
            await peer.hello(token="wrong")
        elif first == "good" or before is None:
            await peer.hello()
        else:
            if first == "resume":
                await before.drop()
            await peer.hello(resume=before.resume_from())
        for act in acts:
            await peer.send(*ACTS[act])
        await trio.sleep(0.1)
        if last == "drop":
            await peer.drop()
        elif last == "close":
            await peer.close()
    return peer


@pytest.mark.logs_error("agent failed")
@example([("good", ["fail", "chat"], "stay"), ("steal", ["chat", "close"], "drop")])
@given(st.lists(VISITS, max_size=5))
@settings(max_examples=40, deadline=None)
def test_every_gauge_falls_to_nothing(visits: list[tuple[str, list[str], str]]) -> None:
    """After all clients, windows and jobs have ended, every gauge is zero."""

    async def main() -> None:
        async with open_stage(auth=TOKENS, **LIMITS) as stage:
            before: Peer | None = None
            for first, acts, last in visits:
                peer = await visit(stage, first, acts, last, before)
                before = before if peer.resume_token is None else peer
            # No client reads any more, so no ping is answered.
            await trio.sleep(3 * LIMITS["heartbeat_seconds"])
            await trio.sleep(LIMITS["resume_window_seconds"] + 60 + SWEEP_SECONDS)
            metrics = scrape(stage.runtime)
            assert {name: metrics(name) for name in GAUGES} == dict.fromkeys(GAUGES, 0)
            for pool in ("received_bytes", "tail_bytes", "input_bytes", "waiting_submits"):
                assert metrics("held", pool=pool) == 0, pool
            for name, states in STATES.items():
                assert [metrics(name, state=state) for state in states] == [0, 0], name

    trio.run(main, clock=MockClock(autojump_threshold=0))
