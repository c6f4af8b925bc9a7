"""Streamed results: how what an agent writes is cut into chunks (§8.4)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from itertools import pairwise
from typing import Any

import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from arcp_trio import JobContext, Limits
from arcp_trio.wire.json import Json
from tests.jobs.streams import Stage, joined, open_stage

MIB = 1024 * 1024


@pytest.fixture
async def stage() -> AsyncGenerator[Stage, None]:
    """A stage with the default limits."""
    async with open_stage() as opened:
        yield opened


def in_virtual_time(play: Any) -> None:
    """Run one example under a virtual clock of its own."""
    trio.run(play, clock=MockClock(autojump_threshold=0))


# -- the chunks


@pytest.mark.spec("8.4-1", "8.4-2", "8.4-3", "8.4-7", "8.4-11")
async def test_the_sequence_of_a_streamed_result(autojump_clock: MockClock) -> None:
    """40 events and 31 chunks of one id, then the terminal, have the numbers 1 to 72."""
    size = 31_457_280

    async def act(job: JobContext) -> None:
        for n in range(40):
            await job.log(f"intermediate work {n}")
        async with job.stream_result() as out:
            for _ in range(size // 8192):
                await out.write("é漢😀 report" * 512)

    async with open_stage(chunk_bytes=size // 31 + 8) as stage:
        stage.act = act
        peer = await stage.welcomed()
        job_id = (await peer.submit("act"))["job_id"]
        events = [await peer.receive() for _ in range(71)]
        assert [event["event_seq"] for event in events] == list(range(1, 72))
        bodies = [event["payload"]["body"] for event in events[40:]]
        assert {event["payload"]["kind"] for event in events[40:]} == {"result_chunk"}
        assert bodies[0].keys() == {"result_id", "chunk_seq", "data", "encoding", "more"}
        assert bodies[0]["result_id"].startswith("res_")
        assert bodies[0]["encoding"] == "utf8"
        end = await peer.receive()
        assert (end["type"], end["event_seq"], end["job_id"]) == ("job.result", 72, job_id)
        assert joined(bodies, end) == "é漢😀 report".encode() * 512 * (size // 8192)
        assert end["payload"]["result_size"] == size


@settings(max_examples=60)
@given(
    writes=st.lists(st.text(st.characters(codec="utf-8"), max_size=12), max_size=8),
    as_bytes=st.booleans(),
    chunk_bytes=st.integers(4, 17),
    data=st.data(),
)
@pytest.mark.spec("8.4-3", "8.4-6", "8.4-8")
def test_any_text_in_any_pieces(
    writes: list[str], as_bytes: object, chunk_bytes: int, data: st.DataObject
) -> None:
    """Chunks of text are as large as whole characters allow, and joined they are the text."""
    pieces: list[str | bytes] = list(writes)
    if as_bytes:
        whole = "".join(writes).encode()
        cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
        pieces = [whole[start:end] for start, end in pairwise([0, *cuts, len(whole)])]

    async def act(job: JobContext) -> None:
        async with job.stream_result() as out:
            for piece in pieces:
                await out.write(piece)

    async def play() -> None:
        async with open_stage(chunk_bytes=chunk_bytes) as stage:
            found, end = await stage.play(act)
            assert joined(found, end) == "".join(writes).encode()
            sizes = [len(chunk["data"].encode()) for chunk in found]
            assert all(chunk_bytes - 3 <= size <= chunk_bytes for size in sizes[:-1])
            assert (sizes[-1] == 0) == (sum(sizes) == 0)
            assert sizes[-1] <= chunk_bytes

    in_virtual_time(play)


@settings(max_examples=40)
@given(
    writes=st.lists(st.binary(max_size=20), max_size=6),
    kind=st.sampled_from([bytes, bytearray, memoryview]),
    chunk_bytes=st.integers(4, 17),
)
@example(writes=[bytes(12)], kind=bytes, chunk_bytes=12)
@pytest.mark.spec("8.4-5", "8.4-6", "8.4-8")
def test_any_bytes_in_any_pieces(
    writes: list[bytes], kind: type[bytes | bytearray | memoryview], chunk_bytes: int
) -> None:
    """Chunks of bytes are base64, all full but the last, and joined they are the bytes."""

    async def act(job: JobContext) -> None:
        async with job.stream_result("base64") as out:
            for piece in writes:
                await out.write(kind(piece))

    async def play() -> None:
        async with open_stage(chunk_bytes=chunk_bytes) as stage:
            found, end = await stage.play(act)
            size = len(b"".join(writes))
            assert joined(found, end) == b"".join(writes)
            assert len(found) == max(1, -(-size // chunk_bytes))

    in_virtual_time(play)


async def test_only_the_window_of_a_view_is_sent(stage: Stage, autojump_clock: MockClock) -> None:
    """A memoryview is sent as its slice, with steps and with items larger than a byte."""
    data = bytes(range(100))

    async def act(job: JobContext) -> None:
        view = memoryview(data)
        async with job.stream_result("base64") as out:
            await out.write(view[10:20])
            await out.write(view[20:30:2])
            await out.write(view.cast("I")[5:6])

    found, end = await stage.play(act)
    assert joined(found, end) == data[10:20] + data[20:30:2] + data[20:24]


async def test_a_write_may_be_used_again(stage: Stage, autojump_clock: MockClock) -> None:
    """A buffer may be changed after it was written."""

    async def act(job: JobContext) -> None:
        buffer = bytearray(b"one")
        async with job.stream_result("base64") as out:
            await out.write(buffer)
            buffer[:] = b"two"
            await out.write(buffer)

    assert joined(*await stage.play(act)) == b"onetwo"


async def test_by_default_chunks_have_a_quarter_of_a_mebibyte(
    stage: Stage, autojump_clock: MockClock
) -> None:
    """By default a large write is split into chunks of 256 KiB."""

    async def act(job: JobContext) -> None:
        async with job.stream_result() as out:
            await out.write("x" * MIB + "y")

    found, end = await stage.play(act)
    assert [len(chunk["data"]) for chunk in found] == [262_144] * 4 + [1]
    assert len(joined(found, end)) == MIB + 1


@pytest.mark.parametrize("text", ["\x00", '"', "\\", "\u2028", "😀", "\x7f"])
async def test_whatever_a_text_is_made_of_its_chunks_fit(
    stage: Stage, text: str, autojump_clock: MockClock
) -> None:
    """Text whose characters are escaped on the wire gets smaller chunks."""

    async def act(job: JobContext) -> None:
        async with job.stream_result() as out:
            await out.write(text * MIB)

    assert joined(*await stage.play(act)) == text.encode() * MIB


async def test_chunks_fit_into_small_frames(autojump_clock: MockClock) -> None:
    """Chunks fit into frames even where `frame_bytes_out` is below `chunk_bytes`."""

    async def act(job: JobContext) -> None:
        async with job.stream_result("base64") as out:
            await out.write(bytes(100_000))

    async with open_stage(frame_bytes_out=2_000) as stage:
        assert joined(*await stage.play(act)) == bytes(100_000)


async def test_several_tasks_may_write(autojump_clock: MockClock) -> None:
    """Writes of several tasks each stay in one piece."""

    async def act(job: JobContext) -> None:
        async def write(name: str) -> None:
            for _ in range(20):
                await out.write(f"<{name * 9}>")

        async with job.stream_result() as out, trio.open_nursery() as nursery:
            for name in "abc":
                nursery.start_soon(write, name)

    async with open_stage(chunk_bytes=8) as stage:
        whole = joined(*await stage.play(act)).decode()
        assert sorted(whole[1:-1].split("><")) == [name * 9 for name in "abc" for _ in range(20)]


# -- what cannot be written


@pytest.mark.parametrize(
    ("encoding", "data", "error"),
    [
        ("utf8", b"\xff", ValueError),
        ("utf8", b"\xc3(", ValueError),
        ("utf8", b"\xed\xa0\x80", ValueError),
        ("utf8", "\ud800", ValueError),
        ("utf8", 5, TypeError),
        ("utf8", None, TypeError),
        ("base64", "text", TypeError),
        ("base64", 5, TypeError),
    ],
)
async def test_a_write_that_is_refused_leaves_nothing(
    stage: Stage, encoding: Any, data: Any, error: type[Exception], autojump_clock: MockClock
) -> None:
    """A write that is neither text nor bytes is refused as a whole, and the result goes on."""

    async def act(job: JobContext) -> None:
        async with job.stream_result(encoding) as out:
            await out.write(b"one")
            with pytest.raises(error):
                await out.write(data)
            await out.write(b"two")

    assert joined(*await stage.play(act)) == b"onetwo"


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "", None])
async def test_there_are_two_encodings(
    stage: Stage, encoding: Any, autojump_clock: MockClock
) -> None:
    """An unknown encoding is refused before the stream begins."""

    async def act(job: JobContext) -> Json:
        with pytest.raises(ValueError, match="utf8 or base64"):
            job.stream_result(encoding)
        return "inline"

    found, end = await stage.play(act)
    assert (found, end["payload"]["result"]) == ([], "inline")


async def test_a_stream_is_written_to_within_its_block(
    stage: Stage, autojump_clock: MockClock
) -> None:
    """A write before or after the stream's block is refused and changes nothing."""

    async def act(job: JobContext) -> None:
        out = job.stream_result()
        with pytest.raises(ValueError, match="block"):
            await out.write("before")
        async with out:
            await out.write("within")
        with pytest.raises(ValueError, match="block"):
            await out.write("behind")

    assert joined(*await stage.play(act)) == b"within"


def test_a_chunk_has_room_for_any_character() -> None:
    """A `chunk_bytes` of less than four bytes cannot be configured."""
    with pytest.raises(ValueError, match="chunk_bytes"):
        Limits(chunk_bytes=3)
    with pytest.raises(ValueError, match="chunk_bytes"):
        Limits(chunk_bytes=0)
    with pytest.raises(ValueError, match="result_bytes"):
        Limits(result_bytes=0)
