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
    from arcp_trio.client.client import Client
    from arcp_trio.client.connect import connect
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
    from arcp_trio.proxies.acp.agent import acp_agent
    from arcp_trio.proxies.stdio import stdio_agent
    from arcp_trio.runtime.access import Authenticator, Policy, Principal, StaticTokens
    from arcp_trio.runtime.clock import Clock, SystemClock
    from arcp_trio.runtime.credentials.credential import Credential
    from arcp_trio.runtime.credentials.provisioner import (
        CannotRevoke,
        CredentialOrder,
        Issued,
        Provisioner,
    )
    from arcp_trio.runtime.job.agent import (
        Agent,
        AgentFunction,
        AsyncioAgentFunction,
        BlockingAgentFunction,
    )
    from arcp_trio.runtime.job.agents import Agents
    from arcp_trio.runtime.job.asyncio_context import AsyncioContext, AsyncioFile
    from arcp_trio.runtime.job.blocking import (
        AgentCancelled,
        BlockingChild,
        BlockingContext,
        BlockingResultStream,
        BlockingThoughtStream,
        BlockingToolCall,
    )
    from arcp_trio.runtime.job.blocks import Child, ResultStream, ThoughtStream, ToolCall
    from arcp_trio.runtime.job.context import JobContext
    from arcp_trio.runtime.job.durable.retry import Retry
    from arcp_trio.runtime.limits import Limits
    from arcp_trio.runtime.runtime import Runtime
    from arcp_trio.runtime.tracing import Span, Tracer
    from arcp_trio.runtime.workers.settings import Workers
    from arcp_trio.store.errors import Fenced
    from arcp_trio.store.interface import Store
    from arcp_trio.store.memory import MemoryStore
    from arcp_trio.store.postgres import PostgresStore
    from arcp_trio.store.sqlite import SqliteStore
    from arcp_trio.transport.base import Transport
    from arcp_trio.wire.errors import (
        AgentNotAvailable,
        AgentVersionNotAvailable,
        ApprovalNeeded,
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
    "ApprovalNeeded",
    "ArcpError",
    "AsyncioAgentFunction",
    "AsyncioContext",
    "AsyncioFile",
    "Authenticator",
    "BlockingAgentFunction",
    "BlockingChild",
    "BlockingContext",
    "BlockingResultStream",
    "BlockingThoughtStream",
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
    "Fenced",
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
    "PostgresStore",
    "Principal",
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
    "ThoughtStream",
    "TlsFailed",
    "ToolCall",
    "Tracer",
    "Transport",
    "Unanswered",
    "Unauthenticated",
    "Workers",
    "WrongPath",
    "__version__",
    "acp_agent",
    "connect",
    "serve",
    "stdio_agent",
]

_NAMES: Final = {
    "authenticators.jwt": ("JwtAuth",),
    "authority.ceiling": ("Ceiling",),
    "authority.lease": ("Lease",),
    "authority.patterns": ("Pattern",),
    "client.client": ("Client",),
    "client.connect": ("connect",),
    "client.dialing": ("Dialer",),
    "client.errors": (
        "BrokenResult",
        "CommandFailed",
        "ConnectTimedOut",
        "ConnectionFailed",
        "ConnectionLost",
        "ConnectionRefused",
        "EventsNotKept",
        "NotWebSocket",
        "ProtocolError",
        "TlsFailed",
        "WrongPath",
    ),
    "client.events": ("Event",),
    "client.handles": ("JobHandle", "ObservedJob"),
    "client.listing": ("JobInfo",),
    "client.question_handling": ("QuestionHandler",),
    "client.questions": ("Question",),
    "front.serve": ("serve",),
    "proxies.acp.agent": ("acp_agent",),
    "proxies.stdio": ("stdio_agent",),
    "runtime.access": ("Authenticator", "Policy", "Principal", "StaticTokens"),
    "runtime.clock": ("Clock", "SystemClock"),
    "runtime.credentials.credential": ("Credential",),
    "runtime.credentials.provisioner": ("CannotRevoke", "CredentialOrder", "Issued", "Provisioner"),
    "runtime.job.agent": (
        "Agent",
        "AgentFunction",
        "AsyncioAgentFunction",
        "BlockingAgentFunction",
    ),
    "runtime.job.agents": ("Agents",),
    "runtime.job.asyncio_context": ("AsyncioContext", "AsyncioFile"),
    "runtime.job.blocking": (
        "AgentCancelled",
        "BlockingChild",
        "BlockingContext",
        "BlockingResultStream",
        "BlockingThoughtStream",
        "BlockingToolCall",
    ),
    "runtime.job.blocks": ("Child", "ResultStream", "ThoughtStream", "ToolCall"),
    "runtime.job.context": ("JobContext",),
    "runtime.job.durable.retry": ("Retry",),
    "runtime.limits": ("Limits",),
    "runtime.runtime": ("Runtime",),
    "runtime.tracing": ("Span", "Tracer"),
    "runtime.workers.settings": ("Workers",),
    "store.errors": ("Fenced",),
    "store.interface": ("Store",),
    "store.memory": ("MemoryStore",),
    "store.postgres": ("PostgresStore",),
    "store.sqlite": ("SqliteStore",),
    "transport.base": ("Transport",),
    "wire.events": ("InvalidEvent",),
    "wire.json": ("Json",),
    "wire.messages": ("AgentInfo",),
}
"""The public names of each module; `wire.errors` has the others."""

logging.getLogger(__name__).addHandler(LogFallback())


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = next((module for module, names in _NAMES.items() if name in names), "wire.errors")
    value: object = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    # `help` and completion load all of these, which no missing extra must keep from working.
    needs = {"JwtAuth": "jwt", "PostgresStore": "psycopg"}
    return [name for name in __all__ if name not in needs or find_spec(needs[name]) is not None]
