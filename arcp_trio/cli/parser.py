"""The argument parser, which is built from the table of commands."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Sequence
from typing import NoReturn

from arcp_trio.cli.commands import COMMANDS, ConsoleCommand
from arcp_trio.cli.errors import PROGRAM, ExitCode, did_you_mean
from arcp_trio.cli.options import Option
from arcp_trio.cli.value_kinds import SWITCH
from arcp_trio.version import __version__


class _Parser(argparse.ArgumentParser):
    """A parser that reports an error on one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(ExitCode.USAGE, f"{PROGRAM}: {message}; see {self.prog} --help\n")


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Fits paragraphs into the terminal; one with indented lines is an example, and stays."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:  # noqa: ARG002 - argparse's
        paragraphs = text.strip().split("\n\n")
        return "\n\n".join(
            each if "\n " in f"\n{each}" else textwrap.fill(each, width) for each in paragraphs
        )


def build_parser() -> argparse.ArgumentParser:
    """Return the parser, whose namespace has only the values that were given, and `command`."""
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
                formatter_class=_Formatter,
                allow_abbrev=False,
                argument_default=argparse.SUPPRESS,
            ),
            command,
        )
    return parser


def _fill(parser: argparse.ArgumentParser, command: ConsoleCommand) -> None:
    for argument in command.arguments:
        nargs = None if argument.required else "?"
        parser.add_argument(
            argument.name, nargs=nargs, metavar=argument.metavar, help=argument.help
        )
    # argparse cannot print the usage of an empty group.
    exclusive = parser.add_mutually_exclusive_group() if command.exclusive else parser
    for option in command.options:
        group = exclusive if option.name in command.exclusive else parser
        _add(group.add_argument, option)


def _add(add_argument: Callable[..., object], option: Option) -> None:
    if option.kind is SWITCH:
        add_argument(option.flag, action="store_true", help=option.help)
        return
    text = option.help
    if option.default:
        text += f" (default {option.default})"
    if option.repeatable:
        text += " (repeatable)"
    add_argument(
        option.flag,
        action="append" if option.repeatable else "store",
        type=option.kind.from_text,
        metavar=option.metavar,
        help=text,
    )


def unknown_command(word: str) -> str | None:
    """Return what is said about a first argument that should be a command; None if it may be."""
    known = [command.name for command in COMMANDS]
    if word.startswith("-") or word in known:
        return None
    aside = did_you_mean(word, known) or f"; the commands are {', '.join(known)}"
    return f"there is no command {word!r}{aside}"


def unknown_arguments(arguments: Sequence[str], name: str | None) -> str:
    """Return what is said about unknown arguments of a command.

    Only flags are named: the rest may be a secret after a mistyped --token.
    """
    command = next((each for each in COMMANDS if each.name == name), None)
    flags = [_flag(argument) for argument in arguments if argument.startswith("-")]
    if flags:
        known = [option.flag for option in command.options] if command else []
        told = [flag + did_you_mean(flag, known) for flag in flags]
        return f"unknown option {', '.join(told)}"
    takes = "options only"
    if command is not None and command.arguments:
        takes = f"one argument, {command.arguments[0].metavar}, and options"
    return f"{name or PROGRAM} takes {takes}; a value with spaces needs quotes"


def _flag(argument: str) -> str:
    return argument.partition("=")[0] if argument.startswith("--") else argument[:2]
