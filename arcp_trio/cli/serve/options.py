"""The options of `serve`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from arcp_trio.cli import defaults
from arcp_trio.cli.options import log_level, option, repeatable, switch
from arcp_trio.cli.value_kinds import COUNT, PORT, SECONDS, TEXT, WHOLE_SECONDS, ValueKind, one_of
from arcp_trio.runtime.limits import Limits

TOKENS_VARIABLE: Final = "ARCP_TOKENS"

NETWORK: Final = ("host", "port", "tls_cert", "tls_key")
"""The options of a runtime on the network; one on its standard streams has no use for them."""
KEPT_IN: Final = ("memory", "data", "store")
"""The options that say where everything is kept."""
EXCLUDES: Final[Mapping[str, Sequence[str]]] = {
    **{name: tuple(other for other in KEPT_IN if other != name) for name in KEPT_IN},
    "stdio": NETWORK,
    **dict.fromkeys(NETWORK, ("stdio",)),
}
"""The options that an option excludes."""


def _limit(kind: ValueKind, help: str, limit: str) -> float | None:  # noqa: A002 - argparse's word
    """Declare an option that sets a field of `Limits`."""
    stated = attrs.fields_dict(Limits)[limit].default
    return option(kind, "SEC", help, default=None, stated=stated, limit=limit)


@attrs.frozen(kw_only=True)
class ServeOptions:
    """What the command line and the configuration file ask of `serve`."""

    host: tuple[str, ...] = repeatable(
        TEXT,
        "HOST",
        "address or name to listen on, or unix:PATH",
        default=(defaults.HOST,),
        alone_too=True,
    )
    port: int = option(PORT, "PORT", "port to listen on; 0 picks a free one", default=defaults.PORT)
    tls_cert: str | None = option(
        TEXT, "FILE", "certificate chain in PEM form, which turns TLS on", default=None
    )
    tls_key: str | None = option(
        TEXT, "FILE", "private key of the certificate, in PEM form", default=None
    )
    insecure: bool = switch(
        "let other machines connect without TLS, because something else encrypts"
    )
    allow_origin: tuple[str, ...] = repeatable(
        TEXT,
        "ORIGIN",
        "origin of web pages that may connect, such as https://app.example, or of a proxy",
        default=(),
    )
    no_console: bool = switch("serve no console, the page at / that shows jobs")
    stdio: bool = switch(
        "serve the process that started this one, on standard input and output, a frame per line"
    )
    data: str = option(TEXT, "DIR", "folder for jobs, events and sessions", default=defaults.DATA)
    memory: bool = switch("keep everything in memory, and write nothing to disk")
    store: str | None = option(
        TEXT,
        "URL",
        "PostgreSQL that several runtimes share, such as postgresql://role@host/name",
        default=None,
        secret=True,
    )
    node: str | None = option(
        TEXT,
        "NAME",
        "name of this runtime among those that share a store; its next start goes on at once with"
        " what this one has left (default: the machine's name and a random part)",
        default=None,
    )
    synchronous: str = option(
        one_of(("full", "normal", "off")),
        "MODE",
        "what a power cut may cost: with full nothing, with normal the last moments, with off all",
        default="full",
    )
    token: tuple[str, ...] = repeatable(
        TEXT, "PRINCIPAL=TOKEN", "a principal and its access token", default=()
    )
    token_file: str | None = option(
        TEXT,
        "FILE",
        "file of lines principal=token or principal=sha256:HASH; # begins a comment",
        default=None,
    )
    jwt_keys: str | None = option(
        TEXT, "FILE|URL", "JSON key set; tokens signed with its keys are accepted", default=None
    )
    jwt_algorithm: tuple[str, ...] = repeatable(
        TEXT, "NAME", "algorithm of their signatures, such as RS256 or ES256", default=()
    )
    jwt_audience: str | None = option(
        TEXT, "AUDIENCE", "audience that signed tokens must name", default=None
    )
    jwt_issuer: str | None = option(
        TEXT, "ISSUER", "issuer that signed tokens must name", default=None
    )
    agent: tuple[str, ...] = repeatable(
        TEXT,
        "NAME[@VERSION]=TARGET",
        "an agent to serve: MODULE:FUNCTION; or stdio:COMMAND, a program that speaks ARCP; or"
        " acp:COMMAND, one that speaks ACP, as coding agents do",
        default=(),
    )
    sandbox: str = option(
        one_of(("auto", "require", "off")),
        "MODE",
        "contain agents that are acp:COMMAND by bubblewrap: auto if possible, require always",
        default="auto",
    )
    sandbox_read: tuple[str, ...] = repeatable(
        TEXT,
        "PATH",
        "a file or folder that contained agents may read beside their lease",
        default=(),
    )
    sandbox_net: tuple[str, ...] = repeatable(
        TEXT,
        "URL",
        "what contained agents may reach beside their lease, such as https://api.example",
        default=(),
    )
    agent_env: tuple[str, ...] = repeatable(
        TEXT,
        "NAME[=VALUE]",
        "a variable for agents that are acp:COMMAND; NAME alone takes the value that serve has",
        default=(),
    )
    agent_home: str | None = option(
        TEXT,
        "DIR",
        "HOME of all agents that are acp:COMMAND (contained ones have one for each principal)",
        default=None,
    )
    agents: tuple[str, ...] = repeatable(
        TEXT,
        "MODULE[:REGISTRY]",
        "a registry of agents to serve, an arcp_trio.Agents (default name: agents)",
        default=(),
    )
    workers: int | None = option(
        COUNT,
        "N",
        "run the agents of each --agents in N worker processes, one job at a time in each",
        default=None,
    )
    worker_user: int | None = option(
        COUNT,
        "UID",
        "user id that worker processes change to (needs root)",
        default=None,
    )
    demo_agents: bool = switch("serve the demo agents also beside agents that are named")
    no_demo_agents: bool = switch("serve no demo agents, even if no agent is named")
    resume_window: float | None = _limit(
        WHOLE_SECONDS, "how long a session can be resumed", "resume_window_seconds"
    )
    heartbeat: float | None = _limit(
        WHOLE_SECONDS, "interval of pings to a silent client", "heartbeat_seconds"
    )
    drain: float = option(
        SECONDS, "SEC", "how long jobs may go on after SIGTERM or Ctrl-C", default=0.0
    )
    cancel_grace: float | None = _limit(
        SECONDS,
        "time for a cancelled agent to clean up, at most 2 while serve stops",
        "cancel_grace_seconds",
    )
    observer: frozenset[str] = repeatable(
        TEXT, "PRINCIPAL", "principal that may list and watch all jobs", default=frozenset[str]()
    )
    approver: frozenset[str] = repeatable(
        TEXT,
        "PRINCIPAL",
        "principal that may answer the questions of all jobs, and list and watch them",
        default=frozenset[str](),
    )
    operator: frozenset[str] = repeatable(
        TEXT, "PRINCIPAL", "principal that may cancel any job", default=frozenset[str]()
    )
    no_stop: bool = switch("let a job be cancelled only by the session that submitted it")
    log_level: str = log_level("info")
    log_format: str | None = option(
        one_of(("text", "short", "json")),
        "FORMAT",
        "text or short for people, json for programs (default: short on a terminal, else text)",
        default=None,
    )

    @property
    def folder(self) -> str | None:
        """The folder for what is kept on this machine; None if nothing is."""
        return None if self.memory or self.store is not None else self.data


@attrs.frozen(kw_only=True)
class CommandLine(ServeOptions):
    """What only the command line can ask of `serve`."""

    config: str | None = option(
        TEXT, "FILE.toml", "configuration file with options and limits", default=None
    )


@attrs.frozen(kw_only=True)
class StopOptions:
    """What `stop` can be asked for."""

    data: str | None = option(
        TEXT, "DIR", "folder of the serve to stop", default=None, stated=defaults.NEAREST
    )
    yes: bool = switch("do not ask, on a terminal, before jobs end")
