"""Entering and leaving the block: what it raises, and that no task is left."""

from __future__ import annotations

import builtins
from contextlib import AbstractAsyncContextManager, suppress

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

import arcp_trio
from arcp_trio import Client, ConnectionLost, Event, connect
from arcp_trio.client.job_stream import JobStream
from arcp_trio.transport import TransportClosed
from tests.client.support import TOKEN, Network, Scripted, Wire, real_runtime, scripted


class MineError(Exception):
    """An exception of the program."""


async def _submit_and_wait(connecting: AbstractAsyncContextManager[Client]) -> None:
    async with connecting as client:
        await client.submit("stuck")
        await trio.sleep_forever()


def tasks() -> set[str]:
    """Return the names of all tasks."""
    root = trio.lowlevel.current_root_task()
    assert root is not None
    found: set[str] = set()
    stack = [root]
    while stack:
        task = stack.pop()
        found.add(task.name)
        stack += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return found


async def test_what_the_block_raises_comes_out_as_it_is(autojump_clock: MockClock) -> None:
    """An exception of the block comes out without a group, and the session is closed."""

    async def script(wire: Wire) -> None:
        await wire.welcome()
        await wire.end()
        ended.set()

    ended = trio.Event()
    async with scripted(script) as runtime:
        with pytest.raises(MineError):
            async with connect(runtime.open, token=TOKEN):
                raise MineError
        await ended.wait()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
async def test_other_ends_come_out_too(autojump_clock: MockClock, kind: type) -> None:
    """Exceptions that are not an `Exception` come out as they are."""
    async with real_runtime() as runtime:
        with pytest.raises(kind):
            async with connect(Network(runtime).open, token=TOKEN):
                raise kind


async def test_a_group_of_the_programs_own_stays_one(autojump_clock: MockClock) -> None:
    """A group that the program raises stays a group."""
    async with real_runtime() as runtime:
        with pytest.RaisesGroup(MineError, KeyError):
            async with connect(Network(runtime).open, token=TOKEN):
                raise ExceptionGroup("both", [MineError(), KeyError()])


async def test_what_a_handler_raises_ends_the_block(autojump_clock: MockClock) -> None:
    """An exception of an event handler ends the block and comes out of it as it is."""

    async def on_event(event: Event) -> None:
        raise MineError(event.kind)

    async with real_runtime() as runtime:
        connecting = connect(Network(runtime).open, token=TOKEN, on_event=on_event)
        with pytest.raises(MineError, match="status"):
            await _submit_and_wait(connecting)


async def test_a_loss_that_no_call_can_tell_ends_the_block(autojump_clock: MockClock) -> None:
    """A lost session ends the block if no call is waiting that could raise it."""
    async with real_runtime() as runtime:
        network = Network(runtime)

        async def program() -> None:
            async with connect(network.open, token=TOKEN, reconnect_seconds=0):
                await network.cut()
                await trio.sleep_forever()

        with pytest.raises(ConnectionLost):
            await program()


async def test_a_loss_that_was_told_is_not_told_twice(autojump_clock: MockClock) -> None:
    """A loss that a call has raised is not raised again by the block."""
    async with real_runtime() as runtime:
        network = Network(runtime)
        async with connect(network.open, token=TOKEN, reconnect_seconds=0) as client:
            job = await client.submit("stuck")
            await network.cut()
            with pytest.raises(ConnectionLost):
                await job.result()
            await trio.sleep(1)


async def test_a_fault_of_the_client_is_not_swallowed(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash in the client's reader is raised to the program, and no call hangs."""

    def crash(*_: object) -> None:
        raise MineError

    async with real_runtime() as runtime:
        monkeypatch.setattr(JobStream, "add_credentials", crash)
        with pytest.raises(MineError):
            await _submit_and_wait(connect(Network(runtime).open, token=TOKEN))


async def test_an_interrupt_in_a_task_of_the_client(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while the client's reader runs leaves the block as itself."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    async with real_runtime() as runtime:
        monkeypatch.setattr(JobStream, "add_credentials", interrupt)
        with pytest.raises(KeyboardInterrupt):
            await _submit_and_wait(connect(Network(runtime).open, token=TOKEN))


def test_no_name_shadows_a_builtin() -> None:
    """Everything public, imported at once, leaves the language's own names alone."""
    assert not set(arcp_trio.__all__) & set(dir(builtins)) - {"__version__"}


async def test_a_nursery_of_the_programs_own_goes_on(autojump_clock: MockClock) -> None:
    """A nursery of the program outlives the client."""
    async with real_runtime() as runtime, trio.open_nursery() as nursery:
        alive = trio.Event()
        async with connect(Network(runtime).open, token=TOKEN) as client:
            nursery.start_soon(alive.wait)
            await client.submit("stuck")
        await trio.sleep(1)
        assert len(nursery.child_tasks) == 1
        assert not nursery.cancel_scope.cancel_called
        alive.set()


async def test_nothing_is_left_behind(autojump_clock: MockClock) -> None:
    """The client's tasks have names, and end with the block, however it is left."""
    async with real_runtime() as runtime:
        network = Network(runtime)
        async with connect(network.open, token=TOKEN) as client:
            await client.submit("stuck")
            assert {"client supervisor", "client writer", "client heartbeat"} <= tasks()
        assert not {name for name in tasks() if "client" in name}
        for up in (True, False):
            with trio.move_on_after(3) as left:
                async with connect(network.open, token=TOKEN) as client:
                    network.up = up
                    await network.cut()
                    await trio.sleep_forever()
            assert left.cancelled_caught
            assert not {name for name in tasks() if "client" in name}


async def test_a_client_that_has_left(autojump_clock: MockClock) -> None:
    """Calls and handles of a closed client raise, and do not wait."""
    async with real_runtime() as runtime:
        async with connect(Network(runtime).open, token=TOKEN) as client:
            job = await client.submit("stuck")
            events = job.events()
            await anext(events)
            seen = trio.Event()

            async def watch() -> None:
                with pytest.raises(ConnectionLost, match="closed"):
                    await job.result()
                seen.set()

            trio.lowlevel.spawn_system_task(watch)
            await trio.lowlevel.checkpoint()
        for call in (client.submit("echo"), job.result(), anext(events), job.cancel()):
            with pytest.raises(ConnectionLost, match="closed"):
                await call
        await seen.wait()


async def test_a_program_that_is_cancelled_takes_leave(autojump_clock: MockClock) -> None:
    """A cancelled block closes its session, too, within a second."""

    async def script(wire: Wire) -> None:
        await wire.welcome()
        await wire.receive("session.close")
        closed.append(trio.current_time())
        await wire.receive("session.bye")

    closed: list[float] = []
    async with scripted(script) as runtime:
        with trio.move_on_after(3) as left:
            async with connect(runtime.open, token=TOKEN) as client:
                await client.submit("echo")
        assert left.cancelled_caught
        assert closed == [3]
        assert trio.current_time() == 4


async def test_connecting_is_given_up(autojump_clock: MockClock) -> None:
    """Connecting can be cancelled."""
    with trio.move_on_after(1) as left:
        async with connect(trio.sleep_forever, token=TOKEN):
            pytest.fail("it connected")
    assert left.cancelled_caught
    assert trio.current_time() == 1


async def test_what_came_before_a_loss_is_handled(autojump_clock: MockClock) -> None:
    """Events that arrived before the session was lost are handled before the block ends."""

    async def script(wire: Wire) -> None:
        await wire.welcome()
        await wire.accept("job_1")
        for n in range(1, 6):
            await wire.log(n, "job_1", str(n))

    async def on_event(event: Event) -> None:
        await trio.sleep(0.1)
        handled.append(event.seq)

    async def program(runtime: Scripted) -> None:
        connecting = connect(runtime.open, token=TOKEN, on_event=on_event, reconnect_seconds=0)
        async with connecting as client:
            await client.submit("echo")
            await trio.sleep_forever()

    handled: list[int] = []
    async with scripted(script) as runtime:
        with pytest.raises(ConnectionLost):
            await program(runtime)
    assert handled == [1, 2, 3, 4, 5]


async def test_closing_early_and_again(autojump_clock: MockClock) -> None:
    """Several calls of `close` send one session.close, and each returns when it is closed."""
    said: list[str] = []

    async def script(wire: Wire) -> None:
        await wire.welcome()
        await wire.accept("job_1")
        await wire.receive("session.close")
        await trio.sleep(1)
        await wire.send("session.closed")
        with suppress(TransportClosed):
            said.append((await wire.receive())["type"])

    async with scripted(script) as runtime, connect(runtime.open, token=TOKEN) as client:
        job = await client.submit("echo")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.wait_closed)
            nursery.start_soon(client.close)
            nursery.start_soon(client.close)
        assert trio.current_time() < 2
        assert not client.connected
        await client.close()
        await client.wait_closed()
        for call in (client.submit("echo"), job.result(), anext(job.events())):
            with pytest.raises(ConnectionLost, match="closed"):
                await call
    assert said == []


async def test_closing_is_given_up(autojump_clock: MockClock) -> None:
    """A cancelled `close` has sent session.close; another one waits for the end."""

    async def script(wire: Wire) -> None:
        await wire.welcome()
        await wire.receive("session.close")
        await trio.sleep(1)
        await wire.end()

    async with scripted(script) as runtime, connect(runtime.open, token=TOKEN) as client:
        with trio.move_on_after(0.1) as given_up:
            await client.close()
        assert given_up.cancelled_caught
        assert trio.current_time() < 0.2
        await client.close()
        assert not client.connected


async def test_closing_while_there_is_no_connection(autojump_clock: MockClock) -> None:
    """Closing while the client reconnects returns at once."""
    async with real_runtime() as runtime:
        network = Network(runtime)
        async with connect(network.open, token=TOKEN) as client:
            network.up = False
            await network.cut()
            await trio.sleep(5)
            before = trio.current_time()
            await client.close()
            await client.wait_closed()
            assert trio.current_time() == before


async def test_closing_in_a_handler(autojump_clock: MockClock) -> None:
    """An event handler may close its own client, and goes on after that."""
    after: list[bool] = []

    async def on_event(_: Event) -> None:
        await client.close()
        after.append(client.connected)

    async with (
        real_runtime() as runtime,
        connect(Network(runtime).open, token=TOKEN, on_event=on_event) as client,
    ):
        await client.submit("stuck")
        with trio.fail_after(1):
            await client.wait_closed()
    assert after == [False]


async def test_a_lost_session_is_told_to_wait_closed(
    autojump_clock: MockClock,
) -> None:
    """`wait_closed` raises why the session ended if the program has not closed it."""
    async with real_runtime() as runtime:
        network = Network(runtime)
        async with connect(network.open, token=TOKEN, reconnect_seconds=0) as client:
            await network.cut()
            with pytest.raises(ConnectionLost, match="was lost"):
                await client.wait_closed()


async def test_leaving_when_the_runtime_does_not_know_how(autojump_clock: MockClock) -> None:
    """A runtime that refuses `session.close` gets `session.bye`; a silent one is left soon."""

    async def refuses(wire: Wire) -> None:
        await wire.welcome()
        await wire.receive("session.close")
        await wire.send("session.error", {"code": "INVALID_REQUEST", "message": "what?"})
        bye = await wire.receive("session.bye")
        assert bye["payload"]["reason"]
        said.set()
        await wire.transport.close()

    async def ignores(wire: Wire) -> None:
        await wire.welcome()
        await wire.receive("nothing, ever")

    said = trio.Event()
    async with scripted(refuses, ignores) as runtime:
        async with connect(runtime.open, token=TOKEN):
            pass
        assert said.is_set()
        before = trio.current_time()
        async with connect(runtime.open, token=TOKEN):
            pass
        assert trio.current_time() - before <= 5


async def test_ends_and_unsubscribing_while_events_come(autojump_clock: MockClock) -> None:
    """Ending a thousand subscriptions while events stream breaks nothing."""
    async with (
        real_runtime() as runtime,
        connect(Network(runtime).open, token=TOKEN) as owner,
        connect(Network(runtime).open, token=TOKEN) as watcher,
    ):
        for _ in range(1_000):
            job = await owner.submit("count", 20)
            observed = await watcher.subscribe(job.id, history=True)
            await trio.lowlevel.checkpoint()
            await observed.unsubscribe()
        job = await owner.submit("count", 5)
        observed = await watcher.subscribe(job.id, history=True)
        assert len([event async for event in observed.events()]) == 5
