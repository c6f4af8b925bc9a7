"""An agent that a test plays by hand, over streams in memory."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

import trio
from attrs import frozen

from arcp_trio import acp
from arcp_trio.transport.memory import memory_streams
from arcp_trio.transport.stdio import LineTransport

OFFERS: Final = {"loadSession": True, "sessionCapabilities": {"resume": {}}}
INITIALIZED: Final = {"protocolVersion": 1, "agentCapabilities": OFFERS}


class Actor:
    """The agent's side of a connection."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream: Final = stream
        self._lines = LineTransport(stream, stream, max_bytes=2**27, peer="the client")

    async def receive(self, method: str | None = None) -> Any:
        """Return the next frame, which is an answer if no method is given."""
        frame = json.loads(await self._lines.receive())
        assert frame.pop("jsonrpc") == "2.0"
        assert frame.get("method") == method, frame
        return frame

    async def say(self, *frames: dict[str, Any]) -> None:
        """Send frames in one write."""
        await self.stream.send_all(written(*frames))

    async def raw(self, data: bytes) -> None:
        """Send bytes."""
        await self.stream.send_all(data)

    async def answer(self, method: str, result: Any) -> Any:
        """Receive a request and answer it; return the request."""
        frame = await self.receive(method)
        await self.say({"id": frame["id"], "result": result})
        return frame

    async def prompted(self) -> int:
        """Receive a prompt, and return its id."""
        frame = await self.receive("session/prompt")
        return int(frame["id"])

    async def close(self) -> None:
        """End the agent."""
        await trio.aclose_forcefully(self.stream)


def written(*frames: dict[str, Any]) -> bytes:
    """Return frames as they are written."""
    return b"".join(json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n" for frame in frames)


def update(kind: str, session: str = "s", **fields: Any) -> dict[str, Any]:
    """Return an update."""
    raw = {"sessionUpdate": kind, **fields}
    return {"method": "session/update", "params": {"sessionId": session, "update": raw}}


def said(text: object, session: str = "s") -> dict[str, Any]:
    """Return a chunk of the agent's message."""
    content = {"type": "text", "text": str(text)}
    return update("agent_message_chunk", session, content=content)


def ended(id_: int, reason: str = "end_turn") -> dict[str, Any]:
    """Return the answer to a prompt."""
    return {"id": id_, "result": {"stopReason": reason}}


def asked(id_: object, *kinds: str, tool: str = "edit", session: str = "s") -> dict[str, Any]:
    """Return a request for permission, with options of some kinds."""
    offered = [{"optionId": f"o-{kind}", "name": kind, "kind": kind} for kind in kinds]
    params = {"toolCall": {"toolCallId": "1", "kind": tool}, "options": offered}
    method = "session/request_permission"
    return {"id": id_, "method": method, "params": {"sessionId": session, **params}}


def decided(option: str | None) -> dict[str, Any]:
    """Return the result of a request for permission: an option, or None for cancelled."""
    if option is None:
        return {"outcome": {"outcome": "cancelled"}}
    return {"outcome": {"outcome": "selected", "optionId": option}}


def text(item: object) -> str:
    """Return the text of a chunk."""
    assert isinstance(item, acp.Chunk)
    return item.text


@frozen
class Stage:
    """A client and its agent, with one session."""

    agent: acp.Agent
    session: acp.Session
    actor: Actor

    async def open(self, session_id: str) -> acp.Session:
        """Begin another session."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.actor.answer, "session/new", {"sessionId": session_id})
            session = await self.agent.new_session("/w")
        return session  # noqa: RET504 - a return within the nursery waits for it, too


@asynccontextmanager
async def connected(
    initialized: dict[str, Any] = INITIALIZED, **options: Any
) -> AsyncGenerator[tuple[acp.Agent, Actor], None]:
    """Connect a client with an agent that has answered `initialize`."""
    ours, theirs = memory_streams()
    actor = Actor(theirs)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(actor.answer, "initialize", initialized)
        async with acp.connect(ours, ours, **options) as agent:
            yield agent, actor


@asynccontextmanager
async def staged(**options: Any) -> AsyncGenerator[Stage, None]:
    """Connect a client with an agent, and begin a session."""
    with trio.fail_after(3600):
        async with connected(**options) as (agent, actor), trio.open_nursery() as nursery:
            nursery.start_soon(actor.answer, "session/new", {"sessionId": "s"})
            yield Stage(agent, await agent.new_session("/w"), actor)
