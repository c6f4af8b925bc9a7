"""Byte streams within the process."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, check_two_way_stream, wait_all_tasks_blocked

from arcp_trio.transport import memory_streams
from arcp_trio.transport.memory import PIPE_BYTES


async def test_behaves_like_a_trio_stream() -> None:
    """Memory streams pass Trio's own checks of two-way streams."""

    async def make() -> tuple[trio.abc.Stream, trio.abc.Stream]:
        return memory_streams()

    async def make_clogged() -> tuple[trio.abc.Stream, trio.abc.Stream]:
        left, right = memory_streams()
        await left.send_all(bytes(PIPE_BYTES))
        await right.send_all(bytes(PIPE_BYTES))
        return left, right

    await check_two_way_stream(make, make_clogged)


async def test_a_writer_waits_for_its_reader() -> None:
    """A writer waits when the pipe is full, and everything arrives in order once it is read."""
    left, right = memory_streams()
    data = bytes(range(256)) * 1024
    written = trio.Event()

    async def write() -> None:
        await left.send_all(data)
        written.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        await wait_all_tasks_blocked()
        assert not written.is_set()
        received = bytearray()
        while len(received) < len(data):
            some = await right.receive_some()
            assert len(some) <= PIPE_BYTES
            received += some
        assert received == data
    assert written.is_set()


async def test_closing_one_end_ends_the_other() -> None:
    """Closing one end lets the other read what was sent, and breaks its writes."""
    left, right = memory_streams()
    await left.send_all(b"last words")
    await right.send_all(bytes(PIPE_BYTES))
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def write() -> None:
            with pytest.raises(trio.BrokenResourceError):
                await right.send_all(b"more")

        await wait_all_tasks_blocked()
        await left.aclose()
    assert await right.receive_some() == b"last words"
    assert await right.receive_some() == b""
    with pytest.raises(trio.BrokenResourceError):
        await right.send_all(b"more")


async def test_virtual_time_passes_while_both_ends_idle(autojump_clock: MockClock) -> None:
    """A wait of a minute takes no time under an autojump clock."""
    left, _right = memory_streams()
    with trio.move_on_after(60) as minute:
        await left.receive_some()
    assert minute.cancelled_caught
    assert trio.current_time() == 60
