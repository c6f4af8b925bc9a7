"""The options of the commands that talk to a runtime."""

from __future__ import annotations

from typing import Final, Literal

import attrs

from arcp_trio.cli import defaults
from arcp_trio.cli.options import argument, log_level, option, optional_argument, repeatable, switch
from arcp_trio.cli.value_kinds import COUNT, DURATION, NUMBER, TEXT, WHOLE_SECONDS, one_of

URL_VARIABLE: Final = "ARCP_URL"
TOKEN_VARIABLE: Final = "ARCP_TOKEN"  # noqa: S105 - its name

STATES: Final = ("pending", "running", "success", "error", "cancelled", "timed_out")
"""The states of a job (§7.3)."""
NEWEST: Final = 50
"""The number of jobs that `jobs` lists without --all."""


@attrs.frozen(kw_only=True)
class ClientOptions:
    """What every command that talks to a runtime can be asked for."""

    url: tuple[str, ...] = repeatable(
        TEXT,
        "URL",
        "address of the runtime, or of a node: ws://, wss:// or unix:/path (default: the one that"
        f" serve keeps in DIR, or else {defaults.URL})",
        default=(),
    )
    token: str | None = option(
        TEXT,
        "TOKEN",
        "access token (default: the one that serve keeps in DIR)",
        default=None,
        secret=True,
    )
    data: str | None = option(
        TEXT, "DIR", "folder of a serve on this machine", default=None, stated=defaults.NEAREST
    )
    ca: str | None = option(
        TEXT, "FILE", "PEM file of the authorities to trust for wss://", default=None
    )
    log_level: str = log_level("warning")


@attrs.frozen(kw_only=True)
class OutputOptions(ClientOptions):
    """What a command with results can be asked for."""

    json: bool = switch("print one JSON object per line, for programs")


@attrs.frozen(kw_only=True)
class SubmitOptions(OutputOptions):
    """What `submit` can be asked for."""

    agent: str = argument("AGENT[@VERSION]", "agent that is to do the job")
    input: str | None = option(
        TEXT,
        "JSON",
        "input of the agent; @FILE reads a file, - reads standard input",
        default=None,
    )
    prompt: str | None = option(
        TEXT, "TEXT", "input of a coding agent, in place of --input", default=None
    )
    cwd: str | None = option(
        TEXT, "DIR", "folder that a coding agent works in; its lease needs fs.read", default=None
    )
    session: str | None = option(
        TEXT, "JOB_ID", "earlier job of a coding agent, whose conversation goes on", default=None
    )
    lease: tuple[str, ...] = repeatable(
        TEXT, "CAP=PATTERN", "what the job may do, such as tool.call=search.*", default=()
    )
    ask: tuple[str, ...] = repeatable(
        TEXT,
        "CAP=PATTERN",
        "what the job may do if a person agrees, such as fs.write=/srv/**",
        default=(),
    )
    budget: tuple[str, ...] = repeatable(
        TEXT, "CUR:AMOUNT", "what the job may spend, such as USD:5", default=()
    )
    expires_in: float | None = option(
        DURATION, "TIME", "time until the lease ends: 90s, 10m, 1h30m", default=None
    )
    key: str | None = option(
        TEXT, "KEY", "idempotency key; submitting the same again under it is one job", default=None
    )
    max_runtime: int | None = option(
        WHOLE_SECONDS, "SEC", "time until the job is ended as timed_out", default=None
    )
    contained: bool = switch("end the job at once unless a sandbox holds its agent to the lease")
    detach: bool = switch("print the job's id and leave")


@attrs.frozen(kw_only=True)
class WatchOptions(OutputOptions):
    """What `watch` can be asked for."""

    job_id: str = argument("JOB_ID", "id of the job, as submit prints it, or its beginning")
    from_seq: int | None = option(
        NUMBER, "N", 'only events after this "seq" of submit --json', default=None
    )


@attrs.frozen(kw_only=True)
class JobsOptions(OutputOptions):
    """What `jobs` can be asked for."""

    status: tuple[str, ...] = repeatable(
        one_of(STATES), "STATE", "only jobs in this state, such as running or success", default=()
    )
    agent: str | None = option(TEXT, "AGENT", "only jobs of this agent", default=None)
    waiting: bool = switch("only jobs that ask something, and what they ask")
    all: bool = switch(f"list all jobs, not only the newest {NEWEST}")


@attrs.frozen(kw_only=True)
class AgentsOptions(OutputOptions):
    """What `agents` can be asked for."""

    agent: str | None = optional_argument("AGENT", "only this agent, and what its input must be")


@attrs.frozen(kw_only=True)
class TokenOptions(OutputOptions):
    """What `token` can be asked for."""

    job_id: str | None = optional_argument(
        "JOB_ID", "the one job that can be looked at; without it, all of one's own"
    )
    expires_in: float = option(
        DURATION,
        "TIME",
        "how long it is good for, at most a day: 90s, 10m, 1h30m",
        default=3600.0,
        stated="1h",
    )


@attrs.frozen(kw_only=True)
class ConsoleOptions(ClientOptions):
    """What `console` can be asked for."""

    print: bool = switch("print the link, with the token in it, and open nothing")


@attrs.frozen(kw_only=True)
class CancelOptions(OutputOptions):
    """What `cancel` can be asked for."""

    job_id: str = argument("JOB_ID", "id of the job, as submit prints it, or its beginning")
    reason: str | None = option(TEXT, "TEXT", "reason, which the job's end tells", default=None)
    wait: bool = switch("wait until the job has ended")


@attrs.frozen(kw_only=True)
class AnswerOptions(OutputOptions):
    """What `answer` can be asked for."""

    job_id: str = argument("JOB_ID", "id of the job that asks, or its beginning")
    question_id: str | None = optional_argument(
        "QUESTION_ID", "id of the question, if the job asks several"
    )
    value: str = argument("VALUE", "the answer: JSON, or a text; yes or no for an approval")
    scope: Literal["once", "job"] | None = option(
        one_of(("once", "job")), "SCOPE", "of an approval: once, or for the whole job", default=None
    )


@attrs.frozen(kw_only=True)
class PingOptions(OutputOptions):
    """What `ping` can be asked for."""

    count: int = option(COUNT, "N", "number of pings", default=4)
