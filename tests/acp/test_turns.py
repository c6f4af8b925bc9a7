"""A turn: how it is read, stopped, cancelled, left, and how it ends."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import acp
from tests.acp.stage import ended, said, staged, text, update


async def test_a_prompt_of_blocks(autojump_clock: MockClock) -> None:
    """Text becomes a block of text, and blocks are sent as they are."""
    link = {"type": "resource_link", "uri": "file:///w/a", "name": "a"}
    for prompt, blocks in (("go", [{"type": "text", "text": "go"}]), ([link], [link])):
        async with staged() as stage:
            stage.session.prompt(prompt)
            frame = await stage.actor.receive("session/prompt")
            assert frame["params"] == {"sessionId": "s", "prompt": blocks}


async def test_one_turn_at_a_time(autojump_clock: MockClock) -> None:
    """A second prompt is refused until the agent has answered the first."""
    async with staged() as stage:
        turn = stage.session.prompt("go")
        with pytest.raises(acp.Busy):
            stage.session.prompt("again")
        await stage.actor.say(ended(await stage.actor.prompted()))
        assert await turn == "end_turn"
        turn = stage.session.prompt("again")
        await stage.actor.say(ended(await stage.actor.prompted(), "max_tokens"))
        assert await turn == "max_tokens"


async def test_a_prompt_that_cannot_be_written(autojump_clock: MockClock) -> None:
    """A prompt that is not JSON is the caller's error, and no turn begins."""
    async with staged() as stage:
        with pytest.raises(ValueError, match="surrogate"):
            stage.session.prompt("\ud800")
        stage.session.prompt("go")
        assert await stage.actor.prompted()


async def test_what_is_ready(autojump_clock: MockClock) -> None:
    """`ready` gives what has come, and does not wait; `over` is true after the last item."""
    async with staged() as stage:
        turn = stage.session.prompt("go")
        id_ = await stage.actor.prompted()
        assert turn.ready() is None
        await stage.actor.say(said("a"), said("b"), ended(id_))
        await wait_all_tasks_blocked()
        found = [(text(turn.ready()), turn.over) for _ in range(2)]
        assert found == [("a", False), ("b", True)]
        assert turn.ready() is None
        assert turn.stop_reason == "end_turn"
        assert [item async for item in turn] == []


async def test_leaving_the_block_early(autojump_clock: MockClock) -> None:
    """Leaving `async with` cancels the turn and drops the rest; then the next can begin."""
    async with staged(limits=acp.Limits(queue_items=2)) as stage:
        async with stage.session.prompt("go") as turn:
            id_ = await stage.actor.prompted()
            await stage.actor.say(*map(said, range(50)))
            assert text(await anext(turn)) == "0"
        await stage.actor.receive("session/cancel")
        with pytest.raises(acp.Busy):
            stage.session.prompt("again")
        await stage.actor.say(*map(said, range(50)), ended(id_, "cancelled"))
        await wait_all_tasks_blocked()
        assert turn.over
        assert turn.stop_reason == "cancelled"
        turn = stage.session.prompt("again")
        id_ = await stage.actor.prompted()
        await stage.actor.say(said("x"), ended(id_))
        assert [text(item) async for item in turn] == ["x"]


async def test_a_turn_that_was_read_to_its_end_is_not_cancelled(autojump_clock: MockClock) -> None:
    """Leaving `async with` after the end sends nothing."""
    async with staged() as stage:
        async with stage.session.prompt("go") as turn:
            await stage.actor.say(said("a"), ended(await stage.actor.prompted()))
            assert [text(item) async for item in turn] == ["a"]
        stage.session.prompt("again")
        assert await stage.actor.prompted()


async def test_an_answered_turn_is_not_cancelled(autojump_clock: MockClock) -> None:
    """A turn that is left when its answer has come, and is not delivered, cancels nothing."""

    async def handle(session: acp.Session, update: acp.Update) -> None:
        await trio.sleep(5)

    async with staged(on_update=handle) as stage:
        async with stage.session.prompt("go") as turn:
            await stage.actor.say(said("a"), ended(await stage.actor.prompted()))
            await turn.answered.wait()
        assert not turn.over
        following = stage.session.prompt("again")
        await stage.actor.say(ended(await stage.actor.prompted()))
        assert await following == "end_turn"


async def test_cancelling_waits_for_the_agent(autojump_clock: MockClock) -> None:
    """`cancel` returns when the agent has ended the turn."""
    async with staged() as stage, trio.open_nursery() as nursery:
        turn = stage.session.prompt("go")
        id_ = await stage.actor.prompted()

        async def act() -> None:
            await stage.actor.receive("session/cancel")
            await trio.sleep(9)
            await stage.actor.say(said("x"), ended(id_, "cancelled"))

        nursery.start_soon(act)
        await turn.cancel()
        assert turn.over
        assert turn.stop_reason == "cancelled"


async def test_an_agent_that_ignores_a_cancel(autojump_clock: MockClock) -> None:
    """`cancel` waits for so long, however much the agent says meanwhile."""
    async with staged() as stage, trio.open_nursery() as nursery:

        async def talk() -> None:
            while True:
                await stage.actor.say(said("x" * 1000))
                await trio.sleep(0.1)

        nursery.start_soon(talk)
        turn = stage.session.prompt("go")
        begun = trio.current_time()
        with pytest.raises(acp.TimedOut, match="not ended its turn"):
            await turn.cancel()
        assert trio.current_time() == begun + 10
        assert not turn.over
        nursery.cancel_scope.cancel()


async def test_a_turn_that_fails(autojump_clock: MockClock) -> None:
    """An error in place of a stop reason is raised after the updates before it, bare."""
    async with staged() as stage:
        turn = stage.session.prompt("go")
        id_ = await stage.actor.prompted()
        error = {"code": -32603, "message": "the model is down", "data": {"a": 1}}
        await stage.actor.say(said("a"), {"id": id_, "error": error})
        assert text(await anext(turn)) == "a"
        with pytest.raises(acp.AgentError, match="the model is down"):
            await anext(turn)
        with pytest.raises(acp.AgentError, match="the model is down") as caught:
            await turn
        assert (caught.value.code, caught.value.data) == (-32603, {"a": 1})
        assert turn.over
        assert turn.stop_reason is None


@pytest.mark.parametrize("result", [None, {}, {"stopReason": 5}, "end_turn"])
async def test_an_answer_without_a_stop_reason(result: Any, autojump_clock: MockClock) -> None:
    """An answer that does not say why the turn is over is an error."""
    async with staged() as stage:
        turn = stage.session.prompt("go")
        await stage.actor.say({"id": await stage.actor.prompted(), "result": result})
        with pytest.raises(acp.AgentError, match="without a stop reason"):
            await turn


async def test_views(autojump_clock: MockClock) -> None:
    """Updates are seen by their kind; what is missing or of a wrong type is empty."""
    text_block = {"type": "text", "text": "hm"}
    async with staged() as stage:
        turn = stage.session.prompt("go")
        id_ = await stage.actor.prompted()
        await stage.actor.say(
            update("agent_thought_chunk", content=text_block),
            update("user_message_chunk", content={"type": "image", "data": ""}),
            update("agent_message_chunk", content=7),
            update("tool_call", toolCallId="t", title="x"),
            update("tool_call_update"),
            update("plan", entries=[{"content": "a"}, 5]),
            update("plan", entries={}),
            update("usage_update", used=5, size=10, cost={"amount": 0.1, "currency": "USD"}),
            update("usage_update", used=True, size=-1, cost={"amount": -1, "currency": "USD"}),
            update("of the future", deep=[1]),
            ended(id_),
        )
        items: list[Any] = [item async for item in turn]
    thought, image, odd, call, change, plan, no_plan, usage, no_usage, other = items
    assert (thought.role, thought.text, thought.content) == ("thought", "hm", text_block)
    assert (image.role, image.text) == ("user", "")
    assert (odd.role, odd.text, odd.content) == ("agent", "", {})
    assert (call.id, call.new, call.raw["title"]) == ("t", True, "x")
    assert (change.id, change.new) == ("", False)
    assert (plan.entries, no_plan.entries) == ([{"content": "a"}], [])
    assert (usage.used, usage.size, usage.cost) == (5, 10, (Decimal("0.1"), "USD"))
    assert (no_usage.used, no_usage.size, no_usage.cost) == (None, None, None)
    assert isinstance(other, acp.Other)
    assert (other.kind, other.raw["deep"]) == ("of the future", [1])


async def test_updates_that_say_nothing(autojump_clock: MockClock) -> None:
    """An update without a kind, or of a session that is not open, is passed over."""
    async with staged() as stage:
        turn = stage.session.prompt("go")
        id_ = await stage.actor.prompted()
        bad: list[Any] = [
            {"sessionId": "s", "update": {"content": 1}},
            {"sessionId": "s", "update": []},
            {"sessionId": 5, "update": {"sessionUpdate": "plan"}},
            {"sessionId": "foreign", "update": {"sessionUpdate": "plan"}},
        ]
        await stage.actor.say(
            *[{"method": "session/update", "params": params} for params in bad], ended(id_)
        )
        assert [item async for item in turn] == []
