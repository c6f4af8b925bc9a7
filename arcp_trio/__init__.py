"""A runtime and library for ARCP 1.1, the Agent Runtime Control Protocol, built on Trio.

What a program imports first:

- `Runtime` runs agents as jobs: `@runtime.agent("name")` above an async function registers it.
- `JobContext` is what an agent is given: its input, its events, its tools, its lease.
- `serve` lets clients connect to a runtime, over WebSocket or a Unix socket.
- `StaticTokens` says which token is which principal; `JwtAuth` accepts signed tokens.
- `connect` is the client: `async with connect(url, token=token) as client`.

A runtime with one agent:

    runtime = arcp_trio.Runtime(auth=arcp_trio.StaticTokens({"s3cret": "alice"}))

    @runtime.agent("greeter")
    async def greeter(job: arcp_trio.JobContext):
        return f"hello {job.input}"

    async def main():
        async with runtime:
            await arcp_trio.serve(runtime, port=7777)

    trio.run(main)

and a client of it:

    async with arcp_trio.connect("ws://127.0.0.1:7777/arcp", token="s3cret") as client:
        job = await client.submit("greeter", "Ada")
        print(await job.result())

Public names are here, in `arcp_trio.testing`, and in the plug-ins `arcp_trio.provisioners.litellm`
and `arcp_trio.telemetry.opentelemetry`; every other module is internal and may change. Names are
loaded when they are first used, so that the command line does not wait for those it does not need.
"""

from __future__ import annotations

import importlib
import logging
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from arcp_trio.log_lines import LogFallback
from arcp_trio.version import __version__

if TYPE_CHECKING:
    from arcp_trio.authenticators.jwt import JwtAuth
    from arcp_trio.authority.ceiling import Ceiling
    from arcp_trio.authority.lease import Lease
    from arcp_trio.authority.patterns import Pattern
    from arcp_trio.client.client import Client, connect
    from arcp_trio.client.dialing import Dialer
    from arcp_trio.client.errors import (
        BrokenResult,
        CommandFailed,
        ConnectionFailed,
        ConnectionLost,
        ConnectionRefused,
        ConnectTimedOut,
        EventsNotKept,
        NotWebSocket,
        ProtocolError,
        TlsFailed,
        WrongPath,
    )
    from arcp_trio.client.events import Event
    from arcp_trio.client.handles import JobHandle, ObservedJob
    from arcp_trio.client.listing import JobInfo
    from arcp_trio.client.question_handling import QuestionHandler
    from arcp_trio.client.questions import Question
    from arcp_trio.front.serve import serve
    from arcp_trio.proxies.stdio import stdio_agent
    from arcp_trio.runtime.access import Authenticator, Policy, StaticTokens
    from arcp_trio.runtime.clock import Clock, SystemClock
    from arcp_trio.runtime.credentials.credential import Credential
    from arcp_trio.runtime.credentials.provisioner import (
        CannotRevoke,
        CredentialOrder,
        Issued,
        Provisioner,
    )
    from arcp_trio.runtime.job.agents import (
        Agent,
        AgentFunction,
        Agents,
        AsyncioAgentFunction,
        BlockingAgentFunction,
    )
    from arcp_trio.runtime.job.asyncio_context import AsyncioContext, AsyncioFile
    from arcp_trio.runtime.job.blocking import (
        AgentCancelled,
        BlockingChild,
        BlockingContext,
        BlockingResultStream,
        BlockingToolCall,
    )
    from arcp_trio.runtime.job.blocks import Child, ResultStream, ToolCall
    from arcp_trio.runtime.job.context import JobContext
    from arcp_trio.runtime.job.durable.retry import Retry
    from arcp_trio.runtime.limits import Limits
    from arcp_trio.runtime.runtime import Runtime
    from arcp_trio.runtime.tracing import Span, Tracer
    from arcp_trio.runtime.workers.settings import Workers
    from arcp_trio.store.interface import Store
    from arcp_trio.store.memory import MemoryStore
    from arcp_trio.store.sqlite import SqliteStore
    from arcp_trio.transport.base import Transport
    from arcp_trio.wire.errors import (
        AgentNotAvailable,
        AgentVersionNotAvailable,
        ArcpError,
        BudgetExhausted,
        DuplicateKey,
        HeartbeatLost,
        InternalError,
        InvalidInput,
        InvalidRequest,
        JobCancelled,
        JobError,
        JobFailed,
        JobNotFound,
        JobTimedOut,
        LeaseExpired,
        LeaseSubsetViolation,
        PermissionDenied,
        ResumeWindowExpired,
        Unanswered,
        Unauthenticated,
    )
    from arcp_trio.wire.events import InvalidEvent
    from arcp_trio.wire.json import Json
    from arcp_trio.wire.messages import AgentInfo

__all__ = [
    "Agent",
    "AgentCancelled",
    "AgentFunction",
    "AgentInfo",
    "AgentNotAvailable",
    "AgentVersionNotAvailable",
    "Agents",
    "ArcpError",
    "AsyncioAgentFunction",
    "AsyncioContext",
    "AsyncioFile",
    "Authenticator",
    "BlockingAgentFunction",
    "BlockingChild",
    "BlockingContext",
    "BlockingResultStream",
    "BlockingToolCall",
    "BrokenResult",
    "BudgetExhausted",
    "CannotRevoke",
    "Ceiling",
    "Child",
    "Client",
    "Clock",
    "CommandFailed",
    "ConnectTimedOut",
    "ConnectionFailed",
    "ConnectionLost",
    "ConnectionRefused",
    "Credential",
    "CredentialOrder",
    "Dialer",
    "DuplicateKey",
    "Event",
    "EventsNotKept",
    "HeartbeatLost",
    "InternalError",
    "InvalidEvent",
    "InvalidInput",
    "InvalidRequest",
    "Issued",
    "JobCancelled",
    "JobContext",
    "JobError",
    "JobFailed",
    "JobHandle",
    "JobInfo",
    "JobNotFound",
    "JobTimedOut",
    "Json",
    "JwtAuth",
    "Lease",
    "LeaseExpired",
    "LeaseSubsetViolation",
    "Limits",
    "MemoryStore",
    "NotWebSocket",
    "ObservedJob",
    "Pattern",
    "PermissionDenied",
    "Policy",
    "ProtocolError",
    "Provisioner",
    "Question",
    "QuestionHandler",
    "ResultStream",
    "ResumeWindowExpired",
    "Retry",
    "Runtime",
    "Span",
    "SqliteStore",
    "StaticTokens",
    "Store",
    "SystemClock",
    "TlsFailed",
    "ToolCall",
    "Tracer",
    "Transport",
    "Unanswered",
    "Unauthenticated",
    "Workers",
    "WrongPath",
    "__version__",
    "connect",
    "serve",
    "stdio_agent",
]

_HOMES: Final = {
    "Ceiling": "arcp_trio.authority.ceiling",
    "Lease": "arcp_trio.authority.lease",
    "Pattern": "arcp_trio.authority.patterns",
    "Dialer": "arcp_trio.client.dialing",
    "Agent": "arcp_trio.runtime.job.agents",
    "Child": "arcp_trio.runtime.job.blocks",
    "ResultStream": "arcp_trio.runtime.job.blocks",
    "ToolCall": "arcp_trio.runtime.job.blocks",
    "Store": "arcp_trio.store.interface",
    "Transport": "arcp_trio.transport.base",
    "AgentInfo": "arcp_trio.wire.messages",
    "JwtAuth": "arcp_trio.authenticators.jwt",
    "Client": "arcp_trio.client.client",
    "connect": "arcp_trio.client.client",
    "BrokenResult": "arcp_trio.client.errors",
    "CommandFailed": "arcp_trio.client.errors",
    "ConnectTimedOut": "arcp_trio.client.errors",
    "ConnectionFailed": "arcp_trio.client.errors",
    "ConnectionLost": "arcp_trio.client.errors",
    "ConnectionRefused": "arcp_trio.client.errors",
    "EventsNotKept": "arcp_trio.client.errors",
    "NotWebSocket": "arcp_trio.client.errors",
    "ProtocolError": "arcp_trio.client.errors",
    "TlsFailed": "arcp_trio.client.errors",
    "WrongPath": "arcp_trio.client.errors",
    "Event": "arcp_trio.client.events",
    "JobHandle": "arcp_trio.client.handles",
    "ObservedJob": "arcp_trio.client.handles",
    "JobInfo": "arcp_trio.client.listing",
    "QuestionHandler": "arcp_trio.client.question_handling",
    "Question": "arcp_trio.client.questions",
    "serve": "arcp_trio.front.serve",
    "stdio_agent": "arcp_trio.proxies.stdio",
    "AgentFunction": "arcp_trio.runtime.job.agents",
    "Agents": "arcp_trio.runtime.job.agents",
    "AsyncioAgentFunction": "arcp_trio.runtime.job.agents",
    "BlockingAgentFunction": "arcp_trio.runtime.job.agents",
    "AsyncioContext": "arcp_trio.runtime.job.asyncio_context",
    "AsyncioFile": "arcp_trio.runtime.job.asyncio_context",
    "AgentCancelled": "arcp_trio.runtime.job.blocking",
    "BlockingChild": "arcp_trio.runtime.job.blocking",
    "BlockingContext": "arcp_trio.runtime.job.blocking",
    "BlockingResultStream": "arcp_trio.runtime.job.blocking",
    "BlockingToolCall": "arcp_trio.runtime.job.blocking",
    "Authenticator": "arcp_trio.runtime.access",
    "StaticTokens": "arcp_trio.runtime.access",
    "Clock": "arcp_trio.runtime.clock",
    "SystemClock": "arcp_trio.runtime.clock",
    "JobContext": "arcp_trio.runtime.job.context",
    "Retry": "arcp_trio.runtime.job.durable.retry",
    "Credential": "arcp_trio.runtime.credentials.credential",
    "CannotRevoke": "arcp_trio.runtime.credentials.provisioner",
    "CredentialOrder": "arcp_trio.runtime.credentials.provisioner",
    "Issued": "arcp_trio.runtime.credentials.provisioner",
    "Provisioner": "arcp_trio.runtime.credentials.provisioner",
    "Limits": "arcp_trio.runtime.limits",
    "Policy": "arcp_trio.runtime.access",
    "Runtime": "arcp_trio.runtime.runtime",
    "Span": "arcp_trio.runtime.tracing",
    "Tracer": "arcp_trio.runtime.tracing",
    "Workers": "arcp_trio.runtime.workers.settings",
    "MemoryStore": "arcp_trio.store.memory",
    "SqliteStore": "arcp_trio.store.sqlite",
    "InvalidEvent": "arcp_trio.wire.events",
    "Json": "arcp_trio.wire.json",
}

logging.getLogger(__name__).addHandler(LogFallback())


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(_HOMES.get(name, "arcp_trio.wire.errors"))
    value: object = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    # `help` and completion load all of these, which PyJWT must not keep from working.
    return [name for name in __all__ if name != "JwtAuth" or find_spec("jwt") is not None]
