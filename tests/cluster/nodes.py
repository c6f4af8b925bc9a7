"""Real node processes over one database, each with its own line to it, behind one balancer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio

from arcp_trio.nurseries import tasks_beside
from arcp_trio.testing import Peer, WireRecorder
from arcp_trio.transport.websocket import connect
from arcp_trio.wire.features import ALL_FEATURES
from tests.cluster.balancer import Balancer
from tests.cluster.line import DatabaseLine

ROOT: Final = Path(__file__).parents[2]
PRINCIPALS: Final = ("alice", "bob")
NODE_SECONDS: Final = 2
"""After how long without a beat a node counts as dead."""
SERVE: Final = ("arcp_trio", "serve")
"""The module, and its first words, that a node is a process of."""

_FRAME_BYTES: Final = 1024 * 1024
_START_SECONDS: Final = 300.0
_END_SECONDS: Final = 300.0


def token_of(principal: str) -> str:
    """Return the token of a principal."""
    return f"the-token-of-{principal}"


class Node:
    """One name, and the process that has it now."""

    def __init__(
        self, name: str, folder: Path, line: DatabaseLine, program: Sequence[str] = SERVE
    ) -> None:
        self.name = name
        self.line = line
        self.port = 0
        self.serves = False
        """Whether the balancer takes clients to it."""
        self._log = folder / f"{name}.log"
        self._command = [sys.executable, "-m", *program, "--config", str(folder / "serve.toml")]
        self._process: trio.Process | None = None

    @property
    def log(self) -> str:
        """What all processes of this name have logged."""
        return self._log.read_text()

    @property
    def pid(self) -> int:
        """The process."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Start a process, and wait until it listens."""
        assert await self.tries_to_start(), f"{self.name} did not start: {self.log}"

    async def tries_to_start(self) -> bool:
        """Start a process; return whether it listens, or else has ended."""
        tokens = ",".join(f"{principal}={token_of(principal)}" for principal in PRINCIPALS)
        with self._log.open("ab") as log:
            self._process = await trio.lowlevel.open_process(
                [*self._command, "--node", self.name, "--port", "0"],
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, "ARCP_TOKENS": tokens, "ARCP_STORE": self.line.url},
            )
        assert self._process.stdout is not None
        line = b""
        with trio.fail_after(_START_SECONDS):
            while not line.endswith(b"\n"):
                some = await self._process.stdout.receive_some()
                if not some:
                    await self.ended()
                    return False
                line += some
        self.port = int(line.rpartition(b":")[2].partition(b"/")[0])
        self.serves = True
        return True

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal; it may be gone already."""
        assert self._process is not None
        self._process.send_signal(number)

    async def ended(self) -> int:
        """Wait for the end of the process, and return its exit code."""
        assert self._process is not None
        with trio.fail_after(_END_SECONDS):
            code = await self._process.wait()
        self.serves = False
        assert self._process.stdout is not None
        await self._process.stdout.aclose()
        return code

    async def kill(self) -> None:
        """Kill the process, whatever it does, stopped or not."""
        self.serves = False
        self.signal(signal.SIGKILL)
        await self.ended()

    @property
    def running(self) -> bool:
        """Whether there is a process."""
        return self._process is not None and self._process.returncode is None


@asynccontextmanager
async def peer_at(node: Node, features: tuple[str, ...] = ALL_FEATURES) -> AsyncGenerator[Peer]:
    """Provide a client with a session at a node, without the balancer."""
    stream = await trio.open_tcp_stream("127.0.0.1", node.port)
    async with stream, connect(stream, max_bytes=_FRAME_BYTES) as transport:
        peer = Peer(transport, stream, WireRecorder())
        await peer.hello(token=token_of("alice"), features=features)
        yield peer


class Cluster:
    """Some nodes, and the balancer before them."""

    def __init__(self, nodes: list[Node], database: str, folder: Path) -> None:
        self.nodes = nodes
        self.database = database
        self.folder = folder
        """With the nodes' logs, and what else they keep beside their configuration."""
        self.balancer = Balancer(lambda: [node.port for node in self.nodes if node.serves])

    def __getitem__(self, place: int) -> Node:
        return self.nodes[place]

    @property
    def logs(self) -> str:
        """The ends of all logs."""
        return "\n".join(f"--- {node.name}\n{node.log[-30_000:]}" for node in self.nodes)


@asynccontextmanager
async def cluster_over(
    database: str,
    folder: Path,
    *,
    nodes: int = 3,
    node_seconds: float = NODE_SECONDS,
    drain: float = 1,
    program: Sequence[str] = SERVE,
) -> AsyncGenerator[Cluster]:
    """Run some nodes over a database; no process is left after the block."""
    (folder / "serve.toml").write_text(
        f'[serve]\nagents = ["tests.cluster.agents", "tests.interop.slow_agents"]\n'
        f"demo_agents = true\ndrain = {drain}\n"
        f"[limits]\nnode_seconds = {node_seconds}\nheartbeat_seconds = 1\n"
    )
    async with tasks_beside() as nursery:
        lines = [DatabaseLine(database) for _ in range(nodes)]
        named = [Node(f"n{n}", folder, line, program) for n, line in enumerate(lines)]
        cluster = Cluster(named, database, folder)
        try:
            for line in lines:
                await nursery.start(line.run)
            await nursery.start(cluster.balancer.run)
            async with trio.open_nursery() as starting:
                for node in cluster.nodes:
                    starting.start_soon(node.start)
            yield cluster
        except BaseException as error:
            error.add_note(cluster.logs)
            raise
        finally:
            with trio.CancelScope(shield=True):  # each end is bounded
                for node in cluster.nodes:
                    if node.running:
                        await node.kill()
