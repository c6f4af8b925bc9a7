"""Clients behind HAProxy, with the settings of examples/cluster."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio

from tests.cluster.client import Client
from tests.cluster.nodes import ROOT, Node
from tests.cluster.stage import staged

HAPROXY = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
SETTINGS = (ROOT / "examples" / "cluster" / "haproxy.cfg").read_text()

GONE_ON = 1012
"""The close code with which a node that drains sends its clients away."""

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.real_tcp,
    pytest.mark.skipif(HAPROXY is None, reason="there is no HAProxy on this machine"),
]


@attrs.frozen
class HAProxy:
    """What clients connect to."""

    port: int


@asynccontextmanager
async def haproxy(nodes: list[Node], folder: Path) -> AsyncGenerator[HAProxy]:
    """Run HAProxy before these nodes, with the example's settings but for names and ports."""
    assert HAPROXY is not None
    with socket.create_server(("127.0.0.1", 0)) as listener:
        # It is handed the socket, so that nothing else can have taken the port.
        text = SETTINGS.replace("bind :7777", f"bind fd@{listener.fileno()}")
        text = text.replace(" resolvers names init-addr last,libc,none", "")
        for node in nodes:
            text, found = re.subn(r" \w+:7777\n", f" 127.0.0.1:{node.port}\n", text, count=1)
            assert found == 1
        (folder / "haproxy.cfg").write_text(text)
        process = await trio.lowlevel.open_process(
            [HAPROXY, "-db", "-f", str(folder / "haproxy.cfg")],
            pass_fds=[listener.fileno()],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield HAProxy(listener.getsockname()[1])
        finally:
            process.kill()
            with trio.CancelScope(shield=True):  # a killed process ends
                await process.wait()


async def with_a_job(nodes: list[Node]) -> Node:
    """Wait until a job runs at one of these nodes, and return the node."""
    while True:
        for node in nodes:
            if 'arcp_jobs{state="running"} 1' in await metrics(node):
                return node
        await trio.sleep(0.05)


async def metrics(node: Node) -> str:
    """Return a node's metrics."""
    stream = await trio.open_tcp_stream("127.0.0.1", node.port)
    async with stream:
        await stream.send_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return b"".join([part async for part in stream]).decode()


async def test_sessions_survive_their_nodes(database: str, tmp_path: Path) -> None:
    """A session goes on elsewhere when its node drains, and when the next one is killed."""
    async with (
        staged(database, tmp_path, drain=30) as stage,
        haproxy(stage.cluster.nodes, tmp_path) as before,
    ):
        client = Client(before)
        stage.nursery.start_soon(client.run)
        counting = await client.submit("count", [500, 0.01], "counts through a drain")
        await client.heard(counting, 1)
        draining = await with_a_job(stage.cluster.nodes)
        draining.signal(signal.SIGTERM)
        await client.counted(counting, 500)
        assert await draining.ended() == 0
        assert client.codes[0] == GONE_ON
        walking = await client.submit("steps", 50, "walks through a kill")
        await (await with_a_job(stage.others(draining))).kill()
        assert (await client.end(walking))["result"] == sum(range(50))
        assert client.lost_sessions == 0
