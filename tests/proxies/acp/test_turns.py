"""What an agent says in its turn is its job's result, in order, and nothing later is."""

from __future__ import annotations

import pytest

from tests.proxies.acp.stage import begin, connected, result_of, told

pytestmark = pytest.mark.real_tcp


async def test_what_it_says_is_the_result() -> None:
    """The agent's words are streamed, and together they are the result."""
    async with connected() as client:
        assert await result_of(client, ["say", "Hello, "], ["say", "wor", "ld"]) == "Hello, world"
        assert await result_of(client) == ""


async def test_a_line_after_the_answer_is_not_of_the_turn() -> None:
    """What the agent writes after its answer, in the same write, is not in the result."""
    async with connected() as client:
        handle = await begin(client, ["burst", 5])
        assert await handle.result() == "0 1 2 3 4 "
        assert {kind for kind, _ in await told(handle)} == {"result_chunk"}


async def test_its_start_is_told() -> None:
    """The first events say whether the program is contained, and what it is."""
    async with connected() as client:
        handle = await begin(client, ["say", "x"])
        events = [(event.kind, event.body) async for event in handle.events()]
        assert [kind for kind, _ in events][:2] == ["status", "status"]
        assert events[0][1]["phase"] == "starting"
        assert events[0][1]["message"] in ("contained", "not contained")
        assert events[1][1] == {
            "phase": "session",
            "message": "scripted 1",
            "session": handle.id,
            "continued": False,
        }
