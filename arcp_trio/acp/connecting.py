"""Speaking with an agent over two streams, in tasks beside the block of the program."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import trio

from arcp_trio.acp.agent import Agent, initialize
from arcp_trio.acp.connection import Peer
from arcp_trio.acp.errors import AgentGone
from arcp_trio.acp.limits import Limits
from arcp_trio.acp.queue import Handlers
from arcp_trio.acp.requests import (
    FileRequest,
    Handler,
    PermissionRequest,
    TerminalRequest,
    refuse,
)
from arcp_trio.acp.session import UpdateHandler
from arcp_trio.acp.sessions import Sessions
from arcp_trio.nurseries import tasks_beside
from arcp_trio.transport.stdio import LineTransport
from arcp_trio.under_trio import need_trio
from arcp_trio.wire.json import Json

DEFAULT_LIMITS: Final = Limits()


@asynccontextmanager
async def connect(
    incoming: trio.abc.ReceiveStream,
    outgoing: trio.abc.SendStream,
    *,
    permission: Handler[PermissionRequest] = refuse,
    files: Handler[FileRequest] = None,
    terminals: Handler[TerminalRequest] = None,
    on_update: UpdateHandler | None = None,
    limits: Limits = DEFAULT_LIMITS,
    client_info: Mapping[str, Json] | None = None,
) -> AsyncGenerator[Agent, None]:
    """Speak with an agent over two streams for the length of the block, which closes them.

    Args:
        incoming: brings what the agent writes.
        outgoing: takes what the agent reads.
        permission: decides what the agent asks permission for; see `spawn` for the forms.
        files: reads and writes files for the agent.
        terminals: runs commands for the agent.
        on_update: called with each session and update, one at a time for each session, in order.
        limits: bounds on what the agent sends, and on how long it takes.
        client_info: the program's `name` and `version`, for the agent.

    Raises:
        AcpFailure: the agent cannot be spoken with; a subclass says why.
        RuntimeError: the program does not run under Trio.
    """
    need_trio("arcp_trio.acp.connect")
    handlers = Handlers(permission, files, terminals, on_update)
    transport = LineTransport(incoming, outgoing, max_bytes=limits.line_bytes, peer=_Stranger.name)
    try:
        async with speaking(transport, _Stranger(), handlers, limits, client_info) as agent:
            yield agent
    finally:
        await transport.close()  # noqa: ASYNC102 - shields itself, and does not wait


@asynccontextmanager
async def speaking(
    transport: LineTransport,
    peer: Peer,
    handlers: Handlers,
    limits: Limits,
    client_info: Mapping[str, Json] | None,
) -> AsyncGenerator[Agent, None]:
    """Speak with an agent for the length of the block, over a transport that the caller closes."""
    async with tasks_beside() as nursery:
        sessions = Sessions(transport, peer, handlers, limits, nursery)
        nursery.start_soon(sessions.connection.run, name="ACP connection")
        info = None if client_info is None else dict(client_info)
        try:
            yield await initialize(sessions, peer.name, handlers, limits, info)
        finally:
            with trio.move_on_after(limits.leave_seconds, shield=True):
                await sessions.connection.flush()


class _Stranger:
    """The other end of two streams, of which nothing is known."""

    name = "the agent"

    async def exited(self) -> None:
        await trio.sleep_forever()

    async def explain(self) -> AgentGone:
        await trio.lowlevel.checkpoint()
        return AgentGone("the agent has closed the connection")
