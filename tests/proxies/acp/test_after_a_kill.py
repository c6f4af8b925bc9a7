"""A conversation goes on after the server's process was killed."""

from __future__ import annotations

import shlex
import signal
from pathlib import Path
from typing import Any

import pytest
import trio

from arcp_trio import ArcpError, connect
from tests.durable.process import TOKEN, Server, server_in
from tests.proxies.acp.stage import SECONDS, command, steps

pytestmark = pytest.mark.real_tcp

CAPABILITIES: dict[str, Any] = {"sessionCapabilities": {"resume": {}}}


async def restarted(server: Server) -> None:
    """Kill the server's process, and start another one."""
    await server.signalled(signal.SIGKILL)
    await server.start()


async def test_a_kill_in_the_first_turn(tmp_path: Path) -> None:
    """The job that was killed ends as others do, and the next one is in the same session."""
    words = command(store=str(tmp_path / "sessions"), capabilities=CAPABILITIES)
    agent = ("--agent", f"coder=acp:{shlex.join(words)}", "--sandbox", "off")
    with trio.fail_after(SECONDS):
        async with server_in(tmp_path, *agent) as server:
            await server.start()
            async with connect(server.url, token=TOKEN) as client:
                killed = await client.submit("coder", steps(["say", "a"], ["wait"]))
                async for event in killed.events():
                    if event.kind == "result_chunk":
                        break
                await restarted(server)
                with pytest.raises(ArcpError) as caught:
                    await killed.result()
                assert (caught.value.code, caught.value.retryable) == ("INTERNAL_ERROR", True)
                then = await client.submit(
                    "coder", {"prompt": steps(["history"]), "session": killed.id}
                )
                assert await then.result() == '[["say", "wait"], ["history"]]'
                await restarted(server)
                last = await client.submit(
                    "coder", {"prompt": steps(["history"]), "session": killed.id}
                )
                assert await last.result() == '[["say", "wait"], ["history"], ["history"]]'
