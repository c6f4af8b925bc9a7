"""From the first frame to the welcome or the refusal (§6.1, §6.2)."""

from __future__ import annotations

import json
import math
from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio.testing.frames import Frame
from arcp_trio.testing.peer import TEST_TOKEN
from arcp_trio.transport import TransportClosed, memory_streams
from arcp_trio.transport.stdio import LineTransport
from arcp_trio.wire.errors import JobNotFound
from arcp_trio.wire.features import ALL_FEATURES, SUPPORTED
from arcp_trio.wire.json import Json
from tests.footprint import tasks
from tests.inside import connected_principals
from tests.reading import refusal
from tests.sessions.support import open_stage
from tests.stage import BOB, TOKENS, hello_payload

# --- the welcome


@pytest.mark.spec("6.2-2", "5-1", "6.1-1", "6.2-1")
async def test_the_welcome_has_what_every_client_needs(autojump_clock: MockClock) -> None:
    """A welcome has ids, a token, the window, the heartbeat, features and agents."""
    async with open_stage(resume_window_seconds=77, heartbeat_seconds=7) as stage:
        peer = await stage.connect()
        welcome = await peer.hello()
        payload = welcome["payload"]
        assert welcome["session_id"] == payload["session_id"]
        assert payload["session_id"].startswith("sess_")
        assert payload["runtime"]["name"]
        assert payload["runtime"]["version"]
        assert payload["resume_token"].startswith("rt_")
        assert len(payload["resume_token"]) >= 3 + 32  # 128 bits in hex (§14)
        assert (payload["resume_window_sec"], payload["heartbeat_interval_sec"]) == (77, 7)
        assert payload["accepted_at"].endswith("Z")
        assert payload["capabilities"]["encodings"] == ["json"]
        assert payload["capabilities"]["features"] == list(SUPPORTED)


@pytest.mark.spec("6.2-1")
async def test_the_welcome_is_first(autojump_clock: MockClock) -> None:
    """The welcome comes first, even if a ping came together with the hello."""
    frames: list[Frame] = [
        {"type": "session.hello", "payload": hello_payload()},
        {"type": "session.ping", "payload": {"nonce": "n"}},
    ]
    lines = [json.dumps({"arcp": "1.1", "id": "1"} | frame).encode() for frame in frames]
    async with open_stage() as stage:
        for _ in range(20):  # which task runs first is random
            ours, theirs = memory_streams()
            transport = LineTransport(theirs, theirs, max_bytes=100_000, peer="a pipe")
            attend = partial(stage.runtime.attend, transport, deadline=math.inf)
            stage.runtime.start_connection(attend, "a pipe")
            await ours.send_all(b"\n".join([*lines, b""]))
            answers = LineTransport(ours, ours, max_bytes=100_000, peer="the runtime")
            types = [json.loads(await answers.receive())["type"] for _ in frames]
            assert types == ["session.welcome", "session.pong"]
            await answers.close()


@pytest.mark.spec("6.2-2", "7.5-2")
async def test_agents_come_with_versions_or_flat(autojump_clock: MockClock) -> None:
    """A client with `agent_versions` gets versions and defaults, any other client names."""
    async with open_stage() as stage:
        stage.runtime.agent("puppet", version="2.0.0")(stage.puppet.play)
        rich = await (await stage.connect()).hello()
        agents = {agent["name"]: agent for agent in rich["payload"]["capabilities"]["agents"]}
        assert agents["puppet"]["versions"] == ["1.0.0", "2.0.0"]
        assert agents["puppet"]["default"] == "2.0.0"
        flat = await (await stage.connect()).hello(features=("heartbeat",))
        assert flat["payload"]["capabilities"]["agents"] == ["chatty", "puppet", "sleeper"]


@pytest.mark.spec("6.2-3")
@pytest.mark.parametrize(
    "capabilities",
    [
        None,
        {},
        {"features": None},
        {"features": []},
        {"encodings": ["json"], "features": ["ack", "time_travel"]},
    ],
)
async def test_no_heartbeat_is_promised_to_a_client_that_does_not_know_it(
    capabilities: Json, autojump_clock: MockClock
) -> None:
    """The features in effect are those of both sides; unknown ones are ignored."""
    async with open_stage() as stage:
        peer = await stage.connect()
        await peer.send("session.hello", hello_payload() | {"capabilities": capabilities})
        welcome = await peer.receive()
        assert "heartbeat_interval_sec" not in welcome["payload"]
        assert set(welcome["payload"]["capabilities"]["features"]) <= set(ALL_FEATURES)


@pytest.mark.spec("1.0/6.2-1")
async def test_each_session_has_secrets_of_its_own(autojump_clock: MockClock) -> None:
    """No session id and no resume token is given twice."""
    async with open_stage() as stage:
        welcomes = [await (await stage.connect()).hello() for _ in range(50)]
        assert len({welcome["session_id"] for welcome in welcomes}) == 50
        assert len({welcome["payload"]["resume_token"] for welcome in welcomes}) == 50


@pytest.mark.spec("1.0/5.1-1")
async def test_a_client_of_1_0_is_answered_in_its_version(autojump_clock: MockClock) -> None:
    """A hello of version 1 gets a welcome and frames of version 1."""
    async with open_stage() as stage:
        peer = await stage.connect()
        await peer.send("session.hello", hello_payload(), arcp="1")
        assert (await peer.receive())["arcp"] == "1"
        await peer.send("session.ping", {"nonce": "n"}, arcp="1")
        assert (await peer.expect("session.pong"))["arcp"] == "1"


@pytest.mark.spec("5-2")
async def test_a_client_may_say_more_and_less(autojump_clock: MockClock) -> None:
    """Unknown fields, nulls and a client without a version are accepted."""
    async with open_stage() as stage:
        peer = await stage.connect()
        payload = hello_payload() | {"client": {"name": "x", "version": None}, "resume": None}
        frame = {"arcp": "1.1", "id": "a", "type": "session.hello", "trace_id": None, "extra": 1}
        await peer.send_raw(json.dumps(frame | {"payload": payload | {"extra": [1]}}))
        assert (await peer.receive())["type"] == "session.welcome"


# --- refusals


@pytest.mark.spec("6.1-1", "12-6", "1.0/6.1-1")
@pytest.mark.parametrize(
    "auth",
    [
        None,
        {},
        {"scheme": "bearer"},
        {"scheme": "bearer", "token": None},
        {"scheme": "bearer", "token": ""},
        {"scheme": "bearer", "token": " \t\n"},
        {"scheme": "bearer", "token": f" {TEST_TOKEN} "},
        {"scheme": "bearer", "token": TEST_TOKEN[:-1]},
        {"scheme": "bearer", "token": "alice"},
        {"scheme": "none"},
        {"scheme": "none", "token": TEST_TOKEN},
        {"scheme": "basic", "token": TEST_TOKEN},
        {"scheme": "", "token": TEST_TOKEN},
    ],
)
async def test_no_good_token_no_session(auth: Json, autojump_clock: MockClock) -> None:
    """A hello without a good token is UNAUTHENTICATED, names its request, and is closed."""
    async with open_stage() as stage:
        peer = await stage.connect()
        hello = await peer.send("session.hello", hello_payload() | {"auth": auth})
        error = await peer.receive()
        assert error["payload"]["code"] == "UNAUTHENTICATED"
        assert error["payload"]["request_id"] == hello
        assert error["payload"]["retryable"] is False
        with pytest.raises(TransportClosed) as closed:
            await peer.receive()
        assert closed.value.code == 1008
        await wait_all_tasks_blocked()
        assert stage.remembered() == {}


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"client": None}, "client"),
        ({"client": {"version": "1"}}, "client.name"),
        ({"client": {"name": ""}}, "client.name"),
        ({"auth": {"scheme": "bearer", "token": 7}}, "auth.token"),
        ({"auth": "test-token"}, "auth"),
        ({"capabilities": {"features": "heartbeat"}}, "features"),
        ({"resume": {"session_id": "sess_1"}}, "resume_token"),
        ({"resume": {"resume_token": "rt_1", "last_event_seq": "1"}}, "last_event_seq"),
        ({"resume": {"resume_token": "rt_1", "last_event_seq": 1.5}}, "last_event_seq"),
        ({"resume": {"resume_token": "rt_1", "last_event_seq": True}}, "last_event_seq"),
    ],
)
@pytest.mark.spec("12-5")
async def test_a_hello_of_the_wrong_shape_is_told_where(
    changes: Frame, place: str, autojump_clock: MockClock
) -> None:
    """A malformed hello is INVALID_REQUEST and the refusal names the field."""
    async with open_stage() as stage:
        peer = await stage.connect()
        await peer.send("session.hello", hello_payload() | changes)
        error = await refusal(peer)
        assert error["code"] == "INVALID_REQUEST"
        assert place in error["message"]


@pytest.mark.parametrize(
    "text",
    [
        "hello",
        "",
        "[]",
        "null",
        "{}",
        '{"arcp":"1.1","id":"a","type":"session.hello"}',
        '{"arcp":"2","id":"a","type":"session.hello","payload":{}}',
        '{"id":"a","type":"session.hello","payload":{}}',
        '{"arcp":1.1,"id":"a","type":"session.hello","payload":{}}',
        '{"arcp":"1.1","type":"session.hello","payload":{}}',
        '{"arcp":"1.1","id":"a","type":"session.hello","payload":{"auth":NaN}}',
        '{"arcp":"1.1","id":"a","type":"session.greetings","payload":{}}',
        b'{"arcp":"1.1","id":"a","type":"session.hello","payload":{}}',
        "[" * 50_000,
    ],
)
@pytest.mark.spec("12-5")
async def test_what_is_no_envelope_is_refused(text: str | bytes, autojump_clock: MockClock) -> None:
    """A first frame that is unreadable or of another version is INVALID_REQUEST."""
    async with open_stage() as stage:
        peer = await stage.connect()
        await peer.send_raw(text)
        assert (await refusal(peer))["code"] == "INVALID_REQUEST"


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("job.submit", {"agent": "puppet"}),
        ("job.cancel", {"job_id": "job_1"}),
        ("session.ack", {"last_processed_seq": 1}),
        ("session.ping", {"nonce": "n"}),
        ("session.close", {}),
        ("session.bye", {}),
        ("x-vendor.acme.hello", {}),
    ],
)
@pytest.mark.spec("12-6")
async def test_nothing_comes_before_the_hello(
    kind: str, payload: Frame, autojump_clock: MockClock
) -> None:
    """Another first frame is UNAUTHENTICATED, and a hello after it is ignored."""
    async with open_stage() as stage:
        peer = await stage.connect()
        await peer.send(kind, payload)
        await peer.send("session.hello", hello_payload())
        await peer.send("job.submit", {"agent": "puppet"})
        assert (await refusal(peer))["code"] == "UNAUTHENTICATED"
        assert stage.puppet.runs == 0


async def test_frames_behind_a_refused_hello_are_ignored(autojump_clock: MockClock) -> None:
    """Frames after a refused hello are ignored."""
    async with open_stage() as stage:
        peer = await stage.connect()
        await peer.send("session.hello", hello_payload("wrong"))
        await peer.send("session.hello", hello_payload())
        await peer.send("job.submit", {"agent": "puppet"})
        assert (await refusal(peer))["code"] == "UNAUTHENTICATED"
        assert stage.puppet.runs == 0


# The second is the beginning of a masked text frame that is longer than what follows.
@pytest.mark.parametrize("begun", [b"", b"\x81\xfe" + (1000).to_bytes(2, "big") + bytes(4) + b"{"])
async def test_who_says_nothing_is_closed_in_time(begun: bytes, autojump_clock: MockClock) -> None:
    """A client without a session is told and closed after `handshake_seconds`."""
    async with open_stage(handshake_seconds=10) as stage:
        started = trio.current_time()
        peer = await stage.connect()
        await peer.stream.send_all(begun)
        error = await refusal(peer)
        assert error["code"] == "UNAUTHENTICATED"
        assert 10 <= trio.current_time() - started <= 12


async def test_who_does_not_even_read_is_closed_in_time(autojump_clock: MockClock) -> None:
    """A refused client that does not read is disconnected after `close_seconds`."""
    async with open_stage(handshake_seconds=10, close_seconds=2) as stage:
        before = tasks()
        await stage.connect()  # and never read from it
        connected = tasks()
        await trio.sleep(13)
        # What remains are the client's tasks.
        assert tasks() - before < connected - before


async def test_a_hello_in_time_lifts_the_deadline(autojump_clock: MockClock) -> None:
    """A session outlasts the deadline of its handshake."""
    async with open_stage(handshake_seconds=10) as stage:
        peer = await stage.connect()
        await trio.sleep(9)
        await peer.hello(features=())
        await trio.sleep(1000)
        await peer.send("session.ping", {"nonce": "n"})
        await peer.expect("session.pong", ping_nonce="n")


async def test_a_session_that_is_stored_too_late_is_nobodys(autojump_clock: MockClock) -> None:
    """A session that is stored after the client gave up gets no welcome, and expires."""
    async with open_stage(handshake_seconds=10, resume_window_seconds=100) as stage:
        before = tasks()
        stage.store.pause()
        peer = await stage.connect()
        await peer.send("session.hello", hello_payload())
        assert (await refusal(peer))["code"] == "INTERNAL_ERROR"
        await peer.close()
        stage.store.go_on()
        await wait_all_tasks_blocked()
        assert tasks() == before
        assert not connected_principals(stage.runtime)
        await trio.sleep(110)
        assert not stage.store._tables.sessions


# --- a second hello


async def test_a_second_hello_is_refused_and_changes_nothing(autojump_clock: MockClock) -> None:
    """A second hello is refused by its request's id; session and jobs go on."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        job = (await peer.submit("puppet"))["job_id"]
        session, token = peer.session_id, peer.resume_token
        for payload in (hello_payload(), hello_payload(BOB), {}):
            again = await peer.send("session.hello", payload)
            error = await peer.expect("session.error", request_id=again)
            assert error["payload"]["code"] == "INVALID_REQUEST"
        await stage.puppet.say("still here")
        await stage.puppet.finish()
        assert (await peer.until_terminal(job))["type"] == "job.result"
        await peer.drop()
        assert (session, token) == (peer.session_id, peer.resume_token)
        await stage.resumed(peer.resume_from())


# --- whose frames are whose


async def test_a_foreign_session_id_in_a_frame_reaches_nobody_else(
    autojump_clock: MockClock,
) -> None:
    """A frame acts on the session of its connection, whatever session it names."""
    async with open_stage(auth=TOKENS) as stage:
        alice, bob = await stage.welcomed(), await stage.connect()
        await bob.hello(token=BOB)
        job = (await alice.submit("puppet"))["job_id"]
        ours = alice.session_id
        await bob.send("session.ack", {"last_processed_seq": 0}, session_id=ours)
        cancel = await bob.send("job.cancel", {"job_id": job}, session_id=ours)
        with pytest.raises(JobNotFound):
            await bob.answer("job.cancelled", cancel)
        await bob.send("session.close", {}, session_id=ours)
        await bob.expect("session.closed")
        await wait_all_tasks_blocked()
        await stage.puppet.say("untouched")
        assert (await alice.receive())["payload"]["body"]["message"] == "untouched"
