"""Agents that are programs which speak ACP: each job starts one, and prompts it once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from arcp_trio import acp
from arcp_trio.authority.grants import parse_grant
from arcp_trio.authority.patterns import URLS
from arcp_trio.authority.sites import everything_at
from arcp_trio.proxies.acp.conversation import AgentConversations
from arcp_trio.proxies.acp.folders import Folders
from arcp_trio.proxies.acp.input import read_input
from arcp_trio.proxies.acp.life import AgentLife
from arcp_trio.proxies.acp.workplace import Workplaces
from arcp_trio.runtime.job.agent import AgentFunction
from arcp_trio.runtime.job.context import JobContext
from arcp_trio.runtime.job.leftovers import IsKept
from arcp_trio.runtime.limits import Limits
from arcp_trio.sandbox.containment import Containment, Mode
from arcp_trio.wire.json import JsonValue


def acp_agent(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    sandbox: Mode = "auto",
    data: str | Path | None = None,
    home: str | Path | None = None,
    read: Sequence[str | Path] = (),
    net: Sequence[str] = (),
    mcp_servers: acp.McpServers = (),
    settle_seconds: float = 0.0,
) -> AgentFunction:
    """Return an agent that is a program which speaks ACP on its standard input and output.

    Each job starts the program, and gives it the job's input as a prompt. What the program tells
    becomes the job's events, and what it says is the job's streamed result. What it asks for is
    decided by the job's lease. A cancel of the job cancels the prompt; at the end of the job the
    program's process group is ended. The program's standard error goes to the log.

    Args:
        command: a program and its arguments; the program is started in the folder of the job.
        environment: variables to add to those that say where and for whom a program runs, such as
            PATH, HOME and LANG.
        sandbox: "auto" contains the program where bubblewrap works, "require" fails elsewhere, and
            "off" never contains it.
        data: a folder in which a contained program has its HOME, one for each principal, and each
            conversation a folder, for jobs that name no folder to work in. Without it, they are
            in a temporary one that goes with this process.
        home: the program's HOME, in place of those, or of that of this process.
        read: files and folders that a contained program can read beside those that are leased.
        net: patterns of URLs that a contained program can reach beside those that are leased, such
            as "https://api.anthropic.com/**" for its model; one without a path is all of that host.
        mcp_servers: MCP servers that the agent is to use, in the protocol's shape.
        settle_seconds: how long to wait for what the agent still tells after its answer.
    """
    if isinstance(command, str):
        raise TypeError("the command must be a list: the program and its arguments")
    if not command:
        raise ValueError("the command is empty")
    words, added = tuple(command), dict(environment or {})
    containment = Containment(sandbox, words, search=added.get("PATH"), read=read)
    workplaces = Workplaces(
        containment,
        added=added,
        data=None if data is None else Path(data, "homes"),
        home=None if home is None else str(home),
        net=[everything_at(parse_grant(URLS, text)) for text in net],
    )
    folders = Folders(None if data is None else Path(data, "conversations"))
    return _AcpAgent(words, workplaces, folders, tuple(mcp_servers), settle_seconds)


class _AcpAgent:
    """The agent's function, which also removes what its jobs have left."""

    def __init__(
        self,
        command: Sequence[str],
        workplaces: Workplaces,
        folders: Folders,
        mcp_servers: acp.McpServers,
        settle_seconds: float,
    ) -> None:
        self._command = command
        self._workplaces = workplaces
        self._folders = folders
        self._conversations = AgentConversations(folders)
        self._mcp_servers = mcp_servers
        self._settle_seconds = settle_seconds

    @property
    def contained(self) -> bool:
        """Whether the operating system holds the program to the lease of its job."""
        return self._workplaces.contained

    async def __call__(self, job: JobContext) -> JsonValue:
        """Do a job."""
        given = read_input(job.input)
        async with self._conversations.turn(job, given) as conversation:
            own = conversation.own_folder
            async with self._workplaces.of(job, conversation.cwd, own_folder=own) as place:
                life = AgentLife(
                    conversation, self._command, place, self._mcp_servers, self._settle_seconds
                )
                return await life.run(given.prompt)

    async def sweep(self, is_kept: IsKept, limits: Limits) -> None:
        """Remove the folders of conversations whose jobs are no longer kept, and unused homes."""
        await self._folders.sweep(is_kept)
        await self._workplaces.sweep(limits)
