"""A client of ACP, the Agent Client Protocol, for programs on Trio.

`spawn` starts an agent and `Session.prompt` gives it something to do. What the agent says comes in
the order in which it said it, whatever handlers take; nothing else of arcp_trio is needed for that.
"""

from arcp_trio.acp.agent import Agent, McpServers
from arcp_trio.acp.connecting import connect
from arcp_trio.acp.errors import (
    AcpFailure,
    AgentError,
    AgentGone,
    Busy,
    LineTooLong,
    NotAcp,
    TimedOut,
    Unsupported,
    VersionMismatch,
)
from arcp_trio.acp.limits import Limits
from arcp_trio.acp.requests import (
    STREAM,
    FileRequest,
    Handler,
    PermissionOption,
    PermissionRequest,
    Request,
    Stream,
    TerminalRequest,
    allow_once,
    refuse,
)
from arcp_trio.acp.session import Prompt, Session, UpdateHandler
from arcp_trio.acp.spawning import ErrorHandler, spawn
from arcp_trio.acp.turn import Turn
from arcp_trio.acp.updates import Chunk, Other, Plan, Role, ToolCall, Update, Usage

__all__ = [
    "STREAM",
    "AcpFailure",
    "Agent",
    "AgentError",
    "AgentGone",
    "Busy",
    "Chunk",
    "ErrorHandler",
    "FileRequest",
    "Handler",
    "Limits",
    "LineTooLong",
    "McpServers",
    "NotAcp",
    "Other",
    "PermissionOption",
    "PermissionRequest",
    "Plan",
    "Prompt",
    "Request",
    "Role",
    "Session",
    "Stream",
    "TerminalRequest",
    "TimedOut",
    "ToolCall",
    "Turn",
    "Unsupported",
    "Update",
    "UpdateHandler",
    "Usage",
    "VersionMismatch",
    "allow_once",
    "connect",
    "refuse",
    "spawn",
]
