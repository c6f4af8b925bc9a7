"""Frames as lines over pipes and processes: no line is lost, and ends are noticed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from attrs import frozen
from trio.testing import wait_all_tasks_blocked

from arcp_trio.transport import MessageTooBig, TransportClosed
from arcp_trio.transport.stdio import LineTransport, spawn
from tests.footprint import tasks
from tests.processes import gone, has_children

MIB = 1024 * 1024
ECHO = [
    sys.executable,
    "-c",
    "import sys\nfor line in sys.stdin.buffer: sys.stdout.buffer.write(line); sys.stdout.flush()",
]


@frozen
class Pipes:
    """Two transports at the ends of two pipes."""

    one: LineTransport
    other: LineTransport
    to_other: trio.lowlevel.FdStream
    """The end of the pipe that `one` writes to."""
    ended: trio.Event
    """Set when the pipe to `other` has ended, if the test asked for `on_end`."""


@asynccontextmanager
async def pipes(*, max_bytes: int = MIB, on_end: bool = False) -> AsyncGenerator[Pipes, None]:
    """Open two transports at the ends of two pipes."""
    there, back = os.pipe(), os.pipe()
    to_other, ended = trio.lowlevel.FdStream(there[1]), trio.Event()
    one = LineTransport(trio.lowlevel.FdStream(back[0]), to_other, max_bytes=max_bytes, peer="one")
    other = LineTransport(
        trio.lowlevel.FdStream(there[0]),
        trio.lowlevel.FdStream(back[1]),
        max_bytes=max_bytes,
        peer="other",
        on_end=ended.set if on_end else None,
    )
    with trio.fail_after(20):
        yield Pipes(one, other, to_other, ended)
        await one.close()
        await other.close()


@pytest.mark.spec("4-2")
@pytest.mark.parametrize("size", [1, 65_535, 65_536, 65_537, MIB - 1, MIB])
async def test_there_and_back_through_a_process(size: int) -> None:
    """A line may be as long as the limit, however little a pipe holds."""
    with trio.fail_after(20):
        async with spawn(ECHO, max_bytes=MIB) as child, trio.open_nursery() as nursery:
            frame = ("漢" * (size // 3) + "x" * (size % 3)).encode()
            assert len(frame) == size
            nursery.start_soon(child.transport.send, [frame, b"next"])
            assert await child.transport.receive() == frame.decode()
            assert await child.transport.receive() == "next"


async def test_one_byte_too_many() -> None:
    """A line over the limit raises MessageTooBig."""
    async with pipes(max_bytes=100_000) as pair, trio.open_nursery() as nursery:
        one, other = pair.one, pair.other
        nursery.start_soon(one.send, [b"x" * 100_000, b"y" * 100_001])
        assert await other.receive() == "x" * 100_000
        with pytest.raises(MessageTooBig, match="100000 bytes"):
            await other.receive()


async def test_a_thousand_cancelled_receives() -> None:
    """Cancelled receives leave no task and lose no line."""
    async with pipes() as pair:
        one, other = pair.one, pair.other
        before = tasks()
        for number in range(1_000):
            with trio.move_on_after(0):
                await other.receive()
            if number % 10 == 0:
                await one.send([str(number).encode()])
        assert tasks() == before
        assert [await other.receive() for _ in range(100)] == [str(n) for n in range(0, 1_000, 10)]


async def test_half_a_line_survives_a_cancelled_receive() -> None:
    """Half a line that was read before a cancellation is part of the next receive."""
    async with pipes() as pair:
        other = pair.other
        await pair.to_other.send_all(b"ha")
        with trio.move_on_after(0.05):
            await other.receive()
        await pair.to_other.send_all(b"lf\n")
        assert await other.receive() == "half"


async def test_closing_ends_a_pending_receive() -> None:
    """Closing ends a pending receive at once, and breaks later calls on both ends."""
    async with pipes() as pair, trio.open_nursery() as nursery:
        one, other = pair.one, pair.other

        async def receive() -> None:
            with pytest.raises(TransportClosed):
                await other.receive()

        nursery.start_soon(receive)
        await wait_all_tasks_blocked()
        await other.close()
        await other.close()
        with pytest.raises(TransportClosed):
            await other.receive()
        with pytest.raises(TransportClosed):
            await other.send([b"x"])
        with pytest.raises(TransportClosed):
            await one.receive()
        with pytest.raises(TransportClosed):
            await one.send([b"x"])


async def test_closing_while_being_cancelled_closes_both_ways() -> None:
    """Closing in a cancelled task closes both streams."""
    async with pipes() as pair:
        one, other = pair.one, pair.other
        with trio.CancelScope() as scope:
            scope.cancel()
            await other.close()
        with pytest.raises(TransportClosed):
            await one.receive()
        with pytest.raises(TransportClosed):
            await one.send([b"x"])


async def test_a_peer_that_has_closed_its_output_may_still_read() -> None:
    """With `on_end`, a peer that has closed its output, after half a line, still gets answers."""
    async with pipes(on_end=True) as pair, trio.open_nursery() as nursery:
        one, other = pair.one, pair.other
        await pair.to_other.send_all(b"whole\nhalf a l")
        assert await other.receive() == "whole"
        nursery.start_soon(other.receive)
        await wait_all_tasks_blocked()
        assert not pair.ended.is_set()
        await pair.to_other.aclose()
        await pair.ended.wait()
        assert trio.lowlevel.current_statistics().tasks_runnable == 0  # waiting uses no CPU time
        await other.send([b"answer"])
        assert await one.receive() == "answer"
        nursery.cancel_scope.cancel()


async def test_many_writers() -> None:
    """Lines of several tasks do not mix, whatever their size."""
    async with pipes() as pair, trio.open_nursery() as nursery:
        one, other = pair.one, pair.other
        for letter in "abcdef":
            nursery.start_soon(one.send, [letter.encode() * 100_000] * 3)
        lines = [await other.receive() for _ in range(18)]
    assert sorted(lines) == sorted([letter * 100_000 for letter in "abcdef"] * 3)


async def test_a_child_in_an_environment_of_its_own() -> None:
    """A child has only the variables it was given, and its standard error can be read."""
    script = "import os, sys; print(*sorted(os.environ)); sys.stderr.write('said')"
    with trio.fail_after(20):
        async with spawn(
            [sys.executable, "-c", script],
            max_bytes=MIB,
            environment={"ONLY": "1", "LC_CTYPE": "C.UTF-8"},
            keep_stderr=True,
        ) as child:
            assert await child.transport.receive() == "LC_CTYPE ONLY"
            said: list[str] = []
            await child.read_errors(said.append)
            assert said == ["said"]
        assert child.returncode == 0


async def test_a_child_that_dies_with_its_parent_lives_on() -> None:
    """A child that asks to be killed when its parent ends is not killed while this process lives.

    Its parent is the thread that forked it. Trio ends a thread of its own after ten idle seconds.
    """
    script = (
        "import ctypes, sys, time\n"
        "ctypes.CDLL(None).prctl(1, 9)\n"  # PR_SET_PDEATHSIG, SIGKILL
        "print('begun', flush=True)\n"
        "time.sleep(12)\n"
        "print('done', flush=True)\n"
    )
    with trio.fail_after(60):
        async with spawn([sys.executable, "-c", script], max_bytes=MIB) as child:
            assert await child.transport.receive() == "begun"
            assert await child.transport.receive() == "done"
            await child.wait()
        assert child.returncode == 0


async def test_nothing_of_a_child_is_left() -> None:
    """A child that ignores SIGTERM is killed and waited for, and so is what it has started."""
    script = (
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with trio.fail_after(20):
        async with spawn([sys.executable, "-c", script], max_bytes=MIB) as child:
            grandchild = int(await child.transport.receive())
        assert child.returncode == -9
        assert not has_children()
        await gone([grandchild])


async def test_the_number_of_a_dead_child_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No signal is sent to a child that was waited for, as its number may belong to another."""
    async with spawn([sys.executable, "-c", ""], max_bytes=MIB) as child:
        await child.end()
        signalled: list[int] = []
        monkeypatch.setattr(os, "killpg", lambda pid, _number: signalled.append(pid))
        child.signal(signal.SIGTERM)
    assert signalled == []
