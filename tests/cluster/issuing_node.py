"""A node whose program gives it a provisioner: `serve` takes none. The keys are files beside it.

`python -m tests.cluster.issuing_node --config FILE --node NAME --port PORT` is started as `serve`
is, and prints the same line once it listens.
"""

from __future__ import annotations

import argparse
import logging
import os
import tomllib
from pathlib import Path
from typing import Final

import trio

from arcp_trio import Agents, JobContext, Json, Limits, PostgresStore, Runtime, StaticTokens, serve
from arcp_trio.log_lines import TextFormatter
from tests.cluster.agents import agents
from tests.credentials.server import Gateway

ISSUING: Final = ("tests.cluster.issuing_node",)
"""The program of such nodes; see `cluster_over`."""

_PAUSE_SECONDS: Final = 0.2

holders: Final = Agents()


@holders.agent("holder", durable=True)
async def holder(job: JobContext) -> Json:
    """Log 0, 1, 2 … up to the input, slowly: a process that dies has it begin again."""
    assert isinstance(job.input, int)
    for number in range(job.input):
        await job.log(str(number))
        await trio.sleep(_PAUSE_SECONDS)
    return len(job.credentials)


async def main(folder: Path, limits: Limits, name: str, port: int) -> None:
    """Serve until killed."""
    tokens = [pair.partition("=") for pair in os.environ["ARCP_TOKENS"].split(",")]
    runtime = Runtime(
        auth=StaticTokens({token: principal for principal, _, token in tokens}),
        store=PostgresStore(os.environ["ARCP_STORE"], node=name),
        limits=limits,
        provisioner=Gateway(folder),
    )
    runtime.add(agents)
    runtime.add(holders)
    async with runtime, trio.open_nursery() as nursery:
        listeners = await nursery.start(serve, runtime, "127.0.0.1", port)
        host, port = listeners[0].socket.getsockname()
        print(f"listening on ws://{host}:{port}/arcp", flush=True)  # noqa: T201 - to the test


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path)
    parser.add_argument("--node")
    parser.add_argument("--port", type=int)
    given = parser.parse_args()
    handler = logging.StreamHandler()
    handler.setFormatter(TextFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    limits = Limits(**tomllib.loads(given.config.read_text())["limits"])
    (given.config.parent / "keys").mkdir(exist_ok=True)
    trio.run(main, given.config.parent, limits, given.node, given.port)
