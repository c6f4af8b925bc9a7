"""Entering and leaving the block: what comes out of it, and that nothing is left behind."""

from __future__ import annotations

import builtins
from contextlib import AbstractAsyncContextManager

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

import arcp_trio
from arcp_trio import Client, ConnectionLost, Event, connect
from arcp_trio.client.stream import JobStream
from tests.client.support import TOKEN, Network, Wire, real_runtime, scripted


class MineError(Exception):
    """The program's own."""


async def _submit_and_wait(connecting: AbstractAsyncContextManager[Client]) -> None:
    async with connecting as client:
        await client.submit("stuck")
        await trio.sleep_forever()


def tasks() -> set[str]:
    """The names of all tasks of this test's nurseries."""
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
    """No group around it, and the session is closed all the same."""

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
    """What is no `Exception` comes out just the same."""
    async with real_runtime() as runtime:
        with pytest.raises(kind):
            async with connect(Network(runtime).open, token=TOKEN):
                raise kind


async def test_a_group_of_the_programs_own_stays_one(autojump_clock: MockClock) -> None:
    """What the program grouped is not taken apart."""
    async with real_runtime() as runtime:
        with pytest.RaisesGroup(MineError, KeyError):
            async with connect(Network(runtime).open, token=TOKEN):
                raise ExceptionGroup("both", [MineError(), KeyError()])


async def test_what_a_handler_raises_ends_the_block(autojump_clock: MockClock) -> None:
    """The exception of an event handler is not swallowed: it comes out of the block as it is."""

    async def on_event(event: Event) -> None:
        raise MineError(event.kind)

    async with real_runtime() as runtime:
        connecting = connect(Network(runtime).open, token=TOKEN, on_event=on_event)
        with pytest.raises(MineError, match="status"):
            await _submit_and_wait(connecting)


async def test_a_loss_that_no_call_can_tell_ends_the_block(autojump_clock: MockClock) -> None:
    """A program that only waits for its handler hears of the session's end."""
    async with real_runtime() as runtime:
        network = Network(runtime)

        async def program() -> None:
            async with connect(network.open, token=TOKEN, reconnect_seconds=0):
                await network.cut()
                await trio.sleep_forever()

        with pytest.raises(ConnectionLost):
            await program()


async def test_a_loss_that_was_told_is_not_told_twice(autojump_clock: MockClock) -> None:
    """A program that has dealt with the error leaves its block in peace."""
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
    """A reader that crashes is raised to the program, and nobody waits for ever."""

    def crash(*_: object) -> None:
        raise MineError

    async with real_runtime() as runtime:
        monkeypatch.setattr(JobStream, "authorise", crash)
        with pytest.raises(MineError):
            await _submit_and_wait(connect(Network(runtime).open, token=TOKEN))


def test_no_name_shadows_a_builtin() -> None:
    """Everything public, imported at once, leaves the language's own names alone."""
    assert not set(arcp_trio.__all__) & set(dir(builtins)) - {"__version__"}


async def test_a_nursery_of_the_programs_own_goes_on(autojump_clock: MockClock) -> None:
    """What the program owns is none of the client's to end."""
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
    """All tasks have names, and end with the block, however it is left."""
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
    """Its calls and handles say so, and do not wait."""
    async with real_runtime() as runtime:
        async with connect(Network(runtime).open, token=TOKEN) as client:
            job = await client.submit("stuck")
            await anext(job.events())
            seen = trio.Event()

            async def watch() -> None:
                with pytest.raises(ConnectionLost, match="closed"):
                    await job.result()
                seen.set()

            trio.lowlevel.spawn_system_task(watch)
            await trio.lowlevel.checkpoint()
        for call in (client.submit("echo"), job.result(), anext(job.events()), job.cancel()):
            with pytest.raises(ConnectionLost, match="closed"):
                await call
        await seen.wait()


async def test_leaving_when_the_runtime_does_not_know_how(autojump_clock: MockClock) -> None:
    """One that refuses `session.close` gets a `session.bye`; silence is waited for briefly."""

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
    """Subscriptions are closed while events stream, many times: nothing breaks."""
    async with (
        real_runtime() as runtime,
        connect(Network(runtime).open, token=TOKEN) as owner,
        connect(Network(runtime).open, token=TOKEN) as watcher,
    ):
        for _ in range(50):
            job = await owner.submit("count", 100)
            observed = await watcher.subscribe(job.id, history=True)
            await trio.lowlevel.checkpoint()
            await observed.unsubscribe()
        job = await owner.submit("count", 5)
        observed = await watcher.subscribe(job.id, history=True)
        assert len([event async for event in observed.events()]) == 5
