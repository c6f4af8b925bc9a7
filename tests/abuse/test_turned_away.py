"""Connections that are refused are logged."""

from __future__ import annotations

import logging

import pytest
import trio

from tests.abuse.support import agents, hands_on, is_served, peer_of, serving
from tests.stage import make_runtime
from tests.transport.peers import request

WRONG: dict[str, tuple[bytes, bytes]] = {
    "garbage": (b"\x00\xff\r\n\r\n", b"400"),
    "another path": (request("/elsewhere"), b"404"),
    "another host": (request().replace(b"localhost", b"example.com"), b"403"),
    "another origin": (request()[:-2] + b"Origin: https://example.com\r\n\r\n", b"403"),
    "no key": (request().replace(b"Sec-WebSocket-Key", b"X"), b"400"),
    "another version": (request().replace(b"Version: 13", b"Version: 8"), b"426"),
}


@pytest.mark.real_tcp
@pytest.mark.parametrize(("sent", "status"), WRONG.values(), ids=WRONG)
async def test_each_leaves_a_line_in_the_log(
    sent: bytes, status: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A refused connection leaves a line with its peer, and the client an HTTP response."""
    caplog.set_level(logging.INFO, "arcp_trio")
    with trio.fail_after(30):
        async with serving(make_runtime(agents)) as port:
            async with hands_on(port, reset=False) as peer:
                assert isinstance(peer.stream, trio.SocketStream)
                own_port = peer.stream.socket.getsockname()[1]
                await peer.stream.send_all(sent)
                assert (await peer.read_to_end()).startswith(b"HTTP/1.1 " + status)
            whom = [vars(record).get("peer") for record in caplog.records]
            assert f"127.0.0.1:{own_port}" in whom
            async with peer_of(port) as good:
                await good.hello()
                await is_served(good)
