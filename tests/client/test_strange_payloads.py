"""Payloads of any shape, from a runtime that is broken or hostile."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from arcp_trio import ProtocolError, connect
from arcp_trio.client import dialects
from arcp_trio.client.calls import CANCEL, LIST, SUBMIT, SUBSCRIBE, Call
from arcp_trio.client.delivery import Delivery
from arcp_trio.client.errors import Gap
from arcp_trio.client.handshake import Greeting
from arcp_trio.client.session import ClientSession
from arcp_trio.client.unread import UnreadEvents
from arcp_trio.testing.frames import Frame
from arcp_trio.wire import envelope
from arcp_trio.wire.messages import TO_CLIENT
from tests.client.support import TOKEN, Wire, scripted

NAMES = [
    *("job_id", "request_id", "code", "message", "details", "retryable", "status", "kind", "body"),
    *("budget", "lease", "credentials", "final_status", "result", "result_id", "result_size"),
    *("agent", "trace_id", "current_status", "replayed", "jobs", "next_cursor", "phase", "id"),
    *("chunk_seq", "data", "encoding", "more", "parent_job_id", "delegate_id", "value", "USD"),
]


def objects(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Frame]:
    """Objects with the field names that the client reads."""
    return st.dictionaries(st.sampled_from(NAMES), values, max_size=6)


LEAVES = st.sampled_from([None, True, 0, 1, -1.5, "", "job_1", "success", "cancelled", "INTERNAL"])
VALUES = st.recursive(
    LEAVES | st.sampled_from(["result_chunk", "status", "utf8", "UNAUTHENTICATED", "bearer"]),
    lambda inner: st.lists(inner, max_size=3) | objects(inner),
    max_leaves=8,
)
TYPES = sorted({*TO_CLIENT, "job.event", "session.error", "session.closed"})


def session_of(dialect: dialects.RuntimeDialect) -> ClientSession:
    """Return a session with a pending call of each kind and a running job."""
    unread = UnreadEvents()
    greeting = Greeting(
        session_id="sess_1",
        resume_token=None,
        resume_window=None,
        heartbeat_interval=None,
        features=frozenset(),
        agents=(),
        input_schemas={},
        dialect=dialect,
    )
    session = ClientSession(greeting, Delivery(None, unread), unread, max_result_bytes=1_000)
    session.jobs.begin("job_1")
    for kind in (SUBMIT, SUBSCRIBE, CANCEL, LIST):
        call: Call[object] = Call(kind, b"{}", job_id="job_1")
        session.calls.add(call)
        session.calls.frame(call, "sess_1")
    return session


@given(
    st.lists(st.tuples(st.sampled_from(TYPES), objects(VALUES)), max_size=4),
    st.sampled_from([dialects.STANDARD, dialects.PYTHON, dialects.OTHER]),
)
@example([("session.error", {"code": {}})], dialects.STANDARD)
@example([("job.accepted", {"job_id": "job_1", "credentials": 1.5})], dialects.STANDARD)
@example([("session.jobs", {"jobs": 1})], dialects.STANDARD)
@settings(deadline=None)
def test_any_payload_is_taken(
    frames: list[tuple[str, Frame]], dialect: dialects.RuntimeDialect
) -> None:
    """No payload makes a session raise anything but a gap."""
    session = session_of(dialect)
    for kind, payload in frames:
        frame = {"arcp": "1.1", "id": "x", "type": kind, "job_id": "job_1", "payload": payload}
        text = json.dumps(frame | {"event_seq": session.jobs.top + 1})
        with suppress(Gap):
            session.take(envelope.decode(text), text)


@pytest.mark.parametrize(
    "budget",
    ['3,"budget":{}', '{"USD":1e-99999999999999999999}', '{"USD":0e99999999999999999999}'],
)
async def test_an_unreadable_budget_is_empty(autojump_clock: MockClock, budget: str) -> None:
    """A budget that is repeated, or beyond a Decimal's exponents, reads as empty."""

    async def script(wire: Wire) -> None:
        await wire.welcome()
        submit = await wire.receive("job.submit")
        payload = f'{{"job_id":"job_1","request_id":"{submit["id"]}","budget":{budget}}}'
        accepted = envelope.encode("job.accepted", payload.encode(), session_id=wire.session_id)
        await wire.transport.send([accepted])
        await wire.result(1, "job_1", "done")
        await wire.end()

    async with scripted(script) as runtime, connect(runtime.open, token=TOKEN) as client:
        job = await client.submit("echo")
        assert job.budget == {}
        assert await job.result() == "done"


async def test_an_invalid_listing_fails_its_call_alone(autojump_clock: MockClock) -> None:
    """An invalid listing fails its call, and the session goes on."""

    async def script(wire: Wire) -> None:
        await wire.welcome()
        asked = await wire.receive("session.list_jobs")
        await wire.send("session.jobs", {"request_id": asked["id"], "jobs": 5})
        await wire.accept("job_1")
        await wire.result(1, "job_1", "done")
        await wire.end()

    async with scripted(script) as runtime, connect(runtime.open, token=TOKEN) as client:
        with pytest.raises(ProtocolError, match="expected an array, got an integer"):
            _ = [job async for job in client.jobs()]
        assert await (await client.submit("echo")).result() == "done"
