"""The command line, `arcp-trio …`. A command imports what it needs, so `--help` stays fast."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence

from arcp_trio.cli.commands import COMMANDS, PROGRAM
from arcp_trio.cli.errors import CommandError, one_line
from arcp_trio.cli.parser import build_parser, unknown_arguments
from arcp_trio.cli.text import safe_line

_INTERRUPTED = 130

log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code of the process."""
    _occupy_closed_streams()
    parser = build_parser()
    namespace, unknown = parser.parse_known_args(argv)
    given = vars(namespace)
    command = given.pop("command")
    if unknown:
        explained = PROGRAM if command is None else f"{PROGRAM} {command}"
        parser.exit(2, f"{PROGRAM}: {unknown_arguments(unknown)}; see {explained} --help\n")
    if command is None:
        parser.print_help(sys.stderr)
        return 2
    try:
        return _run(command, given)
    except CommandError as failure:
        log.debug("the whole story of what follows", exc_info=True)
        return _end(str(failure), failure.exit_code)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Exception as error:  # the last fence: people get a line, not a traceback
        log.debug("the whole story of what follows", exc_info=True)
        return _end(f"failed with {one_line(error)}; --log-level debug shows where", 1)


def _occupy_closed_streams() -> None:
    """Have /dev/null where whoever started this has closed a standard stream.

    What is written there would else go to what is opened next: to a client, perhaps.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # Of all free numbers it gets the lowest: the one that is missing.
            lowest = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(lowest, mode, encoding="utf-8"))


def _run(name: str, given: Mapping[str, object]) -> int:
    module = next(command.module for command in COMMANDS if command.name == name)
    loaded = importlib.import_module(module)
    run: Callable[[Mapping[str, object]], int] = loaded.run
    return run(given)


def _end(message: str, exit_code: int) -> int:
    for handler in logging.getLogger().handlers:
        handler.flush()  # the line to act on stands last
    # It may repeat what another program said.
    print(f"{PROGRAM}: {safe_line(message)}", file=sys.stderr, flush=True)
    return exit_code
