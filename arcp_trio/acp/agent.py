"""An agent at work: what it is, and how sessions with it are begun and continued."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from arcp_trio.acp.errors import (
    INTERNAL_ERROR,
    LOG_IN_FIRST,
    AcpFailure,
    AgentError,
    NotAcp,
    Unsupported,
    VersionMismatch,
)
from arcp_trio.acp.limits import Limits
from arcp_trio.acp.queue import Handlers
from arcp_trio.acp.sent_request import Deliver, SentRequest, settle
from arcp_trio.acp.session import Session
from arcp_trio.acp.sessions import OpenSession, Sessions
from arcp_trio.version import __version__
from arcp_trio.wire.errors import clip
from arcp_trio.wire.json import Json, JsonLike, JsonObject, JsonValue, is_list, is_object, object_in

PROTOCOL_VERSION: Final = 1

McpServers: TypeAlias = Sequence[Mapping[str, Json]]
"""The MCP servers that an agent is to use, in the protocol's shape."""


class Agent:
    """A program that speaks ACP, and has been initialized."""

    def __init__(self, sessions: Sessions, name: str, limits: Limits, answer: JsonObject) -> None:
        methods = answer.get("authMethods")
        self.info: Final[dict[str, Json]] = object_in(answer.get("agentInfo"))
        """The agent's `name` and `version`, if it gives them."""
        self.capabilities: Final[dict[str, Json]] = object_in(answer.get("agentCapabilities"))
        """What the agent offers; nothing else can be expected of it."""
        self.auth_methods: Final[list[dict[str, Json]]] = (
            [each for each in methods if is_object(each)] if is_list(methods) else []
        )
        """The ways to log in, each with its `id`."""
        self._sessions = sessions
        self._name = name
        self._limits = limits

    async def authenticate(self, method_id: str) -> None:
        """Log in, in one of the ways of `auth_methods`.

        Raises:
            AgentError: the agent refuses.
            AgentGone: the agent has ended.
            TimedOut: the agent has not answered in time.
        """
        await self._ask("authenticate", {"methodId": method_id})

    async def new_session(self, cwd: str | Path, *, mcp_servers: McpServers = ()) -> Session:
        """Begin a session that works in a folder.

        Args:
            cwd: the folder, as an absolute path.
            mcp_servers: MCP servers that the agent is to use.

        Raises:
            AgentError: the agent refuses, with code -32000 if one has to log in first.
            AgentGone: the agent has ended.
            TimedOut: the agent has not answered in time.
        """
        folder = _absolute(cwd)
        begun: list[Session] = []

        async def deliver(sent: SentRequest) -> None:
            opened = self._begun(sent, folder)
            if opened is None:
                await settle(sent)
            else:
                begun.append(opened.session)
                await self._sessions.adopt(opened.queue)
                await opened.queue.take_answer(sent)

        params: dict[str, JsonLike] = {"cwd": folder, "mcpServers": mcp_servers}
        with self._sessions.beginning():
            await self._ask("session/new", params, deliver)
        return begun[0]

    async def load_session(
        self, session_id: str, cwd: str | Path, *, mcp_servers: McpServers = ()
    ) -> Session:
        """Go on with a session that the agent has kept.

        The agent first tells the session's whole history, as updates for `on_update`.

        Raises:
            Unsupported: the agent does not load sessions.
            Busy: the session is open.
            AgentError: the agent refuses.
            AgentGone: the agent has ended.
            TimedOut: the agent has sent nothing for the session for too long.
        """
        if not self._loads():
            raise Unsupported(f"{self._name} does not load sessions")
        return await self._reopen("session/load", session_id, cwd, mcp_servers)

    async def resume_session(
        self, session_id: str, cwd: str | Path, *, mcp_servers: McpServers = ()
    ) -> Session:
        """Go on with a session that the agent has kept, without its history.

        Raises:
            Unsupported: the agent does not resume sessions.
            Busy: the session is open.
            AgentError: the agent refuses.
            AgentGone: the agent has ended.
            TimedOut: the agent has sent nothing for the session for too long.
        """
        if not self._resumes():
            raise Unsupported(f"{self._name} does not resume sessions")
        return await self._reopen("session/resume", session_id, cwd, mcp_servers)

    async def continue_session(
        self, session_id: str, cwd: str | Path, *, mcp_servers: McpServers = ()
    ) -> Session:
        """Go on with a session: resume it, or load it if it cannot be resumed after all.

        Raises:
            Unsupported: the agent does neither.
            Busy: the session is open.
            AgentError: the agent refuses.
            AgentGone: the agent has ended.
            TimedOut: the agent has sent nothing for the session for too long.
        """
        if self._resumes():
            try:
                return await self.resume_session(session_id, cwd, mcp_servers=mcp_servers)
            except AgentError:
                if not self._loads():
                    raise
        if not self._loads():
            raise Unsupported(f"{self._name} neither resumes sessions nor loads them")
        return await self.load_session(session_id, cwd, mcp_servers=mcp_servers)

    def _loads(self) -> bool:
        return self.capabilities.get("loadSession") is True

    def _resumes(self) -> bool:
        offered = object_in(self.capabilities.get("sessionCapabilities"))
        return is_object(offered.get("resume"))

    def _begun(self, sent: SentRequest, cwd: str) -> OpenSession | None:
        """Open the session that the agent has answered with, as its updates may follow at once."""
        try:
            session_id = object_in(sent.result()).get("sessionId")
            if not isinstance(session_id, str):
                words = "the agent has begun a session without an id"
                raise AgentError(INTERNAL_ERROR, words)
            return self._sessions.open(session_id, cwd)
        except AcpFailure as failure:
            sent.lose(failure)
            return None

    async def _reopen(
        self, method: str, session_id: str, cwd: str | Path, mcp_servers: McpServers
    ) -> Session:
        folder = _absolute(cwd)
        # Open before the request is sent: its history comes before the answer.
        opened = self._sessions.open(session_id, folder)
        params: dict[str, JsonLike] = {
            "sessionId": session_id,
            "cwd": folder,
            "mcpServers": mcp_servers,
        }
        try:
            await self._ask(method, params, opened.queue.take_answer, opened)
        except BaseException:
            self._sessions.close(opened)
            raise
        return opened.session

    async def _ask(
        self,
        method: str,
        params: JsonLike,
        deliver: Deliver = settle,
        opened: OpenSession | None = None,
    ) -> JsonValue:
        self._sessions.check_place()
        connection = self._sessions.connection
        sent = connection.request(method, params, deliver)
        heard = None if opened is None else lambda: opened.queue.last_heard
        try:
            return await connection.wait(sent, self._limits.request_seconds, heard)
        except AgentError as error:
            if error.code == LOG_IN_FIRST:
                ways = ", ".join(clip(str(each.get("id"))) for each in self.auth_methods[:10])
                error.add_note(f"log in with Agent.authenticate; the agent's ways: {ways or '-'}")
            raise


async def initialize(
    sessions: Sessions,
    name: str,
    handlers: Handlers,
    limits: Limits,
    client_info: JsonObject | None,
) -> Agent:
    """Agree on the version of the protocol, and learn what the agent is."""
    files = handlers.files is not None
    offered: JsonObject = {
        "fs": {"readTextFile": files, "writeTextFile": files},
        "terminal": handlers.terminals is not None,
    }
    params: JsonObject = {
        "protocolVersion": PROTOCOL_VERSION,
        "clientCapabilities": offered,
        "clientInfo": client_info or {"name": "arcp_trio", "version": __version__},
    }
    sent = sessions.connection.request("initialize", params)
    answer = await sessions.connection.wait(sent, limits.start_seconds)
    if not is_object(answer) or type(answer.get("protocolVersion")) is not int:
        raise NotAcp(f"{name} answers initialize without a version of the protocol")
    version = answer["protocolVersion"]
    if version != PROTOCOL_VERSION:
        raise VersionMismatch(
            f"{name} speaks version {version} of ACP; version {PROTOCOL_VERSION} is needed"
        )
    return Agent(sessions, name, limits, answer)


def _absolute(cwd: str | Path) -> str:
    if not Path(cwd).is_absolute():
        raise ValueError(f"the folder of a session is an absolute path, not {str(cwd)!r}")
    return str(cwd)
