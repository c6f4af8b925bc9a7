"""The proxy of contained programs: how long a tunnel stays open."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from arcp_trio.authority.lease import Lease
from arcp_trio.sandbox.network.proxy import IDLE_SECONDS, Proxy
from arcp_trio.sandbox.network.reach import Reach


async def read(stream: trio.SocketStream, until: bytes) -> None:
    """Read up to these bytes."""
    found = b""
    while not found.endswith(until):
        part = await stream.receive_some()
        assert part, found
        found += part


@pytest.mark.real_tcp
async def test_a_tunnel_ends_when_neither_side_sends(mock_clock: trio.testing.MockClock) -> None:
    """A long answer keeps a tunnel open, however long its reader says nothing."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    ours, theirs = map(trio.SocketStream, trio.socket.socketpair())
    reach = Reach(
        lease=Lease.read({"net.fetch": [f"https://127.0.0.1:{port}/**"]}),
        authorize=lambda _: None,
        added=list,
    )
    async with listener, ours, trio.open_nursery() as nursery:
        nursery.start_soon(Proxy(theirs, reach, None).serve)
        await ours.send_all(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        async with await listener.accept() as server:
            await read(ours, b"\r\n\r\n")
            for number in range(5):
                mock_clock.jump(IDLE_SECONDS - 1)
                await server.send_all(b"%d" % number)
                await read(ours, b"%d" % number)
            mock_clock.jump(IDLE_SECONDS + 1)
            assert await ours.receive_some() == b""
            assert await server.receive_some() == b""
