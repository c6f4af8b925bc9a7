"""Streamed results are put together from their chunks, or refused with the reason."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from trio.testing import MockClock

from arcp_trio import BrokenResult, connect
from arcp_trio.client.assembly import Assembly
from tests.client.support import TOKEN, Network, Wire, real_runtime, scripted


def chunk(seq: int, data: str, *, more: bool = True, **fields: Any) -> dict[str, Any]:
    """Return the body of a chunk."""
    body = {"result_id": "res_1", "chunk_seq": seq, "data": data, "encoding": "utf8", "more": more}
    return body | fields


def put_together(*bodies: Any, size: int | None = None, most: int = 1_000) -> str | bytes:
    """Return the result of these chunks."""
    assembly = Assembly(most)
    for body in bodies:
        assembly.add(body)
    return assembly.result("res_1", size)


def test_text_and_bytes() -> None:
    """A result of text chunks is text; with any binary chunk it is bytes."""
    assert put_together(chunk(0, "é漢"), chunk(1, "😀", more=False), size=9) == "é漢😀"
    assert (
        put_together(chunk(0, "/wA=", encoding="base64"), chunk(1, "é", more=False))
        == b"\xff\x00\xc3\xa9"
    )
    assert put_together(chunk(0, "", more=False), size=0) == ""
    assert put_together(size=0) == ""


def test_the_same_chunk_twice_is_one() -> None:
    """An identical repeat is tolerated."""
    assert put_together(chunk(0, "a"), chunk(0, "a"), chunk(1, "b", more=False)) == "ab"


def test_a_result_that_is_begun_anew() -> None:
    """The chunks of a result that was begun before another one are dropped."""
    before = [chunk(0, "x" * 600, result_id="res_0"), chunk(1, "y" * 300, result_id="res_0")]
    assert put_together(*before, chunk(0, "a" * 600), chunk(1, "b", more=False)) == "a" * 600 + "b"


@pytest.mark.parametrize(
    ("bodies", "why"),
    [
        ([chunk(0, "a"), chunk(2, "c", more=False)], "chunk 1 is missing"),
        ([chunk(1, "b", more=False)], "chunk 0 is missing"),
        ([chunk(0, "a")], "the last chunk is missing"),
        ([chunk(0, "a"), chunk(0, "A"), chunk(1, "b", more=False)], "not the same"),
        ([chunk(0, "a", more=False), chunk(1, "b", more=False)], "after the last"),
        ([chunk(0, "a"), chunk(1, "b", more=False, result_id="res_2")], "two results"),
        ([chunk(0, "a", more=False, result_id="res_2")], "chunks were of res_2"),
        ([chunk(0, "a", more=False, encoding="rot13")], "encoding"),
        ([chunk(0, "a" * 1_001, more=False)], "max_result_bytes"),
        ([chunk(-1, "a", more=False)], "chunk_seq"),
        ([{"data": "a"}], "result_id"),
        (["what"], "object"),
        ([], "none of the result's chunks"),
    ],
)
def test_what_is_no_result(bodies: list[Any], why: str) -> None:
    """Chunks that do not make up a result are refused with the reason."""
    with pytest.raises(BrokenResult, match=why):
        put_together(*bodies, size=1)


@pytest.mark.parametrize("data", ["!!!!", "YQ", "YWFh\nYWFh", "YQ=", "YQ==YQ==", "YQ==="])
def test_base64_is_strict(data: str) -> None:
    """Other characters, missing padding and line breaks are not base64."""
    with pytest.raises(BrokenResult, match="not base64"):
        put_together(chunk(0, data, encoding="base64", more=False))


def test_the_size_must_be_right() -> None:
    """The size of the result must be what the job's end says."""
    with pytest.raises(BrokenResult, match="has 1 bytes and should have 2"):
        put_together(chunk(0, "a", more=False), size=2)


async def test_only_its_own_handle_fails(autojump_clock: MockClock) -> None:
    """A broken or oversized result fails its own job alone."""

    async def script(wire: Wire) -> None:
        await wire.welcome()
        for job_id in ("job_1", "job_2", "job_3", "job_4"):
            await wire.accept(job_id)
        encoded = b64encode(b"x" * 40).decode()
        await wire.event(1, "job_1", "result_chunk", chunk(0, "!!", encoding="base64"))
        await wire.event(2, "job_2", "result_chunk", chunk(0, encoded, encoding="base64"))
        await wire.event(3, "job_3", "result_chunk", chunk(0, "good", more=False))
        await wire.event(4, "job_4", "result_chunk", chunk(0, "both", more=False))
        end = {"final_status": "success", "result_id": "res_1", "result_size": 4}
        for seq, job_id in ((5, "job_1"), (6, "job_2"), (7, "job_3")):
            await wire.result(seq, job_id, **end)
        await wire.result(8, "job_4", "inline")
        await wire.end()

    async with (
        scripted(script) as runtime,
        connect(runtime.open, token=TOKEN, max_result_bytes=32) as client,
    ):
        jobs = [await client.submit("echo") for _ in range(4)]
        # Chunks are events like others, whether the result is good or broken.
        for job in jobs:
            assert [event.kind async for event in job.events()] == ["result_chunk"]
        for job, why in (
            (jobs[0], "not base64"),
            (jobs[1], "max_result_bytes"),
            (jobs[3], "refer"),
        ):
            with pytest.raises(BrokenResult, match=why):
                await job.result()
        assert await jobs[2].result() == "good"


async def test_from_the_real_runtime(autojump_clock: MockClock) -> None:
    """A streamed result of the real runtime comes assembled."""
    async with (
        real_runtime() as runtime,
        connect(Network(runtime).open, token=TOKEN) as client,
    ):
        job = await client.submit("report", 50)
        assert await job.result() == "".join(f"piece {n}; " for n in range(50))
