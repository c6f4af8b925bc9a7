"""Frames as lines over pipes: nothing lost, nothing held, and an end that is noticed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from arcp_trio.transport import MessageTooBig, TransportClosed
from arcp_trio.transport.stdio import LineTransport, spawn
from tests.footprint import tasks
from tests.transport.processes import gone, has_children

MIB = 1024 * 1024
ECHO = [
    sys.executable,
    "-c",
    "import sys\nfor line in sys.stdin.buffer: sys.stdout.buffer.write(line); sys.stdout.flush()",
]


@asynccontextmanager
async def pipes(
    *, max_bytes: int = MIB, on_end: bool = False
) -> AsyncGenerator[tuple[LineTransport, LineTransport, trio.Event], None]:
    """Two transports at the ends of two pipes; and when the second one's peer has said all."""
    there, back = os.pipe(), os.pipe()
    ended = trio.Event()
    one = LineTransport(
        trio.lowlevel.FdStream(back[0]),
        trio.lowlevel.FdStream(there[1]),
        max_bytes=max_bytes,
        peer="one",
    )
    other = LineTransport(
        trio.lowlevel.FdStream(there[0]),
        trio.lowlevel.FdStream(back[1]),
        max_bytes=max_bytes,
        peer="other",
        on_end=ended.set if on_end else None,
    )
    with trio.fail_after(20):
        yield one, other, ended
        await one.close()
        await other.close()


@pytest.mark.spec("4-2")
@pytest.mark.parametrize("size", [1, 65_535, 65_536, 65_537, MIB - 1, MIB])
async def test_there_and_back_through_a_process(size: int) -> None:
    """A line may have as much as is allowed, however little a pipe holds."""
    with trio.fail_after(20):
        async with spawn(ECHO, max_bytes=MIB) as child, trio.open_nursery() as nursery:
            frame = ("漢" * (size // 3) + "x" * (size % 3)).encode()
            assert len(frame) == size
            nursery.start_soon(child.transport.send, [frame, b"next"])
            assert await child.transport.receive() == frame.decode()
            assert await child.transport.receive() == "next"


async def test_one_byte_too_many() -> None:
    """It is named as what it is."""
    async with pipes(max_bytes=100_000) as (one, other, _), trio.open_nursery() as nursery:
        nursery.start_soon(one.send, [b"x" * 100_000, b"y" * 100_001])
        assert await other.receive() == "x" * 100_000
        with pytest.raises(MessageTooBig, match="100000 bytes"):
            await other.receive()


async def test_a_thousand_cancelled_receives() -> None:
    """They leave no task and lose no line, whole or half."""
    async with pipes() as (one, other, _):
        before = tasks()
        for number in range(1_000):
            with trio.move_on_after(0):
                await other.receive()
            if number % 10 == 0:
                await one.send([str(number).encode()])
        assert tasks() == before
        assert [await other.receive() for _ in range(100)] == [str(n) for n in range(0, 1_000, 10)]


async def test_half_a_line_survives_a_cancelled_receive() -> None:
    """What was read of a line is kept for the next one who asks."""
    async with pipes() as (one, other, _):
        await one._outgoing.send_all(b"ha")
        with trio.move_on_after(0.05):
            await other.receive()
        await one._outgoing.send_all(b"lf\n")
        assert await other.receive() == "half"


async def test_closing_ends_a_pending_receive() -> None:
    """It ends at once, and so does whatever is tried afterwards, on both ends."""
    async with pipes() as (one, other, _), trio.open_nursery() as nursery:

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
    """Nothing stays open because somebody is in a hurry."""
    async with pipes() as (one, other, _):
        with trio.CancelScope() as scope:
            scope.cancel()
            await other.close()
        with pytest.raises(TransportClosed):
            await one.receive()
        with pytest.raises(TransportClosed):
            await one.send([b"x"])


async def test_a_peer_that_says_no_more_may_still_read() -> None:
    """The end of its lines is told once, half a line is none, and ours still go out."""
    async with pipes(on_end=True) as (one, other, ended), trio.open_nursery() as nursery:
        await one._outgoing.send_all(b"whole\nhalf a l")
        assert await other.receive() == "whole"
        nursery.start_soon(other.receive)
        await wait_all_tasks_blocked()
        assert not ended.is_set()
        await one._outgoing.aclose()
        await ended.wait()
        assert trio.lowlevel.current_statistics().tasks_runnable == 0  # it does not spin
        await other.send([b"answer"])
        assert await one.receive() == "answer"
        nursery.cancel_scope.cancel()


async def test_many_writers() -> None:
    """Lines of several tasks never mix, whatever their size."""
    async with pipes() as (one, other, _), trio.open_nursery() as nursery:
        for letter in "abcdef":
            nursery.start_soon(one.send, [letter.encode() * 100_000] * 3)
        lines = [await other.receive() for _ in range(18)]
    assert sorted(lines) == sorted([letter * 100_000 for letter in "abcdef"] * 3)


async def test_a_child_in_an_environment_of_its_own() -> None:
    """It has the variables it is given and no others, and its standard error can be read."""
    script = "import os, sys; print(*sorted(os.environ)); sys.stderr.write('said')"
    with trio.fail_after(20):
        async with spawn(
            [sys.executable, "-c", script],
            max_bytes=MIB,
            environment={"ONLY": "1", "LC_CTYPE": "C.UTF-8"},
            keep_stderr=True,
        ) as child:
            assert await child.transport.receive() == "LC_CTYPE ONLY"
            assert child.stderr is not None
            assert b"".join([data async for data in child.stderr]) == b"said"
        assert child.returncode == 0


async def test_nothing_of_a_child_stays() -> None:
    """Not itself, however it clings to life, not as a zombie, nor what it has started."""
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


async def test_the_number_of_a_child_that_is_gone_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may be another's by then."""
    async with spawn([sys.executable, "-c", ""], max_bytes=MIB) as child:
        await child.end()
        signalled: list[int] = []
        monkeypatch.setattr(os, "killpg", lambda pid, _number: signalled.append(pid))
        child.signal(signal.SIGTERM)
    assert signalled == []
