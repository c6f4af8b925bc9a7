"""An agent that sends too much, or takes too long, costs its own job only."""

from __future__ import annotations

import json

import pytest
import trio

from arcp_trio import JobFailed, Limits
from arcp_trio.testing.frames import Frame
from tests.proxies.acp.stage import begin, command, connected, told

pytestmark = pytest.mark.real_tcp

PERMISSION: Frame = {
    "toolCall": {"toolCallId": "p", "kind": "think"},
    "options": [{"optionId": "o", "name": "o", "kind": "allow_once"}],
}
"""What needs an approval, for which nobody is there."""


@pytest.mark.parametrize("method", ["initialize", "session/new"])
async def test_a_program_that_does_not_begin(method: str) -> None:
    """A program that leaves a request of the beginning without an answer fails its job in time."""
    limits = Limits(agent_start_seconds=3)
    async with connected({"mute": command(silent=[method])}, limits=limits) as client:
        begun = trio.current_time()
        with pytest.raises(
            JobFailed, match=f"^agent mute has not answered {method} in time"
        ) as caught:
            await (await client.submit("mute", "go")).result()
        assert trio.current_time() - begun >= 3
        assert caught.value.code == "INTERNAL_ERROR"


async def test_a_program_that_begins_slowly() -> None:
    """The time for the beginning is that of all its requests together."""
    limits = Limits(agent_start_seconds=8)
    slow = command(first=[["sleep", 7]], silent=["session/new"])
    async with connected({"slow": slow}, limits=limits) as client:
        begun = trio.current_time()
        with pytest.raises(JobFailed, match="has not answered"):
            await (await client.submit("slow", "go")).result()
        assert 8 <= trio.current_time() - begun < 13.5


async def test_a_line_has_a_bound() -> None:
    """A line that is too long ends its job, with what came before it; others go on."""
    async with connected(limits=Limits(agent_line_bytes=100_000)) as client:
        other = await begin(client, ["say", "still here"], ["sleep", 1])
        handle = await begin(client, ["say", "before"], ["garbage", 3, 50_000, ""])
        with pytest.raises(JobFailed, match=r"^agent scripted: ") as caught:
            await handle.result()
        assert (caught.value.code, caught.value.retryable) == ("INTERNAL_ERROR", True)
        assert [body["data"] for _, body in await told(handle)] == ["before"]
        assert await other.result() == "still here"


async def test_requests_by_the_thousand() -> None:
    """The open requests of an agent are bounded: further ones are refused, without an event."""
    lease = {"x-vendor.arcp-trio.ask.tool.call": ["acp/think"]}
    async with connected(limits=Limits(agent_requests=8)) as client:
        asked = ["send", "session/request_permission", PERMISSION, 1_000]
        handle = await begin(client, asked, ["say", "end"], lease=lease)
        assert await handle.result() == "end"
        calls = [body for kind, body in await told(handle) if kind == "tool_call"]
        assert len(calls) == 8


async def test_methods_that_are_not_offered() -> None:
    """A request of an unknown method is refused, without an event."""
    async with connected() as client:
        handle = await begin(client, ["call", "fs/delete", {"path": "/x"}])
        assert json.loads(await handle.result())["code"] == -32601
        assert {kind for kind, _ in await told(handle)} == {"result_chunk"}
