"""An agent that makes its chunks itself is held to the rules of streamed results (§8.4)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

import pytest
from trio.testing import MockClock

from arcp_trio import InternalError, JobContext
from arcp_trio.wire.events import InvalidEvent
from arcp_trio.wire.json import Json, JsonObject
from tests.jobs.streams import Act, Stage, failure, joined, open_stage


@pytest.fixture
async def stage() -> AsyncGenerator[Stage, None]:
    """A stage with the default limits."""
    async with open_stage() as opened:
        yield opened


def chunk(seq: int, **fields: Json) -> JsonObject:
    """Return the body of a valid chunk."""
    body: JsonObject = {
        "result_id": "mine",
        "chunk_seq": seq,
        "data": "x",
        "encoding": "utf8",
        "more": True,
    }
    return body | fields


LAST = {"more": False}
BASE64 = {"encoding": "base64"}


def emitting(*bodies: JsonObject) -> Act:
    """Return an agent that emits these chunks and returns None."""

    async def act(job: JobContext) -> None:
        for body in bodies:
            await job.emit("result_chunk", body)

    return act


@pytest.mark.spec("8.4-8", "8.4-11")
async def test_a_right_sequence_is_a_result(stage: Stage, autojump_clock: MockClock) -> None:
    """The terminal has the chunks' id, and each chunk may have its own encoding."""
    act = emitting(
        chunk(0, data="é", x=1),
        chunk(1, data="/+8=", **BASE64),
        chunk(2, data="", **BASE64),
        chunk(3, data="漢", **LAST),
    )
    found, end = await stage.play(act)
    assert joined(found, end) == "é".encode() + b"\xff\xef" + "漢".encode()
    assert end["payload"]["result_id"] == "mine"
    assert found[0]["x"] == 1


@pytest.mark.parametrize(
    ("before", "wrong"),
    [
        ((), chunk(1)),
        ((chunk(0),), chunk(2)),
        ((chunk(0),), chunk(0)),
        ((chunk(0), chunk(1)), chunk(0)),
        ((chunk(0),), chunk(1, result_id="another")),
        ((chunk(0, **LAST),), chunk(1)),
        ((chunk(0, **LAST),), chunk(0, **LAST)),
        ((chunk(0, **LAST),), chunk(0, result_id="another")),
        *(
            ((), chunk(0, data=data, **BASE64))
            for data in ("!!!!", "QQ", "QQ=", "QQ==\n", "Q Q==", "QQ==QQ==", "=", "é", "-_8=")
        ),
        ((), chunk(0, encoding="utf-8")),
        ((), chunk(0, data=b"x")),
        ((), chunk(0, data="\ud800")),
    ],
)
@pytest.mark.spec("8.4-1", "8.4-2", "8.4-3", "8.4-5")
async def test_a_wrong_chunk_reaches_nobody(
    stage: Stage,
    before: Sequence[JsonObject],
    wrong: JsonObject,
    autojump_clock: MockClock,
    request: pytest.FixtureRequest,
) -> None:
    """A wrong chunk is refused before it is stored, and the sequence can go on after it."""

    async def act(job: JobContext) -> None:
        for body in before:
            await job.emit("result_chunk", body)
        with pytest.raises(InvalidEvent, match=r"^result_chunk: "):
            await job.emit("result_chunk", wrong)
        if not before or before[-1]["more"]:
            await job.emit("result_chunk", chunk(len(before), **LAST))

    found, end = await stage.play(act)
    assert joined(found, end) == b"x" * len(found)
    assert end["event_seq"] == len(found) + 1


@pytest.mark.parametrize(
    ("bodies", "message"),
    [
        ([chunk(0)], "the agent did not finish its streamed result"),
        ([chunk(0), chunk(2, **LAST)], "the agent failed; the runtime's log says why"),
        (
            [chunk(0, **LAST), chunk(0, result_id="b", **LAST)],
            "the agent failed; the runtime's log says why",
        ),
    ],
)
@pytest.mark.logs_error("agent=act@1.0.0 ")
async def test_a_wrong_sequence_is_no_result(
    stage: Stage, bodies: list[JsonObject], message: str, autojump_clock: MockClock
) -> None:
    """A sequence that stops short, has a hole or is a second one fails the job."""
    found, end = await stage.play(emitting(*bodies))
    assert failure(end) == ("INTERNAL_ERROR", message)
    assert found == bodies[:1]


@pytest.mark.logs_error("a value beside its streamed result")
@pytest.mark.spec("8.4-10")
async def test_a_value_beside_chunks(stage: Stage, autojump_clock: MockClock) -> None:
    """A job that emits chunks and returns a value fails."""

    async def act(job: JobContext) -> Json:
        await job.emit("result_chunk", chunk(0, **LAST))
        return "value"

    _, end = await stage.play(act)
    assert failure(end)[1] == "the agent returned a value beside its streamed result"


@pytest.mark.spec("14-15", "14-16")
async def test_a_chunk_that_fits_no_frame(autojump_clock: MockClock) -> None:
    """A chunk larger than a frame is refused and not sent; smaller ones may follow."""

    async def act(job: JobContext) -> None:
        with pytest.raises(InternalError) as caught:
            await job.emit("result_chunk", chunk(0, data="x" * 2_000))
        assert caught.value.details == {"limit": "frame_bytes_out", "max": 2_000}
        await job.emit("result_chunk", chunk(0, **LAST))

    async with open_stage(frame_bytes_out=2_000) as stage:
        assert joined(*await stage.play(act)) == b"x"
        _, end = await stage.play(emitting(chunk(0, data="x" * 2_000)))
        assert end["payload"]["details"] == {"limit": "frame_bytes_out", "max": 2_000}


@pytest.mark.logs_error("the limit result_bytes is reached")
@pytest.mark.spec("14-15", "14-16")
async def test_chunks_that_are_too_much_together(autojump_clock: MockClock) -> None:
    """After the bound on the result was passed, the job cannot succeed any more."""

    async def act(job: JobContext) -> None:
        await job.emit("result_chunk", chunk(0, data="x" * 9))
        for data in ("xx", ""):
            with pytest.raises(InternalError) as caught:
                await job.emit("result_chunk", chunk(1, data=data, **LAST))
            assert caught.value.details == {"limit": "result_bytes", "max": 10}

    async with open_stage(result_bytes=10) as stage:
        found, end = await stage.play(act)
        assert [each["data"] for each in found] == ["x" * 9]
        assert failure(end)[0] == "INTERNAL_ERROR"
        assert end["payload"]["details"] == {"limit": "result_bytes", "max": 10}
