"""Runtimes that are child processes, which are spoken to in lines of UTF-8."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import connect
from arcp_trio.transport import MessageTooBig, TransportClosed, memory_streams
from arcp_trio.transport.stdio import LineTransport
from tests.processes import alive, gone

RUNTIME = Path(__file__).with_name("stdio_runtime.py")


@pytest.mark.spec("4-2")
@pytest.mark.parametrize("stays", [False, True])
async def test_a_runtime_in_a_child_process(
    monkeypatch: pytest.MonkeyPatch, *, stays: bool
) -> None:
    """A runtime in a child process works under any locale, and ends with all its children."""
    monkeypatch.setenv("LANG", "C")
    monkeypatch.setenv("PYTHONIOENCODING", "latin1")
    command = [sys.executable, str(RUNTIME), *(["stays"] if stays else [])]
    big = "é漢😀" * 100_000
    with trio.fail_after(30):
        async with connect(command) as client:
            value, grandchild = await (await client.submit("echo", big)).result()
            assert value == big
            assert alive(grandchild)
        await gone([grandchild])


def _transport(limit: int) -> tuple[LineTransport, trio.abc.Stream]:
    ours, theirs = memory_streams()
    return LineTransport(ours, ours, max_bytes=limit, peer="child"), theirs


async def test_lines_up_to_the_limit() -> None:
    """A line may have as many bytes as the limit; one more ends the transport."""
    for size in (65_537, 1_000_000):
        transport, peer = _transport(1_000_000)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.send_all, b"x" * size + b"\n")
            assert await transport.receive() == "x" * size
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_send_until_closed, peer, b"x" * 1_000_001 + b"\n")
            with pytest.raises(MessageTooBig):
                await transport.receive()
            await trio.aclose_forcefully(peer)


async def test_a_line_without_an_end() -> None:
    """A line without an end is not kept beyond the limit."""
    transport, peer = _transport(10_000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_send_until_closed, peer, b"x" * 1_000_000)
        with pytest.raises(MessageTooBig):
            await transport.receive()
        assert len(transport._buffer) < 100_000
        await trio.aclose_forcefully(peer)


async def _send_until_closed(stream: trio.abc.Stream, data: bytes) -> None:
    try:
        await stream.send_all(data)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return


async def test_what_is_not_utf8_and_what_is_blank() -> None:
    """Lines that are not UTF-8 are received as bytes; blank lines are skipped."""
    transport, peer = _transport(100)
    await peer.send_all(b"\r\n\n \t\r\n\xff\xfe\nok\r\nlast")
    assert await transport.receive() == b"\xff\xfe"
    assert transport.unread == 1
    assert await transport.receive() == "ok"
    await peer.aclose()
    with pytest.raises(TransportClosed):
        await transport.receive()


async def test_writing(autojump_clock: MockClock) -> None:
    """Each frame is sent as a line; a cancelled write ends the transport."""
    transport, peer = _transport(100)
    await transport.send([b"one", b"two"])
    assert await peer.receive_some() == b"one\ntwo\n"
    with trio.move_on_after(1):
        await transport.send([b"x" * 1_000_000])
    with pytest.raises(TransportClosed):
        await transport.send([b"more"])
