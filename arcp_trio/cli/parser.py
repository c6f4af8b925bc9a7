"""The argument parser, built from the options' table; its complaints are one line each."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from arcp_trio import __version__
from arcp_trio.cli.options import REPLAY, SERVE, SWITCH, Option

PROGRAM: Final = "arcp-trio"

_SERVE_NOTES: Final = """\
Jobs, events and sessions are kept in DIR/arcp.db, for one runtime at a time: they survive the
process, and a client resumes its session at the next one. A job that was running then ends with
a retryable error. Without any token given, one is made for the principal "local", kept in
DIR/token for the next start, and printed on stderr.
ARCP_TOKENS="p=t,p2=t2" in the environment gives tokens too.

A configuration file has the same options, _ for -, and the bounds of arcp_trio.Limits:

  [serve]
  port = 8080
  agents = ["my_agents"]
  [limits]
  jobs_per_principal = 20

An option on the command line replaces the one of the file. Modules of agents are looked up
from the current directory first. SIGTERM or Ctrl-C ends in order, within five seconds of the
drain; the second one at once.
"""

_REPLAY_NOTES: Final = """\
Without SESSION_ID: one line for each session, with its principal, the last number it has used and
how many jobs it watches. With it: the session's frames, one JSON object per line, as a resume
would repeat them. Nothing is changed; the runtime must not be running.
"""


class _Parser(argparse.ArgumentParser):
    """Reports one line instead of the usage and a line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{PROGRAM}: {message}; see {self.prog} --help\n")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser; what it returns holds only the options that were given."""
    parser = _Parser(
        prog=PROGRAM,
        description="A runtime for ARCP 1.1, the Agent Runtime Control Protocol.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    serve = commands.add_parser(
        "serve",
        help="run a runtime",
        description="Run a runtime, until SIGTERM or Ctrl-C.",
        epilog=_SERVE_NOTES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    serve.add_argument("--config", metavar="FILE.toml", help="read options and bounds from a file")
    either = serve.add_mutually_exclusive_group()
    for option in SERVE:
        group = either if option.name in ("data", "memory") else serve
        _add(group.add_argument, option)
    replay = commands.add_parser(
        "replay",
        help="print the sessions, or the frames of one, that a runtime has left in its store",
        description="Print what is in the store of a runtime that is not running.",
        epilog=_REPLAY_NOTES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    replay.add_argument("session_id", nargs="?", metavar="SESSION_ID", help="whose frames to print")
    for option in REPLAY:
        _add(replay.add_argument, option)
    return parser


def _add(add_argument: Callable[..., object], option: Option) -> None:
    if option.kind is SWITCH:
        add_argument(option.flag, action="store_true", help=option.help)
        return
    action = "append" if option.repeatable else "store"
    text = option.help + " (repeatable)" if option.repeatable else option.help
    add_argument(
        option.flag, action=action, type=option.kind.from_text, metavar=option.metavar, help=text
    )


def unknown_arguments(arguments: Sequence[str]) -> str:
    """Name unknown flags only: the rest may be half of a mistyped --token."""
    flags = [argument.partition("=")[0] for argument in arguments if argument.startswith("--")]
    if flags:
        return f"unknown option {', '.join(flags)}"
    return "there is an argument that belongs to no option"
