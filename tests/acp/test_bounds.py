"""Agents that send too much, or read too little: nothing grows, nothing is dropped in silence."""

from __future__ import annotations

import json
from itertools import count

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import acp
from arcp_trio.acp.connection import LARGE_LINE
from arcp_trio.transport.memory import PIPE_BYTES
from tests.acp.stage import asked, connected, decided, ended, said, staged, text, update, written


class Flood:
    """An agent's updates, and how many bytes of them it got rid of."""

    def __init__(self, count: int, size: int) -> None:
        self.frames = [said(f"{number} {'x' * size}") for number in range(count)]
        self.line = len(written(self.frames[-1]))
        self.bytes = 0

    async def pour(self, stream: trio.abc.SendStream) -> None:
        """Write as much as the client takes."""
        for frame in self.frames:
            data = written(frame)
            await stream.send_all(data)
            self.bytes += len(data)


@pytest.mark.parametrize(
    "limits", [acp.Limits(queue_items=50), acp.Limits(queue_bytes=50_000)], ids=["items", "bytes"]
)
async def test_a_flood_waits_for_the_program(limits: acp.Limits, autojump_clock: MockClock) -> None:
    """What a program has not taken holds the agent up; in the end, everything is there, in order.

    Meanwhile a turn can be cancelled.
    """
    flood = Flood(2000, 1000)
    async with staged(limits=limits) as stage, trio.open_nursery() as nursery:
        turn = stage.session.prompt("go")
        id_ = await stage.actor.prompted()

        async def act() -> None:
            await flood.pour(stage.actor.stream)
            await stage.actor.say(ended(id_, "cancelled"))

        nursery.start_soon(act)
        await wait_all_tasks_blocked()
        held = 2 * PIPE_BYTES + 52 * flood.line  # in the pipe, in the reader's buffer, in the queue
        assert flood.bytes <= held
        taken = [await anext(turn) for _ in range(500)]
        await wait_all_tasks_blocked()
        assert flood.bytes <= held + 500 * flood.line
        turn.stop()
        await stage.actor.receive("session/cancel")
        taken += [item async for item in turn]
        assert [text(item).split()[0] for item in taken] == [str(n) for n in range(2000)]
        assert turn.stop_reason == "cancelled"


async def test_a_slow_handler_holds_a_flood_up(autojump_clock: MockClock) -> None:
    """Updates outside of turns wait for the handler, and all of them are handled."""
    handled: list[str] = []

    async def handle(session: acp.Session, update: acp.Update) -> None:
        await trio.sleep(1)
        handled.append(text(update).split()[0])

    flood = Flood(300, 1000)
    async with (
        staged(on_update=handle, limits=acp.Limits(queue_items=10)) as stage,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(flood.pour, stage.actor.stream)
        await wait_all_tasks_blocked()
        assert flood.bytes <= 2 * PIPE_BYTES + 12 * flood.line
        await trio.sleep(301)
        assert handled == [str(number) for number in range(300)]


async def test_bytes_are_counted_and_not_characters(autojump_clock: MockClock) -> None:
    """Text of characters of three bytes takes three times as much room."""
    line = json.dumps(said("漢" * 30_000), ensure_ascii=False).encode() + b"\n"
    taken = 0
    async with (
        staged(limits=acp.Limits(queue_bytes=100_000)) as stage,
        trio.open_nursery() as nursery,
    ):
        stage.session.prompt("go")
        await stage.actor.prompted()

        async def act() -> None:
            nonlocal taken
            while True:
                await stage.actor.raw(line)
                taken += len(line)

        nursery.start_soon(act)
        await wait_all_tasks_blocked()
        # One in the queue, one that waits for room, and what fits into the pipe and the buffer.
        assert taken <= 3 * len(line)
        nursery.cancel_scope.cancel()


async def test_a_single_large_update_passes(autojump_clock: MockClock) -> None:
    """An update of more bytes than the queue's bound is taken alone."""
    async with staged(limits=acp.Limits(queue_bytes=1000)) as stage, trio.open_nursery() as nursery:
        turn = stage.session.prompt("go")
        id_ = await stage.actor.prompted()
        large = "x" * 900_000
        nursery.start_soon(lambda: stage.actor.say(said("a"), said(large), said("b"), ended(id_)))
        assert [text(item) async for item in turn] == ["a", large, "b"]


@pytest.mark.parametrize("size", [99_999, 100_000, 100_001])
async def test_the_longest_line(size: int, autojump_clock: MockClock) -> None:
    """A line over the bound ends the connection, as it may have been an answer."""
    empty = len(written(said(""))) - 1
    async with staged(limits=acp.Limits(line_bytes=100_000)) as stage:
        turn = stage.session.prompt("go")
        id_ = await stage.actor.prompted()
        await stage.actor.say(said("a"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                lambda: stage.actor.say(said("x" * (size - empty)), ended(id_)),
            )
            assert text(await anext(turn)) == "a"
            if size <= 100_000:
                assert await turn == "end_turn"
            else:
                with pytest.raises(acp.NotAcp, match="a line of more than 100000 bytes"):
                    await turn


async def test_a_line_without_an_end(autojump_clock: MockClock) -> None:
    """An agent that writes on and on without a newline is not read for ever."""
    async with staged(limits=acp.Limits(line_bytes=100_000)) as stage:
        turn = stage.session.prompt("go")
        await stage.actor.raw(b"x" * 150_000)
        with pytest.raises(acp.NotAcp, match="line"):
            await turn


async def test_banners_are_passed_over_up_to_a_bound(autojump_clock: MockClock) -> None:
    """Some lines that are not ACP cost nothing; more of them end the connection."""
    async with staged(limits=acp.Limits(bad_lines=10)) as stage:
        turn = stage.session.prompt("go")
        id_ = await stage.actor.prompted()
        await stage.actor.raw(b"Welcome!\n\xff\xfe\n" * 5)
        await stage.actor.say(said("a"), ended(id_))
        assert [text(item) async for item in turn] == ["a"]
        turn = stage.session.prompt("again")
        await stage.actor.raw(b"one too many\n")
        with pytest.raises(acp.NotAcp, match=r"more than 10 lines .* 'one too many'"):
            await turn
        with pytest.raises(acp.NotAcp):
            stage.session.prompt("again")


async def test_requests_by_the_thousand(autojump_clock: MockClock) -> None:
    """Five requests are open at a time; further ones are refused, and later ones are not."""
    asking: list[acp.PermissionRequest] = []

    async def decide(request: acp.PermissionRequest) -> None:
        asking.append(request)
        await trio.sleep(100)
        request.allow_once()

    async with (
        staged(permission=decide, limits=acp.Limits(requests=5)) as stage,
        trio.open_nursery() as nursery,
    ):
        frames = [asked(number, "allow_once") for number in range(1000)]
        nursery.start_soon(lambda: stage.actor.say(*frames))
        refused = {(await stage.actor.receive())["id"] for _ in range(995)}
        assert refused == set(range(5, 1000))
        await wait_all_tasks_blocked()  # each is decided by a task
        assert len(asking) == 5
        for _ in range(5):
            assert (await stage.actor.receive())["result"] == decided("o-allow_once")
        await stage.actor.say(asked("later", "allow_once"))
        answer = await stage.actor.receive()
        assert answer == {"id": "later", "result": decided("o-allow_once")}


async def test_requests_are_bounded_in_bytes(autojump_clock: MockClock) -> None:
    """Open requests have a bound in bytes, too; a single larger one passes."""

    async def files(request: acp.FileRequest) -> None:
        await trio.sleep(1)
        request.answer({})

    params = {"sessionId": "s", "path": "/w/a", "content": "x" * 40_000}
    frames = [{"id": n, "method": "fs/write_text_file", "params": params} for n in range(3)]
    async with (
        staged(files=files, limits=acp.Limits(request_bytes=30_000)) as stage,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(lambda: stage.actor.say(*frames))
        answers = [await stage.actor.receive() for _ in frames]
        assert [answer["id"] for answer in answers] == [1, 2, 0]
        assert [answer.get("result") for answer in answers] == [None, None, {}]
        assert answers[0]["error"]["message"] == "too many requests have no answer yet"


async def test_a_doubled_id_is_passed_over(autojump_clock: MockClock) -> None:
    """A request with the id of an open one is not handled, so each id has one answer."""

    async def decide(request: acp.PermissionRequest) -> None:
        await trio.sleep(1)
        request.allow_once()

    async with staged(permission=decide) as stage:
        await stage.actor.say(asked(0, "allow_once"), asked(0, "allow_once"))
        assert (await stage.actor.receive())["id"] == 0
        await trio.sleep(5)
        stage.session.prompt("go")
        assert await stage.actor.prompted()
        await stage.actor.say(asked(0, "allow_once"))
        assert (await stage.actor.receive())["id"] == 0


async def test_an_agent_that_does_not_read(autojump_clock: MockClock) -> None:
    """What an agent does not read is kept up to a bound; then the connection ends, and says so."""
    async with staged(limits=acp.Limits(unsent_bytes=500_000)) as stage:
        turn = stage.session.prompt("x" * 300_000)
        with pytest.raises(acp.TimedOut):
            await turn.cancel()
        with pytest.raises(acp.AgentGone, match="does not read what it is sent"):
            await stage.session.request("x", much="x" * 300_000)
        with pytest.raises(acp.AgentGone):
            await turn


async def test_an_agent_that_asks_and_does_not_read(autojump_clock: MockClock) -> None:
    """Answers to a flood of requests do not pile up beyond the same bound."""
    limits = acp.Limits(unsent_bytes=100_000)
    async with staged(limits=limits) as stage, trio.open_nursery() as nursery:

        async def flood() -> None:
            for number in count():
                await stage.actor.say(asked(number, "allow_once"))

        nursery.start_soon(flood)
        turn = stage.session.prompt("go")
        with pytest.raises(acp.AgentGone, match="does not read"):
            await turn
        nursery.cancel_scope.cancel()


async def test_limits_are_more_than_nothing() -> None:
    """A bound of 0 is a mistake, and is refused at once."""
    with pytest.raises(ValueError, match="queue_items must be more than 0"):
        acp.Limits(queue_items=0)


async def test_what_is_unsent_is_sent_at_the_end(autojump_clock: MockClock) -> None:
    """Leaving the block lets what was sent get out, for a bounded time."""
    async with connected() as (agent, actor), trio.open_nursery() as nursery:
        nursery.start_soon(actor.answer, "session/new", {"sessionId": "s"})
        session = await agent.new_session("/w")
        session.prompt("x" * 200_000)
        session.cancel()

        async def act() -> None:
            await trio.sleep(1.5)
            await actor.prompted()
            await actor.receive("session/cancel")

        nursery.start_soon(act)
        nursery.cancel_scope.shield = True


async def test_a_line_of_many_values(autojump_clock: MockClock) -> None:
    """A line with too many values is passed over; text may have any characters, and as many."""
    async with staged(limits=acp.Limits(values=100)) as stage:
        turn = stage.session.prompt("go")
        id_ = await stage.actor.prompted()
        await stage.actor.say(said("a,[{" * 1_000), update("plan", entries=[{}] * 100), ended(id_))
        assert [text(item) async for item in turn] == ["a,[{" * 1_000]


@pytest.mark.real_tcp
async def test_large_lines_are_in_order() -> None:
    """Lines that are read in a thread and small ones between them are seen in order."""
    words = [f"{number}" * (LARGE_LINE + 1 if number % 3 else 1) for number in range(8)]
    with trio.fail_after(60):
        async with staged() as stage, trio.open_nursery() as nursery:
            turn = stage.session.prompt("go")
            id_ = await stage.actor.prompted()
            nursery.start_soon(stage.actor.raw, written(*map(said, words), ended(id_)))
            assert [text(item) async for item in turn] == words
