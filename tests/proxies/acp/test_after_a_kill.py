"""A conversation goes on after the server's process was killed."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from arcp_trio import ArcpError, MemoryStore, Runtime, acp_agent, connect
from arcp_trio.store.writes import KeepMemo, Write
from arcp_trio.testing import open_pair
from tests.durable.process import TOKEN, Server, server_in
from tests.proxies.acp.stage import SECONDS, TOKENS, command, steps

pytestmark = pytest.mark.real_tcp

CAPABILITIES: dict[str, Any] = {"sessionCapabilities": {"resume": {}}}


async def restarted(server: Server) -> None:
    """Kill the server's process, and start another one."""
    await server.signalled(signal.SIGKILL)
    await server.start()


class HeldNotes(MemoryStore):
    """A store that stores no note before it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.held, self.let = trio.Event(), trio.Event()

    async def _commit(self, writes: Sequence[Write]) -> None:
        if any(isinstance(write, KeepMemo) for write in writes):
            self.held.set()
            await self.let.wait()
        await super()._commit(writes)


async def test_no_prompt_before_the_note_is_stored(tmp_path: Path) -> None:
    """The agent is given its prompt only when a later job could go on with its session."""
    words = command(store=str(tmp_path / "sessions"), capabilities=CAPABILITIES)
    store = HeldNotes()
    runtime = Runtime(auth=TOKENS, store=store)
    runtime.agent("coder")(acp_agent(words, sandbox="off", data=tmp_path / "data"))
    with trio.fail_after(SECONDS):
        async with runtime, open_pair(runtime, token="tok") as client:
            job = await client.submit("coder", steps(["history"]))
            await store.held.wait()
            await trio.sleep(0.3)  # for a prompt that would be on its way
            (session,) = await trio.Path(tmp_path / "sessions").iterdir()
            assert await session.read_text() == ""
            store.let.set()
            assert await job.result() == '[["history"]]'


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
