"""What a client may put into a frame, and for which session the frame counts (§5)."""

from __future__ import annotations

import json

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import InvalidRequest, JobNotFound
from arcp_trio.testing import open_peer, open_peers
from arcp_trio.wire.json import Json
from tests.protocol.support import text_of
from tests.stage import BOB, make_runtime

IGNORED_FIELDS = {
    "anything": 1,
    "timestamp": None,
    "extensions": {"x-vendor.acme": {"optional": False}},
    "deep": json.loads("[" * 500 + "]" * 500),
    "trace_id": None,
    "job_id": None,
    "event_seq": None,
    "session_id": None,
    "": {"": [None]},
}


@pytest.mark.parametrize("field", IGNORED_FIELDS)
@pytest.mark.spec("5-2")
async def test_unknown_and_null_fields_are_ignored(field: str, autojump_clock: MockClock) -> None:
    """An unknown top-level field, or an optional one that is null, is ignored."""
    async with make_runtime() as runtime, open_peer(runtime) as peer:
        await peer.hello()
        request = await peer.send("job.submit", {"agent": "echo"}, **{field: IGNORED_FIELDS[field]})
        await peer.answer("job.accepted", request)


@pytest.mark.spec("5-2")
async def test_unknown_fields_of_payloads_are_ignored(autojump_clock: MockClock) -> None:
    """Unknown fields at any level of any payload are ignored."""
    extra: Json = {"x": [None, {"y": 1}]}
    async with make_runtime() as runtime, open_peer(runtime) as peer:
        await peer.hello(unknown=extra, client={"name": "c", **extra})
        job = await peer.submit("sleeper", lease_constraints=extra, **extra)
        await peer.send("session.ping", {"nonce": "n", **extra})
        await peer.expect("session.pong", ping_nonce="n")
        await peer.send("job.cancel", {"job_id": job["job_id"], **extra})
        await peer.expect("job.cancelled")
        await peer.until_terminal(job["job_id"])
        await peer.send("session.close", extra)
        await peer.expect("session.closed")


@pytest.mark.parametrize(
    "kind", ["x-vendor.acme.hello", "x-vendor", "x.future", "sessions", "job", "future", "s" * 256]
)
async def test_types_of_other_namespaces_are_nobodys_business(
    kind: str, autojump_clock: MockClock
) -> None:
    """Frames of other namespaces are not answered, and later frames are."""
    async with make_runtime() as runtime, open_peer(runtime) as peer:
        await peer.hello()
        await peer.send(kind, {"agent": 7, "job_id": []})
        await peer.submit("echo")
        assert not peer.seen


@pytest.mark.parametrize("field", ["agent", "input"])
async def test_of_a_field_given_twice_the_last_counts(
    field: str, autojump_clock: MockClock
) -> None:
    """If a field is given twice, the last value counts, everywhere."""
    async with make_runtime() as runtime, open_peer(runtime) as peer:
        await peer.hello()
        text = text_of("job.submit", {"agent": "echo", "input": 1})
        first = {"agent": '"agent": "nobody", "agent"', "input": '"input": 2, "input"'}[field]
        await peer.send_raw(text.replace(f'"{field}"', first).replace('"id"', '"id": "x0", "id"'))
        job = await peer.answer("job.accepted", "x1")
        assert (await peer.until_terminal(job["job_id"]))["payload"]["result"] == 1


RUNTIMES_OWN = (
    "session.welcome",
    "session.error",
    "session.closed",
    "session.jobs",
    "job.accepted",
    "job.cancelled",
    "job.subscribed",
    "job.event",
    "job.result",
    "job.error",
)


@pytest.mark.parametrize("kind", RUNTIMES_OWN)
async def test_a_client_cannot_speak_as_a_runtime(kind: str, autojump_clock: MockClock) -> None:
    """A runtime's message from a client is INVALID_REQUEST, and affects no job."""
    async with make_runtime() as runtime, open_peer(runtime) as peer:
        await peer.hello()
        job = (await peer.submit("sleeper"))["job_id"]
        body: Json = {
            "job_id": job,
            "final_status": "success",
            "result": "forged",
            "code": "INTERNAL_ERROR",
            "message": "forged",
            "retryable": True,
            "kind": "log",
            "ts": "2026-01-01T00:00:00.000Z",
            "body": {"level": "info", "message": "forged"},
        }
        request = await peer.send(kind, body, job_id=job, event_seq=1)
        with pytest.raises(InvalidRequest):
            await peer.answer(kind, request)
        await trio.sleep(20)
        await peer.send("job.cancel", {"job_id": job})
        end = await peer.until_terminal(job)
        assert (end["payload"]["code"], end["event_seq"]) == ("CANCELLED", 1)


@pytest.mark.spec("6.6-5")
async def test_a_frame_that_names_another_session_acts_on_its_own(
    autojump_clock: MockClock,
) -> None:
    """A frame acts on its connection's session, whatever session it names."""
    async with make_runtime() as runtime, open_peers(runtime) as peers:
        theirs, ours = await peers.connect(), await peers.connect()
        await theirs.hello(token=BOB)
        await ours.hello()
        job = (await theirs.submit("sleeper"))["job_id"]
        result = (await theirs.submit("echo"))["job_id"]
        await theirs.until_terminal(result)
        their_resume, claimed = theirs.resume_from(), theirs.session_id

        request = await ours.send("job.cancel", {"job_id": job}, session_id=claimed)
        with pytest.raises(JobNotFound):
            await ours.answer("job.cancelled", request)
        request = await ours.send("job.submit", {"agent": "echo"}, session_id=claimed)
        own = await ours.answer("job.accepted", request)
        await ours.until_terminal(own["job_id"])
        await ours.send("session.ack", {"last_processed_seq": 1}, session_id=claimed)
        await ours.send("session.ping", {"nonce": "ours"}, session_id=claimed)
        await ours.expect("session.pong", ping_nonce="ours")
        await ours.send("session.close", session_id=claimed)
        await ours.expect("session.closed", session_id=str(ours.session_id))

        # The session that was named is unaffected, and has all its events.
        await theirs.drop()
        again = await peers.connect()
        await again.hello(token=BOB, resume=their_resume | {"last_event_seq": 0})
        await again.send("job.cancel", {"job_id": job})
        assert (await again.until_terminal(job))["payload"]["code"] == "CANCELLED"
        replayed = ["job.accepted", "job.accepted", "job.result"]
        assert [frame["type"] for frame in again.seen] == [*replayed, "job.cancelled"]
