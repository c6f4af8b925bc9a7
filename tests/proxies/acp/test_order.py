"""What clients see of an agent is in the order in which the agent wrote it, whatever clients do."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from arcp_trio import Limits
from arcp_trio.testing import Peer, PeerFactory, open_peers
from arcp_trio.testing.frames import Frame
from tests.proxies.acp.stage import SECONDS, begin, command, connected, runtime_of, steps, told
from tests.proxies.acp.wire import PairingRecorder
from tests.reading import until_end

pytestmark = pytest.mark.real_tcp

FEATURES = ("heartbeat", "ack", "result_chunk", "progress", "subscribe", "list_jobs")
CALL = {"sessionUpdate": "tool_call", "toolCallId": "c", "kind": "read", "title": "t"}
DONE = {"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed"}


def text_of(frames: Iterable[Frame]) -> str:
    """Return the streamed result among frames."""
    return "".join(
        frame["payload"]["body"]["data"]
        for frame in frames
        if frame["type"] == "job.event" and frame["payload"]["kind"] == "result_chunk"
    )


def counted(text: str) -> list[int]:
    """Return the numbers that an agent has told, each in an update of its own."""
    return [int(word.rstrip("x")) for word in text.split()]


@asynccontextmanager
async def peers_of(limits: Limits | None = None) -> AsyncGenerator[PeerFactory]:
    """Connect raw clients to a runtime with the scripted agent; each frame is checked."""
    with trio.fail_after(SECONDS):
        async with runtime_of(limits=limits) as runtime, open_peers(runtime) as peers:
            peers.recorder = PairingRecorder()
            yield peers


async def welcomed(peers: PeerFactory, **terms: Any) -> Peer:
    """Return a client with a session."""
    peer = await peers.connect()
    await peer.hello(token="tok", features=FEATURES, **terms)
    return peer


async def test_a_client_that_is_deaf_for_a_while() -> None:
    """Of 20,000 updates, a client that reads none for two seconds misses none."""
    async with peers_of() as peers:
        peer = await welcomed(peers)
        flood = steps(["flood", 20_000, 200], ["say", "end"])
        job_id = (await peer.submit("scripted", flood))["job_id"]
        await trio.sleep(2)
        frames = await until_end(peer, job_id)
        text = text_of(frames)
        assert counted(text.removesuffix("end").replace("x", " ")) == list(range(20_000))
        assert text.endswith("xend")


async def test_a_resume_in_the_middle() -> None:
    """A client that loses its connection again and again has the whole in the end, once."""
    async with peers_of() as peers:
        peer = await welcomed(peers)
        flood = steps(["flood", 400, 5_000], ["sleep", 0.3], ["flood", 400, 5_000])
        job_id = (await peer.submit("scripted", flood))["job_id"]
        for _ in range(5):
            for _ in range(4):
                await peer.receive()
            await peer.drop()
            peer = await welcomed(peers, resume=peer.resume_from())
        await peer.until_terminal(job_id)
        text = text_of(peers.recorder.events(job_id))
        assert counted(text.replace("x", " ")) == [*range(400), *range(400)]


async def test_two_observers_see_the_same() -> None:
    """Two sessions that watch a job see the same events as its submitter, in the same order."""
    async with peers_of() as peers:
        submitter = await welcomed(peers)
        prompt = steps(["sleep", 0.5], ["calls", 200], ["flood", 2_000, 500])
        job_id = (await submitter.submit("scripted", prompt))["job_id"]
        watchers = [await welcomed(peers) for _ in range(2)]
        seen: list[list[Any]] = []
        for watcher in watchers:
            request = await watcher.send("job.subscribe", {"job_id": job_id, "history": True})
            await watcher.answer("job.subscribed", request)
        for peer in (submitter, *watchers):
            await peer.until_terminal(job_id)
            events = peers.recorder.events(job_id, session_id=peer.session_id)
            payloads = [frame["payload"] for frame in events]
            # Whether a session is behind is its own affair.
            behind = [each["body"].get("phase") == "back_pressure" for each in payloads]
            seen.append([each for each, own in zip(payloads, behind, strict=True) if not own])
        assert seen[0] == seen[1] == seen[2]
        assert len(seen[0]) > 400


async def test_text_is_not_merged_across_a_call() -> None:
    """Words before and after a tool call are events before and after it, in one write or not."""
    async with connected() as client:
        words = {"sessionUpdate": "agent_message_chunk"}
        said = [{**words, "content": {"type": "text", "text": text}} for text in "abcd"]
        thought = {**said[0], "sessionUpdate": "agent_thought_chunk"}
        sent = [said[0], CALL, said[1], DONE, said[2], thought, said[3]]
        handle = await begin(client, ["updates", *sent])
        assert await handle.result() == "abcd"
        assert [body.get("data", body.get("text", kind)) for kind, body in await told(handle)] == [
            "a",
            "tool_call",
            "b",
            "tool_result",
            "c",
            "a",
            "d",
            "",
        ]


async def test_text_that_waits_is_merged() -> None:
    """Words that are waiting when the job can go on are one event, of a bounded size."""
    async with peers_of(limits=Limits(journal_bytes=50_000, tail_bytes=50_000)) as peers:
        peer = await welcomed(peers)
        job_id = (await peer.submit("scripted", steps(["flood", 5_000, 500])))["job_id"]
        await peer.expect("job.event", kind="result_chunk")
        await trio.sleep(2)  # the client does not read, and so the job waits
        await peer.until_terminal(job_id)
        frames = peers.recorder.events(job_id)
        assert counted(text_of(frames).replace("x", " ")) == list(range(5_000))
        assert 5_000 < max(len(text_of([frame])) for frame in frames) < 70_000


async def test_a_permission_stands_after_its_call() -> None:
    """What was told before a request is told before its decision, and what came after it later."""
    async with connected() as client:
        handle = await begin(
            client, ["updates", CALL], ["say", "a"], ["ask", {"kind": "edit"}], ["say", "b"]
        )
        await handle.result()
        events = await told(handle)
        order = [body.get("tool", body.get("data", kind)) for kind, body in events]
        assert order[:4] == ["acp/read", "a", "session/request_permission", "tool_result"]
        assert "".join(order[4:]).endswith("btool_result")


EARLY = {
    "method": "session/update",
    "params": {
        "sessionId": "s-1",
        "update": {"sessionUpdate": "current_mode_update", "currentModeId": "early"},
    },
}


async def test_what_comes_before_the_turn() -> None:
    """An update that comes before the answer to `session/new`, or after it, is told in order."""
    agents = {"hasty": command(before_session=[EARLY], after_session=[EARLY, EARLY])}
    async with connected(agents) as client:
        handle = await begin(client, ["say", "x"], agent="hasty")
        assert await handle.result() == "x"
        events = [(event.kind, event.body) async for event in handle.events()]
        phases = [body["phase"] for kind, body in events if kind == "status"]
        assert phases == ["starting", "session", *["acp.current_mode_update"] * 3]


ASKS: Frame = {
    "id": "early",
    "method": "session/request_permission",
    "params": {"sessionId": "s-1", "toolCall": {"toolCallId": "t", "kind": "edit"}, "options": []},
}


async def test_a_request_before_the_turn() -> None:
    """A request that comes before the agent is prompted is decided as any other."""
    async with connected({"hasty": command(after_session=[ASKS])}) as client:
        handle = await begin(client, ["say", "x"], agent="hasty")
        assert await handle.result() == "x"
        kinds = [(kind, body.get("tool")) for kind, body in await told(handle)]
        assert kinds[:2] == [("tool_call", "session/request_permission"), ("tool_result", None)]


async def test_what_comes_after_the_turn() -> None:
    """An update after the answer is the job's if its agent is given time to settle."""
    async with connected(settle_seconds=3) as client:
        assert await (await begin(client, ["burst", 3])).result() == "0 1 2 late"


async def test_updates_of_another_session() -> None:
    """What an agent tells of a session that is not the job's is not the job's."""
    async with connected() as client:
        handle = await begin(client, ["elsewhere", "stolen"], ["say", "x"])
        assert await handle.result() == "x"


async def test_jobs_beside_each_other() -> None:
    """Jobs of one agent have a process each, and their words do not mix."""
    async with connected() as client:
        handles = [await begin(client, ["pid"], ["say", f" {n}"]) for n in range(4)]
        results = [await handle.result() for handle in handles]
        assert len({each.split()[0] for each in results}) == 4
        assert [each.split()[1] for each in results] == ["0", "1", "2", "3"]


async def test_a_client_without_chunks() -> None:
    """A client that takes no chunks has the whole result at the end, as far as a frame has room."""
    async with peers_of() as peers:
        peer = await peers.connect()
        await peer.hello(token="tok", features=("heartbeat",))
        job_id = (await peer.submit("scripted", steps(["say", "a"], ["say", "b"])))["job_id"]
        end = await peer.until_terminal(job_id)
        assert end["payload"]["result"] == "ab"
        flood = steps(["flood", 3_000, 1_000])
        job_id = (await peer.submit("scripted", flood))["job_id"]
        end = await peer.until_terminal(job_id)
        assert end["payload"]["final_status"] == "success"
        numbers = counted(end["payload"]["result"].replace("x", " "))
        assert numbers == list(range(len(numbers)))
        assert 800 < len(numbers) < 1_100
        (warning,) = [
            frame["payload"]["body"]
            for frame in peers.recorder.events(job_id)
            if frame["payload"]["kind"] == "log"
        ]
        assert "does not fit" in warning["message"]
