"""The argument parser, built from the table of commands; its complaints are one line each."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import NoReturn

from arcp_trio import __version__
from arcp_trio.cli.commands import COMMANDS, PROGRAM, Argument, Command
from arcp_trio.cli.options import SWITCH, Option


class _Parser(argparse.ArgumentParser):
    """Reports one line instead of the usage and a line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{PROGRAM}: {message}; see {self.prog} --help\n")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser; what it returns holds only the options that were given."""
    parser = _Parser(
        prog=PROGRAM,
        description="A runtime for ARCP 1.1, the Agent Runtime Control Protocol, and its clients.",
        epilog=f"example: {PROGRAM} serve in one terminal, {PROGRAM} submit echo in another",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for command in COMMANDS:
        _fill(
            commands.add_parser(
                command.name,
                help=command.help,
                description=command.description,
                epilog=f"example:\n  {command.example}\n\n{command.notes}",
                formatter_class=argparse.RawDescriptionHelpFormatter,
                allow_abbrev=False,
                argument_default=argparse.SUPPRESS,
            ),
            command,
        )
    return parser


def _fill(parser: argparse.ArgumentParser, command: Command) -> None:
    for argument in command.arguments:
        _add_argument(parser, argument)
    # argparse minds an empty group.
    either = parser.add_mutually_exclusive_group() if command.exclusive else parser
    for option in command.options:
        group = either if option.name in command.exclusive else parser
        _add(group.add_argument, option)


def _add_argument(parser: argparse.ArgumentParser, argument: Argument) -> None:
    if argument.optional:
        parser.add_argument(argument.name, nargs="?", metavar=argument.metavar, help=argument.help)
    else:
        parser.add_argument(argument.name, metavar=argument.metavar, help=argument.help)


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
