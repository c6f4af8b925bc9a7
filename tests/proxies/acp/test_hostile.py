"""What no agent should write: its job bears it, and nobody else notices."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import trio

from arcp_trio import JobFailed
from tests.processes import gone
from tests.proxies.acp.stage import begin, command, connected, first_word, result_of, told

pytestmark = pytest.mark.real_tcp

MIB = 1024 * 1024


def resident() -> int:
    """Return how much memory this process has used at most, in bytes."""
    fields = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmHWM"].split()[0]) * 1024


async def test_a_banner() -> None:
    """Lines that are not frames, before and between the frames, cost nothing."""
    banner = ["garbage", 10, 30]
    agents = {"scripted": command(first=[banner])}
    async with connected(agents) as client:
        assert await result_of(client, banner, ["say", "x"], banner) == "x"


async def test_garbage_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    """An agent that writes nothing but garbage is given up, with few lines in the log."""
    caplog.set_level(logging.INFO)
    async with connected() as client:
        handle = await begin(client, ["say", "x"], ["garbage", 100_000, 1000])
        with pytest.raises(JobFailed, match="what its process writes is not ACP"):
            await handle.result()
        assert [body["data"] for _, body in await told(handle)] == ["x"]
    assert len(caplog.records) < 30


async def test_a_line_of_100_mb() -> None:
    """A line of 100 MB ends its job; it is not kept, and another job goes on meanwhile."""
    async with connected() as client:
        await result_of(client, ["say", "warm"])
        before = await trio.to_thread.run_sync(resident)
        ticks: list[list[Any]] = [["say", "tick "], ["sleep", 0.05]]
        other = await begin(client, *ticks * 20)
        handle = await begin(client, ["garbage", 100, 1_000_000, ""])
        with pytest.raises(JobFailed, match="writes has more than 33,554,432 bytes"):
            await handle.result()
        assert await other.result() == "tick " * 20
        assert await trio.to_thread.run_sync(resident) - before < 96 * MIB


async def test_64_mb_of_standard_error(caplog: pytest.LogCaptureFixture) -> None:
    """Standard error is read, and a bounded part of it is in the log; the client sees nothing."""
    caplog.set_level(logging.INFO)
    async with connected() as client:
        handle = await begin(client, ["errors", 64, 1_000_000], ["say", "x"])
        assert await handle.result() == "x"
        assert "last words" not in json.dumps(await told(handle))
    logged = [record.getMessage() for record in caplog.records]
    assert sum(map(len, logged)) < 2 * MIB
    assert any(line.startswith("program may say more") for line in logged)


ODD_VALUES = (
    r"{'a':'\ud800'}",
    "{'a':NaN}",
    "{'a':1e999}",
    "{'a':-Infinity}",
    "{'a':123456789012345678901234567890}",
    "[" * 100 + "]" * 100,
    "[" * 500 + "]" * 500,
    "[" * 100_000 + "]" * 100_000,
    "{" + ",".join(f"'k{n}':[]" for n in range(60_000)) + "}",
)


@pytest.mark.parametrize("value", ODD_VALUES, ids=range(len(ODD_VALUES)))
async def test_odd_values(value: str) -> None:
    """Half characters, numbers that are not any, and deep or broad values end no job."""
    fields = f"'sessionUpdate':'tool_call','toolCallId':'c','kind':'read','rawInput':{value}"
    params = f"{{'sessionId':'s-1','update':{{{fields}}}}}"
    line = f"{{'jsonrpc':'2.0','method':'session/update','params':{params}}}"
    async with connected() as client:
        handle = await begin(client, ["raw", line.replace("'", '"') + "\n"], ["say", "x"])
        assert await handle.result() == "x"
        kinds = [kind for kind, _ in await told(handle)]
        assert kinds in (
            ["tool_call", "result_chunk", "result_chunk", "tool_result"],
            ["result_chunk", "result_chunk"],
        )


async def test_many_values() -> None:
    """A call with too many arguments is told with some of them, and says so."""
    call = {
        "sessionUpdate": "tool_call",
        "toolCallId": "c",
        "kind": "read",
        "rawInput": [""] * 100_000,
    }
    async with connected() as client:
        handle = await begin(client, ["updates", call])
        await handle.result()
        (_, told_of), _ = await told(handle)
        assert told_of["truncated"] is True
        assert 1_000 < len(told_of["args"]) < 50_000


@pytest.mark.parametrize("text", ["\udc00", "a\ud83d", "\x00\x1f\u2028", "\ufffe"])
async def test_odd_text(text: str) -> None:
    """Text with half characters is mended, and control characters are passed on."""
    async with connected() as client:
        result = await result_of(client, ["say", text])
        assert result == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@pytest.mark.parametrize(
    "frame",
    [
        {"id": True, "result": {"stopReason": "end_turn"}},
        {"id": 1.0, "result": {"stopReason": "end_turn"}},
        {"id": 77, "result": {"stopReason": "end_turn"}},
        {"id": "0", "result": {}},
        {"id": None, "error": {"code": 1, "message": "x"}},
        {"id": 0, "result": {"protocolVersion": 2}},
        {"id": [1], "method": "terminal/create", "params": {"sessionId": "s-1"}},
        {"id": 5, "method": 5},
        {"method": "session/update", "params": []},
        {"method": "session/update", "params": {"sessionId": 5, "update": {"sessionUpdate": "x"}}},
        {"method": "_auth/changed", "params": {}},
        [],
        5,
    ],
)
async def test_odd_frames(frame: Any) -> None:
    """Answers to no request, doubled ones, and frames of any other shape are passed over."""
    whole = dict[str, Any]({"jsonrpc": "2.0", **frame}) if hasattr(frame, "keys") else frame
    async with connected() as client:
        handle = await begin(client, ["raw", json.dumps(whole) + "\n"], ["say", "x"])
        assert await handle.result() == "x"
        assert {kind for kind, _ in await told(handle)} == {"result_chunk"}


async def test_two_answers() -> None:
    """The first answer to a prompt counts, and a second one is passed over."""
    async with connected(settle_seconds=0.5) as client:
        handle = await begin(client, ["answer_twice", "end_turn", "refusal"])
        assert await handle.result() == ""


async def test_calls_without_end() -> None:
    """Thousands of calls that never end are told, and all of them are ended."""
    call = {"sessionUpdate": "tool_call", "kind": "read", "title": "t", "status": "pending"}
    async with connected() as client:
        sent = [{**call, "toolCallId": f"c{number}"} for number in range(3_000)]
        handle = await begin(client, ["updates", *sent])
        await handle.result()
        kinds = [kind for kind, _ in await told(handle)]
        assert (kinds.count("tool_call"), kinds.count("tool_result")) == (3_000, 3_000)


async def test_names_without_end() -> None:
    """Names and ids of any length are shortened, and still tell calls apart."""
    call = {"sessionUpdate": "tool_call", "kind": "read", "name": "n" * 10_000, "status": "failed"}
    async with connected() as client:
        sent = [{**call, "toolCallId": "i" * 10_000 + str(number)} for number in range(3)]
        handle = await begin(client, ["updates", *sent, *sent])
        await handle.result()
        calls = [body for kind, body in await told(handle) if kind == "tool_call"]
        assert len({body["call_id"] for body in calls}) == len(calls) == 3
        assert all(len(json.dumps(body)) < 1_000 for body in calls)


async def test_an_agent_that_reads_later() -> None:
    """Answers that an agent does not read at once wait for it, and hold up nothing else."""
    async with connected() as client:
        handle = await begin(client, ["send", "fs/delete", {"x": "y" * 100}, 20_000], ["say", "x"])
        assert await handle.result() == "x"


async def test_an_agent_that_does_not_read() -> None:
    """For an agent that reads nothing, a bounded number of bytes waits; then it is ended."""
    async with connected() as client:
        handle = await begin(client, ["pid"], ["send_long", 100, 1_000_000], ["sleep", 100])
        with pytest.raises(JobFailed, match="its process no longer reads or writes"):
            await handle.result()
        await gone([await first_word(handle)])
