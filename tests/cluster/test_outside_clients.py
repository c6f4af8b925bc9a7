"""Clients that know nothing of nodes, before a balancer that takes each connection to the next."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.cluster.nodes import token_of
from tests.cluster.stage import staged
from tests.interop.told import check_client, check_typescript_client, needs_typescript_sdk

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]


async def test_the_vendors_client(database: str, tmp_path: Path) -> None:
    """The vendor's Python SDK client sees what it sees of one runtime, resume included."""
    async with staged(database, tmp_path) as stage:
        url = f"ws://127.0.0.1:{stage.cluster.balancer.port}/arcp"
        await trio.to_thread.run_sync(check_client, url, token_of("alice"))


@needs_typescript_sdk
async def test_the_vendors_client_in_typescript(database: str, tmp_path: Path) -> None:
    """The vendor's TypeScript SDK client resumes, watches and cancels at whichever node it is."""
    async with staged(database, tmp_path) as stage:
        url = f"ws://127.0.0.1:{stage.cluster.balancer.port}/arcp"
        for _ in range(3):  # each begins at another node
            await trio.to_thread.run_sync(check_typescript_client, url, token_of("alice"))
