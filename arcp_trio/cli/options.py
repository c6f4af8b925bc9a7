"""The options: one table for the command line, the help and, of `serve`, the configuration file."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, cast

import attrs

from arcp_trio.addresses import HIGHEST_PORT

LOG_LEVELS: Final = ("debug", "info", "warning", "error")
LOG_FORMATS: Final = ("text", "json")
SYNCHRONOUS: Final = ("full", "normal", "off")
DATA: Final = ".arcp"
MOST_SECONDS: Final = 2**31 - 1
"""Peers read the seconds of a welcome as a 32-bit number."""


@attrs.frozen
class Kind:
    """What values an option takes, whether they come as text or as typed values of a file."""

    wants: str
    convert: Callable[[str], object]
    accepts: Callable[[object], bool]

    def from_text(self, text: str) -> object:
        """Read a command-line argument. The complaint never repeats it: it may be a secret."""
        try:
            value = self.convert(text)
        except ValueError:
            value = None
        if not self.accepts(value):
            raise argparse.ArgumentTypeError(f"must be {self.wants}")
        return value


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_whole(value: object, least: int, most: float = math.inf) -> bool:
    # A boolean is an int to Python, but nobody's port.
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_duration(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value) and value >= 0
    return _is_whole(value, 0)


def _one_of(words: Sequence[str]) -> Kind:
    return Kind(f"one of {', '.join(words)}", str, lambda v: v in words)


TEXT = Kind("text that is not empty", str, _is_text)
PORT = Kind(
    f"a whole number from 0 to {HIGHEST_PORT}", int, lambda v: _is_whole(v, 0, HIGHEST_PORT)
)
SECONDS = Kind("a number of seconds, 0 or more", float, _is_duration)
WHOLE_SECONDS = Kind(
    f"a whole number of seconds from 1 to {MOST_SECONDS}",
    int,
    lambda v: _is_whole(v, 1, MOST_SECONDS),
)
NUMBER = Kind("a whole number, 0 or more", int, lambda v: _is_whole(v, 0))
LEVEL = _one_of(LOG_LEVELS)
FORMAT = _one_of(LOG_FORMATS)
SYNC = _one_of(SYNCHRONOUS)
SWITCH = Kind("true or false", bool, lambda v: isinstance(v, bool))


@attrs.frozen
class Option:
    """One option, by the name that its value has in `ServeOptions`."""

    name: str
    kind: Kind
    metavar: str
    help: str
    repeatable: bool = False
    alone_too: bool = False
    """It is repeatable, and a configuration file may have one item without a list around it."""

    @property
    def flag(self) -> str:
        """How the command line spells it."""
        return "--" + self.name.replace("_", "-")

    def accepts(self, value: object) -> bool:
        """Whether a typed value of a configuration file is one for this option."""
        if not self.repeatable or (self.alone_too and not isinstance(value, list)):
            return self.kind.accepts(value)
        return isinstance(value, list) and all(
            self.kind.accepts(item) for item in cast("list[object]", value)
        )

    @property
    def wants(self) -> str:
        """What a configuration file must say."""
        if not self.repeatable:
            return self.kind.wants
        return (f"{self.kind.wants}, or " if self.alone_too else "") + (
            f"a list, each item {self.kind.wants}"
        )


SERVE: Final = (
    Option(
        "host",
        TEXT,
        "HOST",
        "address or name to listen on, or unix:PATH (default 127.0.0.1)",
        repeatable=True,
        alone_too=True,
    ),
    Option("port", PORT, "PORT", "port to listen on, 0 picks a free one (default 7777)"),
    Option("tls_cert", TEXT, "FILE", "certificate chain, in PEM form: speak TLS"),
    Option("tls_key", TEXT, "FILE", "its private key"),
    Option(
        "insecure", SWITCH, "", "let other machines connect without TLS: something else encrypts"
    ),
    Option(
        "allow_origin",
        TEXT,
        "ORIGIN",
        "a web page that may connect, as https://app.example, also as a proxy's name",
        repeatable=True,
    ),
    Option(
        "stdio",
        SWITCH,
        "",
        "serve whoever has started the process, on standard input and output, a frame per line",
    ),
    Option("data", TEXT, "DIR", "folder of what is kept: jobs, events, sessions (default .arcp)"),
    Option("memory", SWITCH, "", "keep everything in memory and write nothing to disk"),
    Option(
        "synchronous",
        SYNC,
        "MODE",
        "what a power cut may cost: full nothing, normal the last moments, off all (default full)",
    ),
    Option("token", TEXT, "PRINCIPAL=TOKEN", "a principal and its access token", repeatable=True),
    Option(
        "token_file",
        TEXT,
        "FILE",
        "a file of lines principal=token or principal=sha256:HASH, # for comments",
    ),
    Option("jwt_keys", TEXT, "FILE|URL", "accept tokens signed with the keys of this JSON key set"),
    Option(
        "jwt_algorithm", TEXT, "NAME", "how they may be signed: RS256, ES256 …", repeatable=True
    ),
    Option("jwt_audience", TEXT, "AUDIENCE", "whom they must be for"),
    Option("jwt_issuer", TEXT, "ISSUER", "who must have issued them"),
    Option(
        "agent",
        TEXT,
        "NAME[@VERSION]=TARGET",
        "serve an agent: MODULE:FUNCTION, or stdio:COMMAND, a program to start for each job",
        repeatable=True,
    ),
    Option(
        "agents",
        TEXT,
        "MODULE[:REGISTRY]",
        "serve a registry, an arcp_trio.Agents (default name: agents)",
        repeatable=True,
    ),
    Option("no_demo_agents", SWITCH, "", "serve no agents but those that are named here"),
    Option("resume_window", WHOLE_SECONDS, "SEC", "time a session can be resumed (default 600)"),
    Option("heartbeat", WHOLE_SECONDS, "SEC", "interval of pings to a silent client (default 30)"),
    Option("drain", SECONDS, "SEC", "how long jobs may go on after SIGTERM or Ctrl-C (default 0)"),
    Option(
        "cancel_grace",
        SECONDS,
        "SEC",
        "clean-up time of a cancelled agent, 2 at most when serve stops (default 30)",
    ),
    Option(
        "observer", TEXT, "PRINCIPAL", "may list and subscribe to anybody's jobs", repeatable=True
    ),
    Option("operator", TEXT, "PRINCIPAL", "may cancel anybody's jobs", repeatable=True),
    Option("log_level", LEVEL, "LEVEL", f"{', '.join(LOG_LEVELS)} (default info)"),
    Option("log_format", FORMAT, "FORMAT", "text for people, json for machines (default text)"),
)

REPLAY: Final = (
    Option("data", TEXT, "DIR", "folder of the store (default .arcp)"),
    Option("after_seq", NUMBER, "N", "begin behind this number (default 0)"),
)


def _in_order(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(values)


def _one_or_more(values: str | Iterable[str]) -> tuple[str, ...]:
    return (values,) if isinstance(values, str) else tuple(values)


def _as_set(values: Iterable[str]) -> frozenset[str]:
    return frozenset(values)


@attrs.frozen(kw_only=True)
class ServeOptions:
    """What `serve` was asked for, by the command line and the file together."""

    host: tuple[str, ...] = attrs.field(default=("127.0.0.1",), converter=_one_or_more)
    port: int = 7777
    tls_cert: str | None = None
    tls_key: str | None = None
    insecure: bool = False
    allow_origin: tuple[str, ...] = attrs.field(default=(), converter=_in_order)
    stdio: bool = False
    data: str = DATA
    memory: bool = False
    synchronous: str = "full"
    token: tuple[str, ...] = attrs.field(default=(), converter=_in_order)
    token_file: str | None = None
    jwt_keys: str | None = None
    jwt_algorithm: tuple[str, ...] = attrs.field(default=(), converter=_in_order)
    jwt_audience: str | None = None
    jwt_issuer: str | None = None
    agent: tuple[str, ...] = attrs.field(default=(), converter=_in_order)
    agents: tuple[str, ...] = attrs.field(default=(), converter=_in_order)
    no_demo_agents: bool = False
    resume_window: int | None = None
    heartbeat: int | None = None
    drain: float = 0.0
    cancel_grace: float | None = None
    observer: frozenset[str] = attrs.field(default=frozenset(), converter=_as_set)
    operator: frozenset[str] = attrs.field(default=frozenset(), converter=_as_set)
    log_level: str = "info"
    log_format: str = "text"


@attrs.frozen(kw_only=True)
class ReplayOptions:
    """What `replay` was asked for."""

    session_id: str | None = None
    data: str = DATA
    after_seq: int = 0


NETWORK: Final = ("host", "port", "tls_cert", "tls_key")
"""The options of a runtime on the network, which one on its standard streams has no use for."""

_EXCLUSIVE: Final = (
    ("memory", ("data",)),
    ("data", ("memory",)),
    ("stdio", NETWORK),
    *((name, ("stdio",)) for name in NETWORK),
)


def merge(given: Mapping[str, object], configured: Mapping[str, object]) -> dict[str, object]:
    """Let the command line win over the file, option by option."""
    merged = {**configured, **given}
    # What excludes another one and is on the command line also wins over that.
    for chosen, others in _EXCLUSIVE:
        if chosen in given:
            for other in others:
                if other not in given:
                    merged.pop(other, None)
    return merged
