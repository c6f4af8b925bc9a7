"""Agents that are processes: what they say comes in order, and each of their ends is noticed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import trio

from arcp_trio import acp

AGENT = [sys.executable, str(Path(__file__).with_name("scripted_agent.py"))]

pytestmark = pytest.mark.real_tcp


def steps(*each: list[object]) -> str:
    """Return a prompt."""
    return json.dumps(each)


async def test_slow_handlers_finish_in_order() -> None:
    """Five updates whose handlers take less and less time are handled one after the other."""
    begun: list[str] = []
    done: list[str] = []

    async def slow(session: acp.Session, update: acp.Update) -> None:
        assert isinstance(update, acp.Chunk)
        begun.append(update.text)
        await trio.sleep([0.15, 0.12, 0.09, 0.06, 0.03, 0][len(begun) - 1])
        done.append(update.text)

    with trio.fail_after(60):
        async with acp.spawn(AGENT, on_update=slow) as agent:
            session = await agent.new_session("/")
            assert await session.prompt(steps(["burst", 5])) == "end_turn"
            assert begun[:5] == done[:5] == ["0", "1", "2", "3", "4"]
