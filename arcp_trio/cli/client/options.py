"""The options of the commands that talk to a runtime: the tables, and the classes of the values."""

from __future__ import annotations

import math
import re
from typing import Final

import attrs

from arcp_trio.cli.options import DATA, LEVEL, LOG_LEVELS, SWITCH, TEXT, WHOLE_SECONDS, Kind, Option
from arcp_trio.cli.options import NUMBER as NUMBER_FROM_0

DEFAULT_URL: Final = "ws://127.0.0.1:7777/arcp"
URL_VARIABLE: Final = "ARCP_URL"
TOKEN_VARIABLE: Final = "ARCP_TOKEN"  # noqa: S105 - its name

_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION: Final = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?[smhd]){1,4}|[0-9]+(?:\.[0-9]+)?", re.ASCII)
_PART: Final = re.compile(r"([0-9.]+)([smhd]?)")
_LONGEST_DURATION: Final = 100 * 365 * 86_400


def seconds_of(text: str) -> float:
    """Read `90`, `90s`, `10m`, `1h30m` or `2d`; `ValueError` if it is none of the kind."""
    if not _DURATION.fullmatch(text):
        raise ValueError(text)
    return math.fsum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


def _is_time_ahead(value: object) -> bool:
    return isinstance(value, float) and 0 < value <= _LONGEST_DURATION


DURATION: Final = Kind("a time like 90s, 10m or 1h30m", seconds_of, _is_time_ahead)
COUNT: Final = Kind(
    "a whole number, 1 or more",
    int,
    lambda value: isinstance(value, int) and value > 0,
)

CONNECTION: Final = (
    Option(
        "url",
        TEXT,
        "URL",
        f"where the runtime is: ws://, wss:// or unix:/path (default {DEFAULT_URL})",
    ),
    Option("token", TEXT, "TOKEN", "who is asking (default: the one that serve keeps in DIR)"),
    Option("data", TEXT, "DIR", f"the folder of a serve on this machine (default {DATA})"),
    Option("ca", TEXT, "FILE", "PEM file of the authorities to trust for wss://"),
    Option("log_level", LEVEL, "LEVEL", f"{', '.join(LOG_LEVELS)} (default warning)"),
)

_JSON: Final = Option("json", SWITCH, "", "one JSON object per line, for programs")

SUBMIT: Final = (
    Option("input", TEXT, "JSON", "the agent's input; @FILE reads a file, - standard input"),
    Option(
        "lease", TEXT, "CAP=PATTERN", "what the job may do: tool.call=search.*", repeatable=True
    ),
    Option("budget", TEXT, "CUR:AMOUNT", "what the job may spend: USD:5", repeatable=True),
    Option("expires_in", DURATION, "TIME", "when the lease ends: 90s, 10m, 1h30m"),
    Option("key", TEXT, "KEY", "submitting the same under the same key is one job"),
    Option("max_runtime", WHOLE_SECONDS, "SEC", "when the job is ended, as timed_out"),
    Option("detach", SWITCH, "", "print the job's id and leave"),
    _JSON,
)
WATCH: Final = (
    Option("from_seq", NUMBER_FROM_0, "N", "only events behind this number of submit --json"),
    _JSON,
)
JOBS: Final = (
    Option("status", TEXT, "STATUS", "only these, such as running or success", repeatable=True),
    Option("agent", TEXT, "AGENT", "only jobs of this agent"),
    Option("all", SWITCH, "", "all of them, not only the newest"),
    _JSON,
)
CANCEL: Final = (Option("reason", TEXT, "TEXT", "why, for the agent and the log"),)
AGENTS: Final = (_JSON,)
PING: Final = (Option("count", COUNT, "N", "how many times (default 4)"),)
BENCH: Final = (_JSON,)


@attrs.frozen(kw_only=True)
class ClientOptions:
    """What every command that talks to a runtime can be asked for."""

    url: str | None = None
    token: str | None = attrs.field(default=None, repr=False)
    data: str = DATA
    ca: str | None = None
    log_level: str = "warning"


@attrs.frozen(kw_only=True)
class SubmitOptions(ClientOptions):
    """What `submit` was asked for."""

    agent: str
    input: str | None = None
    lease: list[str] = attrs.field(factory=list[str])
    budget: list[str] = attrs.field(factory=list[str])
    expires_in: float | None = None
    key: str | None = None
    max_runtime: int | None = None
    detach: bool = False
    json: bool = False


@attrs.frozen(kw_only=True)
class WatchOptions(ClientOptions):
    """What `watch` was asked for."""

    job_id: str
    from_seq: int | None = None
    json: bool = False


@attrs.frozen(kw_only=True)
class JobsOptions(ClientOptions):
    """What `jobs` was asked for."""

    status: list[str] | None = None
    agent: str | None = None
    all: bool = False
    json: bool = False


@attrs.frozen(kw_only=True)
class CancelOptions(ClientOptions):
    """What `cancel` was asked for."""

    job_id: str
    reason: str = "no longer needed"


@attrs.frozen(kw_only=True)
class AgentsOptions(ClientOptions):
    """What `agents` was asked for."""

    json: bool = False


@attrs.frozen(kw_only=True)
class PingOptions(ClientOptions):
    """What `ping` was asked for."""

    count: int = 4


@attrs.frozen(kw_only=True)
class BenchOptions(ClientOptions):
    """What `bench` was asked for."""

    json: bool = False
