"""The agent ends: what it said before is seen, and what waits for it is told."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import acp
from arcp_trio.transport.memory import memory_streams
from tests.acp.stage import INITIALIZED, Actor, asked, ended, said, staged, text


async def test_everything_that_was_said_is_seen(autojump_clock: MockClock) -> None:
    """Updates before the end are handled and iterated over; then the turn fails."""
    handled: list[str] = []

    async def handle(session: acp.Session, update: acp.Update) -> None:
        await trio.sleep(1)
        handled.append(text(update))

    async with staged(on_update=handle, limits=acp.Limits(queue_items=3)) as stage:
        turn = stage.session.prompt("go")
        await stage.actor.prompted()
        await stage.actor.say(*map(said, range(20)))
        await stage.actor.close()
        for number in range(20):
            assert text(await anext(turn)) == str(number)
        with pytest.raises(acp.AgentGone, match="the agent has closed the connection") as caught:
            await anext(turn)
        assert caught.value.exit_status is None
        assert handled == [str(number) for number in range(20)]
        assert turn.over


async def test_everything_that_waits_is_told(autojump_clock: MockClock) -> None:
    """Each request that waits fails; so do a cancel, and what is sent later."""
    failures: list[str] = []

    async def failing(name: str, call: object) -> None:
        assert callable(call)
        with pytest.raises(acp.AgentGone):
            await call()
        failures.append(name)

    async with staged() as stage:
        turn = stage.session.prompt("go")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(failing, "request", lambda: stage.session.request("x"))
            nursery.start_soon(failing, "new", lambda: stage.agent.new_session("/w"))
            nursery.start_soon(failing, "load", lambda: stage.agent.load_session("y", "/w"))
            nursery.start_soon(failing, "cancel", turn.cancel)
            await wait_all_tasks_blocked()
            await stage.actor.close()
        assert sorted(failures) == ["cancel", "load", "new", "request"]
        with pytest.raises(acp.AgentGone):
            stage.session.prompt("again")
        with pytest.raises(acp.AgentGone):
            await stage.agent.new_session("/w")
        stage.session.cancel()


async def test_an_open_permission_is_over(autojump_clock: MockClock) -> None:
    """A handler that decides for an agent that is gone is cancelled."""
    ends: list[bool] = []

    async def decide(request: acp.PermissionRequest) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ends.append(request.answered)

    async with staged(permission=decide) as stage:
        await stage.actor.say(asked(0, "allow_once"))
        await wait_all_tasks_blocked()
        await stage.actor.close()
        await wait_all_tasks_blocked()
        assert ends == [True]


async def test_errors_leave_the_block_bare(autojump_clock: MockClock) -> None:
    """An exception of the block leaves it as it is, also if the block is cancelled meanwhile."""
    ours, theirs = memory_streams()
    actor = Actor(theirs)

    async def converse(scope: trio.CancelScope) -> None:
        async with acp.connect(ours, ours) as agent:
            await actor.close()
            try:
                await agent.new_session("/w")
            finally:
                scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(actor.answer, "initialize", INITIALIZED)
        with trio.CancelScope() as scope, pytest.raises(acp.AgentGone):
            await converse(scope)
        assert not scope.cancelled_caught, "the exception came out, and not the cancellation"


async def test_cancelling_the_block(autojump_clock: MockClock) -> None:
    """A block that is cancelled ends within its bounds, though the agent does not read."""
    async with trio.open_nursery() as nursery:
        ours, theirs = memory_streams()
        nursery.start_soon(Actor(theirs).answer, "initialize", INITIALIZED)
        begun = trio.current_time()
        with trio.move_on_after(5) as scope:
            async with acp.connect(ours, ours) as agent:
                await agent.new_session("/" + "x" * 200_000)
        assert scope.cancelled_caught
        assert trio.current_time() == begun + 7


async def test_handlers_end_with_the_block(autojump_clock: MockClock) -> None:
    """Leaving the block cancels the handlers of updates and requests."""
    ends: list[str] = []

    async def until_cancelled(name: str) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ends.append(name)

    async def handle(session: acp.Session, update: acp.Update) -> None:
        await until_cancelled("update")

    async def decide(request: acp.PermissionRequest) -> None:
        await until_cancelled("request")

    async with staged(on_update=handle, permission=decide) as stage:
        await stage.actor.say(asked(0, "allow_once"), said("a"), said("b"))
        await wait_all_tasks_blocked()
    assert sorted(ends) == ["request", "update"]


async def test_an_agent_that_closes_its_input(autojump_clock: MockClock) -> None:
    """An agent that reads no more, and has said its last, is gone after a while."""
    to_agent, from_agent = memory_streams(), memory_streams()
    actor = Actor(
        trio.StapledStream(from_agent[1], to_agent[1]),
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(actor.answer, "initialize", INITIALIZED)
        async with acp.connect(from_agent[0], to_agent[0]) as agent:
            nursery.start_soon(actor.answer, "session/new", {"sessionId": "s"})
            session = await agent.new_session("/w")
            turn = session.prompt("go")
            id_ = await actor.prompted()
            await trio.aclose_forcefully(to_agent[1])
            session.cancel()
            await actor.say(said("a"), ended(id_))
            assert [text(item) async for item in turn] == ["a"]
            turn = session.prompt("again")
            with pytest.raises(acp.AgentGone):
                await turn
