"""Streamed results: who gets them in which form, and how long (§8.4)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import InternalError, JobContext, MemoryStore
from arcp_trio.testing import Peer
from arcp_trio.wire.features import ALL_FEATURES
from arcp_trio.wire.json import Json
from tests.durability.stores import crash
from tests.durability.story import World
from tests.jobs.streams import UNABLE, Act, Stage, chunks, failure, joined, open_stage
from tests.slow_stores import SlowStore

MIB = 1024 * 1024


@pytest.fixture
async def stage() -> AsyncGenerator[Stage, None]:
    """A stage with the default limits."""
    async with open_stage() as opened:
        yield opened


def streaming(data: str | bytes, times: int = 1) -> Act:
    """Return an agent that streams this, `times` times."""

    async def act(job: JobContext) -> None:
        async with job.stream_result("utf8" if isinstance(data, str) else "base64") as out:
            for _ in range(times):
                await out.write(data)

    return act


# -- clients that cannot take chunks


@pytest.mark.parametrize(
    ("data", "inline"), [("é漢😀", "é漢😀"), ("", ""), (b"\xff\xef", "/+8="), (b"", "")]
)
@pytest.mark.spec("6.2-4", "8.4-9", "8.4-10")
async def test_without_the_feature_the_result_is_inline(
    data: str | bytes, inline: str, autojump_clock: MockClock
) -> None:
    """A client without `result_chunk` gets the result inline: text, or base64 for bytes."""
    async with open_stage(chunk_bytes=4) as stage:
        peer = await stage.welcomed(features=UNABLE)
        found, end = await stage.play(streaming(data, 3), peer=peer)
        whole = inline * 3 if isinstance(data, str) or not data else "/+//7//v"
        payload = end["payload"]
        assert (found, payload.pop("completed_at") > "") == ([], True)
        assert payload == {"final_status": "success", "result": whole}
        assert end["event_seq"] == 1


async def test_chunks_by_hand_are_gathered_too(stage: Stage, autojump_clock: MockClock) -> None:
    """Chunks made by hand are gathered, too; a mixture is base64 as a whole."""

    async def act(job: JobContext) -> None:
        body = {"result_id": "mine", "chunk_seq": 0, "data": "é", "encoding": "utf8", "more": True}
        await job.emit("result_chunk", body)
        await job.emit(
            "result_chunk", body | {"chunk_seq": 1, "data": "/w==", "encoding": "base64"}
        )
        await job.emit("result_chunk", body | {"chunk_seq": 2, "data": "xyz", "more": False})

    _, end = await stage.play(act, peer=await stage.welcomed(features=UNABLE))
    assert end["payload"]["result"] == "w6n/eHl6"


@pytest.mark.logs_error("agent=act@1.0.0 ")
@pytest.mark.parametrize("data", ["\x00" * 300_000, bytes(900_000), "x" * (2 * MIB)])
async def test_an_inline_result_has_to_fit(
    stage: Stage, data: str | bytes, autojump_clock: MockClock
) -> None:
    """A gathered result that is too large for a frame fails the job and names the limit."""

    async def act(job: JobContext) -> None:
        with suppress(InternalError):
            await streaming(data)(job)

    _, end = await stage.play(act, peer=await stage.welcomed(features=UNABLE))
    assert failure(end)[0] == "INTERNAL_ERROR"
    assert end["payload"]["details"] == {"limit": "frame_bytes_out", "max": MIB}


async def test_no_more_is_gathered_than_fits(stage: Stage, autojump_clock: MockClock) -> None:
    """A job whose gathered result no longer fits fails while it is being written."""
    written = 0

    async def act(job: JobContext) -> None:
        nonlocal written
        async with job.stream_result() as out:
            while True:
                await out.write("x" * 100_000)
                written += 100_000

    _, end = await stage.play(act, peer=await stage.welcomed(features=UNABLE))
    assert end["payload"]["details"] == {"limit": "frame_bytes_out", "max": MIB}
    assert written < 2 * MIB


@pytest.mark.logs_error("agent=act@1.0.0 ")
async def test_without_the_feature_half_a_result_is_no_success(
    stage: Stage, autojump_clock: MockClock
) -> None:
    """An unfinished result fails the job for clients without the feature, too."""

    async def act(job: JobContext) -> Json:
        await streaming("streamed")(job)
        return "returned"

    _, end = await stage.play(act, peer=await stage.welcomed(features=UNABLE))
    assert failure(end)[1] == "the agent returned a value beside its streamed result"


async def test_who_comes_without_the_feature_gets_the_terminal_as_it_is(
    stage: Stage, autojump_clock: MockClock
) -> None:
    """A later session without the feature gets the terminal with the chunks' id."""
    stage.act = streaming("x")
    able, unable = await stage.welcomed(), await stage.welcomed(features=UNABLE)
    job_id = (await able.submit("act", idempotency_key="k"))["job_id"]
    end = await able.until_terminal(job_id)
    assert (await unable.submit("act", idempotency_key="k"))["job_id"] == job_id
    again = await unable.until_terminal(job_id)
    assert again["payload"] == end["payload"]
    assert chunks(unable, job_id) == []
    job_id = (await unable.submit("act", idempotency_key="other"))["job_id"]
    end = await unable.until_terminal(job_id)
    assert end["payload"]["result"] == "x"
    assert (await able.submit("act", idempotency_key="other"))["job_id"] == job_id
    assert (await able.until_terminal(job_id))["payload"] == end["payload"]


# -- children


@pytest.mark.parametrize("features", [ALL_FEATURES, UNABLE], ids=["chunks", "inline"])
@pytest.mark.parametrize("data", ["é", b"\xff"])
async def test_a_parent_gets_the_whole(
    stage: Stage, data: str | bytes, features: tuple[str, ...], autojump_clock: MockClock
) -> None:
    """A parent gets its child's whole result, whatever the client can take."""
    stage.act = streaming(data, 3)
    peer = await stage.welcomed(features=features)
    job_id = (await peer.submit("boss", lease_request={"agent.delegate": ["act"]}))["job_id"]
    end = await peer.until_terminal(job_id)
    expected = {"type": "str", "result": "ééé"}
    if isinstance(data, bytes):
        expected = {"type": "bytes", "result": "ff" * 3}
    assert end["payload"]["result"] == expected


async def test_a_parent_gets_what_is_many_pages_long(
    stage: Stage, autojump_clock: MockClock
) -> None:
    """A parent reads a long result of its child from the store."""
    data = "é漢😀 report" * 100_000
    sizes: list[int] = []
    stage.act = streaming(data, 8)

    @stage.runtime.agent("reader")
    async def reader(job: JobContext) -> None:
        child = await job.delegate("act")
        whole = await child.result()
        assert whole == data * 8 == await child.result()
        sizes.append(len(whole))

    peer = await stage.welcomed()
    job_id = (await peer.submit("reader", lease_request={"agent.delegate": ["act"]}))["job_id"]
    end = await peer.until_terminal(job_id)
    assert (end["type"], sizes) == ("job.result", [len(data) * 8])
    child = next(frame["job_id"] for frame in peer.seen if frame["type"] == "job.accepted")
    whole = joined(chunks(peer, child), await peer.until_terminal(child))
    assert whole == data.encode() * 8


async def test_a_parent_waits_for_what_is_not_stored_yet(autojump_clock: MockClock) -> None:
    """A parent waits until the last chunks of its ended child are stored."""
    async with open_stage(store=SlowStore(1), chunk_bytes=4) as stage:
        stage.act = streaming("one two ")
        peer = await stage.welcomed()
        job_id = (await peer.submit("boss", lease_request={"agent.delegate": ["act"]}))["job_id"]
        end = await peer.until_terminal(job_id)
        assert end["payload"]["result"] == {"type": "str", "result": "one two "}


async def test_a_parent_is_told_of_a_result_that_is_gone(autojump_clock: MockClock) -> None:
    """A parent gets an error, not a part, when its child's chunks were given up."""
    async with open_stage(store=MemoryStore(journal_bytes=10_000), chunk_bytes=1_000) as stage:
        stage.act = streaming("x" * 1_000, 1_000)
        peer = await stage.welcomed()
        job_id = (await peer.submit("boss", lease_request={"agent.delegate": ["act"]}))["job_id"]
        _, message = failure(await peer.until_terminal(job_id))
        assert message.startswith("the beginning of the streamed result is no longer stored: ")


# -- bounds

too_much = streaming("x" * 100, 11)


async def too_much_but_quiet(job: JobContext) -> None:
    """Return an agent that streams this and swallows the refusal."""
    with pytest.raises(InternalError) as caught:
        await too_much(job)
    caught.value.details["limit"] = "spoilt"


@pytest.mark.spec("14-15", "14-16")
@pytest.mark.parametrize("features", [ALL_FEATURES, UNABLE], ids=["chunks", "inline"])
@pytest.mark.parametrize(
    "act",
    [too_much, pytest.param(too_much_but_quiet, marks=pytest.mark.logs_error("result_bytes"))],
)
async def test_a_result_has_its_bound(
    features: tuple[str, ...], act: Act, autojump_clock: MockClock
) -> None:
    """A result past `result_bytes` fails the job, even if its agent goes on."""
    async with open_stage(result_bytes=1_000, chunk_bytes=64) as stage:
        peer = await stage.welcomed(features=features)
        _, end = await stage.play(streaming("x" * 100, 10), peer=peer)
        assert end["type"] == "job.result"
        found, end = await stage.play(act, peer=peer)
        assert failure(end)[0] == "INTERNAL_ERROR"
        assert end["payload"]["details"] == {"limit": "result_bytes", "max": 1_000}
        assert sum(len(chunk["data"]) for chunk in found) <= 1_000
        assert all(chunk["more"] for chunk in found)


# -- resumes, restarts and slow readers


async def resumed(stage: Stage, peer: Peer) -> Peer:
    """Return a client that has resumed another's session."""
    again = await stage.connect()
    await again.hello(resume=peer.resume_from())
    return again


async def test_a_stream_goes_on_for_a_client_that_is_away(autojump_clock: MockClock) -> None:
    """A client that resumes twice in the middle gets every chunk once, in order."""

    async def act(job: JobContext) -> None:
        async with job.stream_result() as out:
            for n in range(100):
                await out.write(f"{n:04}")
                await trio.sleep(1)

    async with open_stage(chunk_bytes=4) as stage:
        stage.act = act
        peer = await stage.welcomed()
        job_id = (await peer.submit("act"))["job_id"]
        for away in (0.5, 30):
            for _ in range(10):
                await peer.expect("job.event")
            await peer.drop()
            await trio.sleep(away)
            peer = await resumed(stage, peer)
        end = await peer.until_terminal(job_id)
        assert joined(chunks(peer, job_id), end) == b"".join(b"%04d" % n for n in range(100))


async def test_a_stream_that_a_restart_cuts_off(autojump_clock: MockClock) -> None:
    """A restart keeps the chunks of a stream without a last one, and the job has failed."""
    world = World(MemoryStore(), chunk_bytes=4)

    @world.runtime.agent("act")
    async def act(job: JobContext) -> None:
        async with job.stream_result() as out:
            await out.write("one two ")
            if job.input:
                await trio.sleep_forever()

    async with world.runtime:
        peer = world.connect()
        await peer.hello()
        done, cut = [(await peer.submit("act", wait))["job_id"] for wait in (False, True)]
        await peer.until_terminal(done)
        await peer.expect("job.event", job_id=cut)
        heir = World(crash(world.store), recorder=world.recorder, clock=world.clock)
        async with heir.runtime:
            again = heir.connect()
            await again.hello(resume=peer.resume_from() | {"last_event_seq": 0})
            end = await again.until_terminal(done)
            assert joined(chunks(again, done), end) == b"one two "
            code, _ = failure(await again.until_terminal(cut))
            assert code == "INTERNAL_ERROR"
            assert [chunk["more"] for chunk in chunks(again, cut)] == [True]


async def test_a_writer_waits_for_its_reader(autojump_clock: MockClock) -> None:
    """Past `journal_bytes` an agent writes as fast as its client reads."""
    written = 0

    async def act(job: JobContext) -> None:
        nonlocal written
        async with job.stream_result() as out:
            for _ in range(2_000):
                await out.write("x" * 10_000)
                written += 1

    bounds: Any = {"journal_bytes": MIB, "tail_bytes": MIB, "chunk_bytes": 10_000}
    async with open_stage(**bounds, heartbeat_seconds=100_000) as stage:
        stage.act = act
        peer = await stage.welcomed()
        job_id = (await peer.submit("act"))["job_id"]
        await trio.sleep(60)
        waiting_at = written
        assert 100 < waiting_at < 600
        for _ in range(300):
            await peer.receive()
        await wait_all_tasks_blocked()
        assert waiting_at < written < 1_000
        end = await peer.until_terminal(job_id)
        assert len(joined(chunks(peer, job_id), end)) == 20_000_000
