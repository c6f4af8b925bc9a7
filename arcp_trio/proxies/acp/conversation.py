"""Conversations with ACP agents: each job is a turn of one, and a later job may take the next."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from decimal import Decimal
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

import attrs

from arcp_trio.proxies.acp.costs import SessionCosts
from arcp_trio.proxies.acp.workplace import check_folder
from arcp_trio.runtime.job.context import holding
from arcp_trio.wire.errors import InternalError, InvalidInput, JobNotFound
from arcp_trio.wire.json import JsonObject, JsonValue, is_object, object_in

if TYPE_CHECKING:
    from arcp_trio.acp.agent import Agent, McpServers
    from arcp_trio.acp.session import Session
    from arcp_trio.proxies.acp.folders import Folders
    from arcp_trio.proxies.acp.input import JobInput
    from arcp_trio.runtime.job.context import JobContext

log = logging.getLogger(__name__)

_SESSION: Final = "acp_session"
"""The field by which a note is known to be one of a conversation."""


@attrs.define(eq=False)
class AgentConversation:
    """A conversation, held by the job whose turn it is."""

    job: JobContext
    root: str
    """The id of the job that began it."""
    cwd: str
    own_folder: bool
    """Whether `cwd` was made for it, and is removed with it."""
    session_id: str | None = None
    """The agent's name for it, once the agent has begun it."""
    costs: SessionCosts = attrs.field(factory=SessionCosts)
    """What the agent has reported for all of it so far."""

    @property
    def continued(self) -> bool:
        """Whether an earlier job has begun it."""
        return self.root != self.job.id

    async def open(self, agent: Agent, cwd: str, mcp_servers: McpServers = ()) -> Session:
        """Begin the agent's session, or go on with it, and keep what a later job needs for that.

        The agent's words come after this, so a job that is killed can be followed up.

        Args:
            agent: the agent.
            cwd: the folder, as the agent sees it.
            mcp_servers: MCP servers that the agent is to use.

        Raises:
            AcpFailure: the agent does not begin it, or neither resumes nor loads it.
        """
        if self.session_id is None:
            session = await agent.new_session(cwd, mcp_servers=mcp_servers)
            self.session_id = session.id
        else:
            session = await agent.continue_session(self.session_id, cwd, mcp_servers=mcp_servers)
        await self.keep()
        return session

    async def keep(self) -> None:
        """Store what a later job needs to go on."""
        note: JsonObject = {
            _SESSION: self.session_id,
            "agent": self.job.agent,
            "root": self.root,
            "cwd": self.cwd,
            "own_folder": self.own_folder,
            "costs": {currency: str(total) for currency, total in self.costs.known.items()},
        }
        await self.job.keep(note)


class AgentConversations:
    """The conversations of one agent: each is held by at most one job at a time, at all nodes."""

    def __init__(self, folders: Folders) -> None:
        self._folders = folders
        self._held: dict[str, tuple[str, str]] = {}
        """Root and principal by the id of the job of this node that holds a conversation."""

    @asynccontextmanager
    async def turn(self, job: JobContext, wanted: JobInput) -> AsyncGenerator[AgentConversation]:
        """Hold the conversation that a job begins or goes on with, for the block.

        Raises:
            JobNotFound: the principal has no such job, or that has no conversation.
            InvalidInput: it is another agent's, or has another folder.
            LeaseExpired, BudgetExhausted, PermissionDenied: the lease does not allow its folder.
            InternalError: it is another job's turn.
        """
        conversation = await self._wanted(job, wanted)
        held = holding(job, f"conversation {conversation.root}")
        with self._hold(conversation):
            async with held as elsewhere:
                if elsewhere is not None:
                    raise _busy(elsewhere)
                if not conversation.own_folder:
                    await check_folder(job, conversation.cwd)
                await self._join(conversation)
                yield conversation

    async def _join(self, conversation: AgentConversation) -> None:
        """Have its folder, and its costs as the newest of its jobs knows them."""
        job, root = conversation.job, conversation.root
        try:
            for earlier in await self._folders.join(root, job.id):
                note = _read(job, await job.kept(earlier))
                if note is not None:
                    conversation.costs = note.costs
                    break
            if conversation.own_folder:
                conversation.cwd = await self._folders.to_work_in(root)
        except OSError as error:
            facts = {"job_id": job.id, "agent": job.agent, "error": str(error)}
            log.warning("folder of a conversation cannot be made", extra=facts)
            raise InternalError(f"agent {job.agent}: its folder cannot be made") from error

    async def _wanted(self, job: JobContext, wanted: JobInput) -> AgentConversation:
        if wanted.session is None:
            return AgentConversation(job, job.id, wanted.cwd or "", wanted.cwd is None)
        if (held := self._held.get(wanted.session)) is not None and held[1] == job.principal:
            self._refuse_if_held(held[0])
        note = await job.kept(wanted.session)
        if note is None:
            raise JobNotFound("there is no such job")
        found = _read(job, note)
        if found is None:
            raise InvalidInput(
                f"the job is not one of agent {job.agent}: it cannot go on with it @ $.session"
            )
        if wanted.cwd is not None and PurePath(wanted.cwd) != PurePath(found.cwd):
            raise InvalidInput("the conversation has another folder: leave it out @ $.cwd")
        return found

    def _refuse_if_held(self, root: str) -> None:
        for job_id, (held, _) in self._held.items():
            if held == root:
                raise _busy(job_id)

    @contextmanager
    def _hold(self, conversation: AgentConversation) -> Generator[None]:
        self._refuse_if_held(conversation.root)
        job = conversation.job
        self._held[job.id] = conversation.root, job.principal
        try:
            yield
        finally:
            del self._held[job.id]


def _busy(job_id: str) -> InternalError:
    return InternalError(f"the conversation is with {job_id} now: try again when that has ended")


def _read(job: JobContext, note: JsonValue) -> AgentConversation | None:
    """Return the conversation of a note, if it is one with this job's agent."""
    if not is_object(note) or note.get("agent") != job.agent:
        return None
    session, root, cwd = note.get(_SESSION), note.get("root"), note.get("cwd")
    if not (isinstance(session, str) and isinstance(root, str) and isinstance(cwd, str)):
        return None
    costs = object_in(note.get("costs"))
    return AgentConversation(
        job,
        root,
        cwd,
        note.get("own_folder") is True,
        session,
        SessionCosts({currency: Decimal(str(total)) for currency, total in costs.items()}),
    )
