"""The command line, `arcp-trio …`. A command imports what it needs, so that `--help` is fast."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

from arcp_trio.cli.commands import COMMANDS
from arcp_trio.cli.errors import PROGRAM, CommandError, ExitCode, one_line
from arcp_trio.cli.parser import build_parser, unknown_arguments, unknown_command
from arcp_trio.cli.text import safe_line

log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code of the process."""
    _replace_closed_streams()
    parser = build_parser()
    arguments = sys.argv[1:] if argv is None else argv
    mistyped = unknown_command(arguments[0]) if arguments else None
    if mistyped is not None:
        parser.error(mistyped)
    namespace, unknown = parser.parse_known_args(arguments)
    given = vars(namespace)
    name = given.pop("command")
    if unknown:
        explained = PROGRAM if name is None else f"{PROGRAM} {name}"
        parser.exit(
            ExitCode.USAGE,
            f"{PROGRAM}: {unknown_arguments(unknown, name)}; see {explained} --help\n",
        )
    if name is None:
        parser.print_help(sys.stderr)
        return ExitCode.USAGE
    command = next(command for command in COMMANDS if command.name == name)
    try:
        return command.run(given)
    except CommandError as error:
        log.debug("command failed", exc_info=True)
        return _failed(str(error), error.exit_code)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except Exception as error:  # the last fence: people get a line and no traceback
        log.debug("command failed", exc_info=True)
        message = f"failed with {one_line(error)}; --log-level debug shows where"
        return _failed(message, ExitCode.FAILED)


def _replace_closed_streams() -> None:
    """Open /dev/null in place of each standard stream that is closed.

    Otherwise the next file or socket that is opened has the number of that stream, and receives
    what is written to the stream.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # A new descriptor has the lowest free number, which is that of the closed stream.
            descriptor = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8"))


def _failed(message: str, exit_code: ExitCode) -> ExitCode:
    """Print why the command failed, after everything that was logged; return the exit code."""
    for handler in logging.getLogger().handlers:
        handler.flush()
    # The message may repeat what another program said.
    print(f"{PROGRAM}: {safe_line(message)}", file=sys.stderr, flush=True)
    return exit_code
