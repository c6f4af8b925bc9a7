"""The log of a runtime: one line per fact, with its fields, and without secrets."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import ArcpError, JobContext, JobError, Limits, Runtime
from arcp_trio.front.serve import serve_stream
from arcp_trio.log_lines import JsonFormatter, TextFormatter
from arcp_trio.testing import open_pair, open_peer, open_peers
from arcp_trio.testing.frames import Frame
from arcp_trio.testing.peer import TEST_TOKEN
from arcp_trio.transport.memory import memory_streams
from arcp_trio.wire.json import Json
from tests.credentials import runtimes as providing
from tests.credentials.upstream import SECRET as CREDENTIAL
from tests.credentials.upstream import Upstream
from tests.inside import WATCHDOG_LOG
from tests.stage import BOB, make_runtime

SECRET = "hunter2"
"""Part of all that the client sends and the agents say."""


class Lines(logging.Handler):
    """Keeps the log in the formats of the command line."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.json: list[str] = []
        self.text: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record in both formats, but for those that come when the machine is busy."""
        if record.name == WATCHDOG_LOG:
            return
        self.json.append(JsonFormatter().format(record))
        self.text.append(TextFormatter().format(record))

    def read(self) -> list[Frame]:
        """Return the JSON lines, parsed."""
        return [json.loads(line) for line in self.json]

    def events(self, *but: str) -> list[str]:
        """Return the events of all lines, in order."""
        return [line["event"] for line in self.read() if line["event"] not in but]

    def of(self, event: str) -> Frame:
        """Return the fields of the only line with this event, without its time and logger."""
        (line,) = [line for line in self.read() if line["event"] == event]
        return {name: line[name] for name in line if name not in ("ts", "logger", "event")}


def keep(level: int) -> Iterator[Lines]:
    """Keep what is logged at `level` and above."""
    root, handler = logging.getLogger(), Lines()
    before = root.level
    root.addHandler(handler)
    root.setLevel(level)
    yield handler
    root.removeHandler(handler)
    root.setLevel(before)


@pytest.fixture
def lines() -> Iterator[Lines]:
    """Keep the log at level info."""
    yield from keep(logging.INFO)


@pytest.fixture
def all_lines() -> Iterator[Lines]:
    """Keep the log at level debug, also of libraries."""
    yield from keep(logging.DEBUG)


async def test_a_job_is_one_line(lines: Lines, autojump_clock: MockClock) -> None:
    """A job logs its end with all that is known of it, and nothing for its events."""
    async with make_runtime() as runtime:

        @runtime.agent("talker")
        async def talker(job: JobContext) -> None:
            for number in range(100):
                await job.metric("n", number)
            await trio.sleep(1.5)

        async with open_peer(runtime) as peer:
            welcome = await peer.hello()
            lines.json.clear()
            job = await peer.submit("talker")
            await peer.until_terminal(job["job_id"])
            assert lines.events() == ["job ended"]
    assert lines.of("job ended") == {
        "level": "info",
        "job_id": job["job_id"],
        "agent": "talker@1.0.0",
        "principal": "alice",
        "session_id": welcome["session_id"],
        "trace_id": job["trace_id"],
        "outcome": "success",
        "seconds": 1.5,
    }


async def test_a_job_to_be_forgotten_is_no_line(lines: Lines, autojump_clock: MockClock) -> None:
    """A job that leaves listings after its end leaves no line at level info, either."""
    async with make_runtime() as runtime, open_pair(runtime) as client:
        await (await client.submit("echo", forget=True)).result()
        assert "job ended" not in lines.events()
        await (await client.submit("echo")).result()
        assert "job ended" in lines.events()


async def test_a_session_is_one_line(lines: Lines, autojump_clock: MockClock) -> None:
    """A session whose connection lasts logs its end with all that is known of it."""
    async with make_runtime() as runtime:
        lines.json.clear()
        async with open_peer(runtime) as peer:
            welcome = await peer.hello()
            await trio.sleep(2)
            await peer.send("session.close")
            await peer.expect("session.closed")
        await trio.sleep(2000)
        assert lines.events() == ["connection ended"]
    assert lines.of("connection ended") == {
        "level": "info",
        "session_id": welcome["session_id"],
        "principal": "alice",
        "peer": "memory",
        "seconds": 2,
        "close_code": 1000,
        "why": "closed",
    }


@pytest.mark.parametrize(
    ("agent", "fields", "outcome", "code"),
    [
        ("sleeper", {"max_runtime_sec": 2}, "timed_out", "TIMEOUT"),
        ("sleeper", {}, "cancelled", "CANCELLED"),
        ("sorry", {}, "error", "INTERNAL_ERROR"),
    ],
)
async def test_an_end_says_how(
    lines: Lines,
    agent: str,
    fields: Frame,
    outcome: str,
    code: str,
    autojump_clock: MockClock,
) -> None:
    """The line of a job's end has its outcome and the code of its error, at level info."""
    async with make_runtime() as runtime, open_peer(runtime) as peer:

        @runtime.agent("sorry")
        async def sorry(_job: JobContext) -> None:
            raise JobError("not today")

        await peer.hello()
        job = await peer.submit(agent, **fields)
        if outcome == "cancelled":
            await peer.send("job.cancel", {"job_id": job["job_id"]})
        await peer.until_terminal(job["job_id"])
    end = lines.of("job ended")
    assert (end["level"], end["outcome"], end["code"]) == ("info", outcome, code)


@pytest.mark.logs_error("agent failed")
async def test_a_fault_of_an_agent_comes_with_its_traceback(
    lines: Lines, autojump_clock: MockClock
) -> None:
    """An agent that raises is logged as an error with its job, before the job's end."""
    async with make_runtime() as runtime, open_peer(runtime) as peer:

        @runtime.agent("broken")
        async def broken(_job: JobContext) -> None:
            raise ValueError("first\nsecond")

        await peer.hello()
        job = await peer.submit("broken")
        await peer.until_terminal(job["job_id"])
    fault = lines.of("agent failed")
    assert (fault["level"], fault["job_id"], fault["agent"]) == (
        "error",
        job["job_id"],
        "broken@1.0.0",
    )
    assert fault["exception"].endswith("ValueError: first\nsecond")


async def test_a_child_names_its_parent(lines: Lines, autojump_clock: MockClock) -> None:
    """A delegated job is logged like any other, with its parent's trace."""
    async with make_runtime() as runtime, open_peer(runtime) as peer:

        @runtime.agent("boss")
        async def boss(job: JobContext) -> Json:
            return await (await job.delegate("echo")).result()

        await peer.hello()
        job = await peer.submit("boss", lease_request={"agent.delegate": ["*"]})
        await peer.until_terminal(job["job_id"])
    parent, child = [line for line in lines.read() if line["event"] == "job ended"][::-1]
    assert child["parent_id"] == parent["job_id"]
    assert child["trace_id"] == parent["trace_id"]


async def test_the_story_of_a_session(all_lines: Lines, autojump_clock: MockClock) -> None:
    """At level debug, a session logs that it is opened, parked, resumed, closed and dropped."""
    runtime = make_runtime(limits=Limits(resume_window_seconds=30))
    async with runtime, open_peers(runtime) as peers:
        first = await peers.connect()
        welcome = await first.hello()
        await first.drop()
        await trio.sleep(10)
        second = await peers.connect()
        await second.hello(resume=first.resume_from())
        await second.send("session.close")
        await second.expect("session.closed")
        await trio.sleep(40)
    told = [line for line in all_lines.read() if line["logger"].startswith("arcp_trio")]
    happened = [line["event"] for line in told]
    assert [event for event in happened if event.startswith("session")] == [
        "session opened",
        "session parked",
        "session resumed",
        "session closed",
        "session parked",
        "session dropped",
    ]
    assert [event for event in happened if not event.startswith("session")] == [
        "runtime started",
        *["connection accepted", "connection ended"] * 2,
        "shutting down",
        "runtime over",
    ]
    of_session = [line for line in told if line["event"].startswith("session")]
    assert {line["session_id"] for line in of_session} == {welcome["session_id"]}
    lost, left = [line for line in told if line["event"] == "connection ended"]
    assert (lost["why"], left["why"]) == ("the client has gone", "closed")
    assert lost["session_id"] == left["session_id"] == welcome["session_id"]
    assert lost["peer"] == "memory"
    assert all_lines.of("session dropped")["why"] == "its window is over"


async def test_who_is_turned_away(lines: Lines, autojump_clock: MockClock) -> None:
    """A session refused for its token is a warning, and a refused submit is info."""
    async with make_runtime() as runtime, open_peers(runtime) as peers:
        stranger = await peers.connect()
        with pytest.raises(ArcpError):
            await stranger.hello(token=SECRET)
        peer = await peers.connect()
        await peer.hello()
        with pytest.raises(ArcpError):
            await peer.submit("nobody")
    refused = lines.of("session refused")
    assert refused == {
        "level": "warning",
        "peer": "memory",
        "code": "UNAUTHENTICATED",
        "error": refused["error"],
    }
    refused = lines.of("submit refused")
    assert (refused["level"], refused["code"]) == ("info", "AGENT_NOT_AVAILABLE")
    assert (refused["principal"], refused["agent"]) == ("alice", "nobody")


async def test_a_failing_upgrade_leaves_a_line(lines: Lines, autojump_clock: MockClock) -> None:
    """A connection that is not a WebSocket is logged with its peer and the reason."""
    async with make_runtime() as runtime:
        ours, theirs = memory_streams()
        runtime.start_connection(partial(serve_stream, runtime, theirs, "10.0.0.9:5"), "visitor")
        await ours.send_all(b"GET /arcp HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n")
        await ours.send_all(b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\r\n")
        await trio.sleep(1)
        turned_away = lines.of("connection turned away")
    assert turned_away["peer"] == "10.0.0.9:5"
    assert turned_away["reason"] == "websocket"
    assert turned_away["why"]


async def test_the_steps_of_a_shutdown(lines: Lines, autojump_clock: MockClock) -> None:
    """A shutdown logs how many jobs run, how many the drain leaves, and the connections."""
    async with make_runtime() as runtime, open_peer(runtime) as peer:
        await peer.hello()
        await peer.submit("sleeper")
        lines.json.clear()
        await runtime.shutdown(drain=5)
    assert lines.events("session parked") == [
        "shutting down",
        "ending jobs",
        "job ended",
        "closing connections",
        "connection ended",
        "runtime over",
    ]
    begun = lines.of("shutting down")
    left = {"ending": 1, "going_on": 0, "waiting_for_people": 0}
    assert begun == {"level": "info", "jobs": 1, "drain_seconds": 5, **left}
    assert lines.of("connection ended")["close_code"] == 1001


async def test_credentials_are_told_of_by_their_ids(
    lines: Lines, autojump_clock: MockClock
) -> None:
    """Each issued and revoked credential is logged with its id, principal and job."""
    async with providing.provided(Upstream(), providing.SafeStore()) as (_, peer):
        accepted = await peer.submit("worker", lease_request=providing.LEASE)
        await peer.until_terminal(accepted["job_id"])
    (credential,) = accepted["credentials"]
    issued, revoked = lines.of("credentials issued"), lines.of("credential revoked")
    assert issued["credential_ids"] == [credential["id"]]
    assert revoked["credential_id"] == credential["id"]
    assert issued["job_id"] == revoked["job_id"] == accepted["job_id"]
    assert issued["principal"] == revoked["principal"]


async def busy(runtime: Runtime, secrets: set[str]) -> None:
    """Use a secret wherever a client or an agent can; add the runtime's own to `secrets`."""

    @runtime.agent("gossip")
    async def gossip(job: JobContext) -> Json:
        await job.log(SECRET)
        await job.emit("x-vendor.test.note", {"note": SECRET})
        async with job.tool_call("llm.call", {"key": SECRET}) as call:
            call.result = {"answer": SECRET}
        child = await job.delegate("worker", lease={"model.use": ["tier-fast/x"]})
        await child.result()
        async with job.stream_result() as out:
            await out.write(SECRET)

    async with open_peers(runtime) as peers:
        for token in (SECRET, f"{SECRET}\n", TEST_TOKEN + SECRET):
            stranger = await peers.connect()
            with pytest.raises(ArcpError):
                await stranger.hello(token=token)
        peer = await peers.connect()
        await peer.hello()
        job = await peer.submit("gossip", SECRET, lease_request=providing.LEASE)
        secrets |= {each["value"] for each in job["credentials"]}
        await peer.until_terminal(job["job_id"])
        for bad in (
            f'{{"{SECRET}"',
            SECRET.encode(),
            f'{{"type":"job.submit","payload":"{SECRET}"',
        ):
            await peer.send_raw(bad)
            await peer.expect("session.error")
        for payload in ({"agent": 7, "input": SECRET}, {"agent": "x", "input": SECRET}):
            await peer.send("job.submit", payload)
            await peer.expect("session.error")
        job = await peer.submit("sleeper", {"deep": [SECRET]}, lease_request=providing.LEASE)
        secrets |= {each["value"] for each in job["credentials"]}
        await peer.send("job.cancel", {"job_id": job["job_id"], "reason": SECRET})
        await peer.until_terminal(job["job_id"])
        await peer.drop()
        for _ in range(3):
            secrets.add(str(peer.resume_token))
            again = await peers.connect()
            await again.hello(resume=peer.resume_from())
            await again.drop()
            peer = again
        forged = peer.resume_from() | {"resume_token": SECRET}
        with pytest.raises(ArcpError):
            await (await peers.connect()).hello(resume=forged)


async def test_no_secret_gets_into_the_log(all_lines: Lines, autojump_clock: MockClock) -> None:
    """Not even the log at level debug shows a token, a credential or a job's content."""
    secrets = {SECRET, TEST_TOKEN, CREDENTIAL, BOB}
    async with providing.providing_runtime(Upstream(), providing.SafeStore()) as runtime:
        await busy(runtime, secrets)
    assert len(secrets) > 6
    assert {"job ended", "request refused", "session resumed"} <= set(all_lines.events())
    told = [line for line in all_lines.json + all_lines.text if any(s in line for s in secrets)]
    assert not told


async def test_an_agents_name_cannot_forge_a_line(lines: Lines, autojump_clock: MockClock) -> None:
    """A client's text in the log stays on one line."""
    forged = "x\n2026-01-01T00:00:00.000Z info    arcp_trio: all is well"
    async with make_runtime() as runtime, open_peer(runtime) as peer:
        await peer.hello()
        for agent in (forged, "a\r\x1b[2Kb", "\u2028"):
            with pytest.raises(ArcpError):
                await peer.submit(agent)
    assert all(line.splitlines() == [line] for line in lines.text + lines.json)
