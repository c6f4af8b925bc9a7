"""What an agent says is seen in the order in which it wrote it, whatever handlers take."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import acp
from tests.acp.stage import asked, decided, ended, said, staged, text, update

DELAYS = [0.15, 0.12, 0.09, 0.06, 0.03]


class Slow:
    """A handler that takes less and less time."""

    def __init__(self, delays: list[float]) -> None:
        self.begun: list[str] = []
        self.done: list[str] = []
        self._delays = iter(delays)

    async def __call__(self, session: acp.Session, update: acp.Update) -> None:
        """Take the next delay."""
        self.begun.append(text(update))
        await trio.sleep(next(self._delays, 0))
        self.done.append(text(update))
        assert self.done == self.begun, "one at a time"


async def test_handlers_finish_in_order(autojump_clock: MockClock) -> None:
    """Updates and answer in one write: all handlers are done, in order, when the prompt returns."""
    handler = Slow(DELAYS)
    async with staged(on_update=handler) as stage:
        turn = stage.session.prompt("go")
        id_ = await stage.actor.prompted()
        await stage.actor.say(*map(said, range(5)), ended(id_))
        assert await turn == "end_turn"
        assert handler.begun == handler.done == ["0", "1", "2", "3", "4"]


async def test_a_request_is_answered_after_what_came_before_it(autojump_clock: MockClock) -> None:
    """A request about a session returns when the updates before its answer have been handled."""
    handler = Slow(DELAYS)
    async with staged(on_update=handler) as stage, trio.open_nursery() as nursery:

        async def act() -> None:
            frame = await stage.actor.receive("session/set_mode")
            assert frame["params"] == {"sessionId": "s", "modeId": "ask"}
            await stage.actor.say(*map(said, range(5)), {"id": frame["id"], "result": {"a": 1}})

        nursery.start_soon(act)
        assert await stage.session.request("session/set_mode", modeId="ask") == {"a": 1}
        assert handler.done == ["0", "1", "2", "3", "4"]


async def test_two_thousand_updates(autojump_clock: MockClock) -> None:
    """Updates of all kinds come in order to the handler and to the iteration."""
    seen: list[object] = []

    async def handle(session: acp.Session, update: acp.Update) -> None:
        await trio.sleep(len(seen) % 3 / 1000)
        seen.append(update.raw["n"])

    kinds = ["agent_message_chunk", "tool_call", "tool_call_update", "plan", "usage_update", "new"]
    async with staged(on_update=handle) as stage, trio.open_nursery() as nursery:
        turn = stage.session.prompt("go")
        id_ = await stage.actor.prompted()
        frames = [update(kinds[n % len(kinds)], n=n) for n in range(2000)]
        nursery.start_soon(lambda: stage.actor.say(*frames, ended(id_)))
        items = [item.raw["n"] async for item in turn if isinstance(item, acp.Update)]
        assert items == seen == list(range(2000))


async def test_a_request_keeps_its_place(autojump_clock: MockClock) -> None:
    """A permission is decided after the tool call before it is told, and delays no text after."""
    happened: list[str] = []

    async def handle(session: acp.Session, update: acp.Update) -> None:
        await trio.sleep(0.05)
        happened.append(update.kind)

    async def decide(request: acp.PermissionRequest) -> None:
        happened.append("asked")
        await trio.sleep(0.6)
        happened.append("decided")
        request.allow_once()

    async with staged(on_update=handle, permission=decide) as stage:
        turn = stage.session.prompt("go")
        id_ = await stage.actor.prompted()
        await stage.actor.say(
            update("tool_call", toolCallId="1"), asked(0, "allow_once"), said("meanwhile")
        )
        assert (await stage.actor.receive())["result"] == decided("o-allow_once")
        await stage.actor.say(ended(id_))
        assert await turn == "end_turn"
    assert happened == ["tool_call", "asked", "agent_message_chunk", "decided"]


async def test_a_request_in_the_stream_keeps_its_place(autojump_clock: MockClock) -> None:
    """A request in the stream of its turn stands between the updates that it came between."""
    async with staged(permission=acp.STREAM) as stage:
        turn = stage.session.prompt("go")
        id_ = await stage.actor.prompted()
        await stage.actor.say(
            update("tool_call", toolCallId="1"), asked(id_, "allow_once"), said("x"), ended(id_)
        )
        call, request, chunk = [item async for item in turn]
        assert isinstance(call, acp.ToolCall)
        assert isinstance(request, acp.PermissionRequest)
        assert text(chunk) == "x"
        request.allow_once()
        answer = await stage.actor.receive()
        assert answer == {"id": id_, "result": decided("o-allow_once")}
        assert turn.stop_reason == "end_turn"


@pytest.mark.parametrize("delay", [0.0, 0.5])
async def test_a_late_line_belongs_to_no_turn(delay: float, autojump_clock: MockClock) -> None:
    """A line after a prompt's answer, though read with it, is neither this turn's nor the next."""
    outside: list[str] = []

    async def handle(session: acp.Session, update: acp.Update) -> None:
        await trio.sleep(delay)
        outside.append(text(update))

    async with staged(on_update=handle) as stage:
        turn = stage.session.prompt("first")
        id_ = await stage.actor.prompted()
        await stage.actor.say(said("a"), said("b"), ended(id_), said("late"))
        await trio.sleep(delay)
        assert [text(item) async for item in turn] == ["a", "b"]
        turn = stage.session.prompt("second")
        id_ = await stage.actor.prompted()
        await stage.actor.say(said("c"), ended(id_))
        assert [text(item) async for item in turn] == ["c"]
        assert outside == ["a", "b", "late", "c"]


async def test_late_lines_that_wait_for_room(autojump_clock: MockClock) -> None:
    """A line that came before a prompt was sent is not of its turn, even if it is taken later."""
    limits = acp.Limits(queue_items=1)
    async with staged(limits=limits) as stage:
        turn = stage.session.prompt("first")
        id_ = await stage.actor.prompted()
        await stage.actor.say(said("a"), ended(id_), *[said(f"late {n}") for n in range(5)])
        await wait_all_tasks_blocked()
        assert text(await anext(turn)) == "a"
        await turn.answered.wait()
        turn = stage.session.prompt("second")
        id_ = await stage.actor.prompted()
        await stage.actor.say(said("b"), ended(id_))
        assert [text(item) async for item in turn] == ["b"]


async def test_sessions_do_not_wait_for_each_other(autojump_clock: MockClock) -> None:
    """A slow handler of one session delays no other session."""
    done: list[tuple[str, float]] = []

    async def handle(session: acp.Session, update: acp.Update) -> None:
        await trio.sleep(100 if session.id == "s" else 1)
        done.append((session.id, trio.current_time()))

    async with staged(on_update=handle) as stage:
        other = await stage.open("other")
        begun = trio.current_time()
        await stage.actor.say(said("x"), said("y", "other"), said("z", "other"))
        await trio.sleep(101)
        assert [(id_, time - begun) for id_, time in done] == [
            ("other", 1),
            ("other", 2),
            ("s", 100),
        ]
        assert other.id == "other"


async def test_a_handler_cannot_wait_for_itself(autojump_clock: MockClock) -> None:
    """What waits for the agent's answer raises an error in an update handler of the session."""
    refused: list[str] = []
    turns: list[acp.Turn] = []
    agents: list[acp.Agent] = []

    async def below(session: acp.Session, task: str) -> None:
        with pytest.raises(RuntimeError, match="its own session"):
            await session.request("session/set_mode")
        refused.append(task)

    async def handle(session: acp.Session, update: acp.Update) -> None:
        with pytest.raises(RuntimeError):
            session.prompt("again")
        with pytest.raises(RuntimeError):
            await turns[0]
        with pytest.raises(RuntimeError):
            await turns[0].cancel()
        with pytest.raises(RuntimeError):
            await agents[0].new_session("/w")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(below, session, "one")
            nursery.start_soon(below, session, "another")

    async with staged(on_update=handle) as stage:
        agents.append(stage.agent)
        turns.append(stage.session.prompt("go"))
        id_ = await stage.actor.prompted()
        await stage.actor.say(said("a"), ended(id_))
        with trio.fail_after(5):
            assert await turns[0] == "end_turn"
    assert sorted(refused) == ["another", "one"]


async def test_a_request_handler_may_wait_for_its_session(autojump_clock: MockClock) -> None:
    """A handler of requests may use the session that it decides for."""

    async def decide(request: acp.PermissionRequest) -> None:
        await request.session.request("session/set_mode", modeId="ask")
        request.allow_once()

    async with staged(permission=decide) as stage:
        await stage.actor.say(asked(0, "allow_once"))
        await stage.actor.answer("session/set_mode", {})
        assert (await stage.actor.receive())["result"] == decided("o-allow_once")


@pytest.mark.logs_error("update handler failed")
async def test_a_failing_handler_costs_its_update(autojump_clock: MockClock) -> None:
    """A handler that raises is logged; the next update is handled, and the turn has them both."""
    handled: list[str] = []

    async def handle(session: acp.Session, update: acp.Update) -> None:
        if text(update) == "bad":
            raise LookupError("of the program's")
        handled.append(text(update))

    async with staged(on_update=handle) as stage:
        turn = stage.session.prompt("go")
        id_ = await stage.actor.prompted()
        await stage.actor.say(said("bad"), said("good"), ended(id_))
        assert [text(item) async for item in turn] == ["bad", "good"]
    assert handled == ["good"]
