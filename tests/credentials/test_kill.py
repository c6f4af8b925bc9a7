"""After a kill with credentials alive, the next process revokes them first (§14)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
import trio

from arcp_trio.testing import Peer, WireRecorder
from arcp_trio.transport import connect
from tests.credentials.server import live_values

pytestmark = pytest.mark.real_tcp

ROOT: Final = Path(__file__).parents[2]
TEST_SECONDS: Final = 100.0


@asynccontextmanager
async def server_over(folder: Path) -> AsyncGenerator[int]:
    """Provide the port of a server process, which is killed at the end of the block."""
    command = [sys.executable, "-m", "tests.credentials.server", str(folder)]
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None
    try:
        line = b""
        while not line.endswith(b"\n"):
            some = await process.stdout.receive_some()
            assert some, "it did not start"
            line += some
        yield int(line)
    finally:
        process.kill()
        with trio.fail_after(10, shield=True):
            await process.wait()
            await process.stdout.aclose()


@asynccontextmanager
async def peer_at(port: int) -> AsyncGenerator[Peer]:
    """Provide a client of that server with a session."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with connect(stream, max_bytes=1_000_000) as transport:
        peer = Peer(transport, stream, WireRecorder())
        welcome = await peer.hello()
        assert "provisioned_credentials" in welcome["payload"]["capabilities"]["features"]
        yield peer


def alive(folder: Path) -> list[str]:
    """Return the names of the keys that are alive."""
    return sorted(path.name for path in folder.glob("keys/*"))


async def becomes_alive(folder: Path, count: int) -> None:
    """Wait until there are this many keys."""
    while len(alive(folder)) < count:  # noqa: ASYNC110 - of another process
        await trio.sleep(0.01)


@pytest.mark.spec("14-13")
@pytest.mark.parametrize("when", ["running", "issuing", "rotating"])
async def test_killed_and_started_again(when: str, tmp_path: Path) -> None:
    """After a kill no earlier key is alive once work is accepted again."""
    (tmp_path / "keys").mkdir()
    with trio.fail_after(TEST_SECONDS):
        async with server_over(tmp_path) as port, peer_at(port) as peer:
            if when == "issuing":
                (tmp_path / "mute").touch()
                await peer.send("job.submit", {"agent": "sleeper"})
            else:
                accepted = await peer.submit("sleeper")
                (credential,) = accepted["credentials"]
                assert {credential["value"]} == live_values(tmp_path)
            if when == "rotating":
                (tmp_path / "mute").touch()
                (tmp_path / "rotate").touch()
            await becomes_alive(tmp_path, 2 if when == "rotating" else 1)
        assert alive(tmp_path)
        for name in ("mute", "rotate"):
            (tmp_path / name).unlink(missing_ok=True)
        async with server_over(tmp_path) as port:
            assert alive(tmp_path) == []
            async with peer_at(port) as peer:
                await peer.submit("sleeper")
                assert len(alive(tmp_path)) == 1
        async with server_over(tmp_path):
            assert alive(tmp_path) == []
