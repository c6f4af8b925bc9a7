"""Every frame that the client writes has the shape that the protocol's own schema says."""

from __future__ import annotations

from typing import Any

import trio
from acp import schema
from pydantic import BaseModel
from trio.testing import MockClock

from arcp_trio import acp
from arcp_trio.transport.memory import memory_streams
from tests.acp.stage import INITIALIZED, Actor, asked, ended, said

REQUESTS: dict[str, type[BaseModel]] = {
    "initialize": schema.InitializeRequest,
    "authenticate": schema.AuthenticateRequest,
    "session/new": schema.NewSessionRequest,
    "session/load": schema.LoadSessionRequest,
    "session/resume": schema.ResumeSessionRequest,
    "session/prompt": schema.PromptRequest,
    "session/cancel": schema.CancelNotification,
    "$/cancel_request": schema.CancelRequestNotification,
}
SERVERS = [{"name": "m", "command": "/bin/m", "args": [], "env": []}]


class Checked(Actor):
    """An agent that checks what it receives."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        super().__init__(stream)
        self.methods: set[str] = set()
        self.answers = 0

    async def receive(self, method: str | None = None) -> Any:
        """Return the next frame, whose params or result are valid."""
        frame = await super().receive(method)
        if method is None:
            schema.RequestPermissionResponse.model_validate(frame["result"])
            self.answers += 1
        else:
            REQUESTS[method].model_validate(frame["params"])
            self.methods.add(method)
        return frame


async def test_what_is_written_is_valid(autojump_clock: MockClock) -> None:
    """Requests, notifications and decisions are valid by the schema of the protocol's SDK."""
    ours, theirs = memory_streams()
    actor = Checked(theirs)

    async def act() -> None:
        await actor.answer("initialize", INITIALIZED)
        await actor.answer("authenticate", {})
        await actor.answer("session/new", {"sessionId": "s"})
        id_ = await actor.prompted()
        for kinds in (["allow_once"], ["allow_always"]):
            await actor.say(asked(0, *kinds))
            await actor.receive()
        await actor.say(said("x"))
        await actor.receive("session/cancel")
        await actor.say(ended(id_, "cancelled"))
        await actor.answer("session/resume", {})
        await actor.answer("session/load", None)
        await actor.receive("session/load")
        await actor.receive("$/cancel_request")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(act)
        async with acp.connect(ours, ours, permission=acp.allow_once, files=acp.STREAM) as agent:
            await agent.authenticate("key")
            session = await agent.new_session("/w", mcp_servers=SERVERS)
            link = {"type": "resource_link", "uri": "file:///w/a", "name": "a"}
            turn = session.prompt([{"type": "text", "text": "go"}, link])
            await anext(turn)
            await turn.cancel()
            await agent.resume_session("a", "/w", mcp_servers=SERVERS)
            await agent.load_session("b", "/w")
            with trio.move_on_after(1):
                await agent.load_session("c", "/w")
            await trio.sleep(1)
    assert actor.methods == set(REQUESTS)
    assert actor.answers == 2
