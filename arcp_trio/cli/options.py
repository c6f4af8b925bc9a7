"""How a command declares its options: as the fields of the class that holds their values.

    @attrs.frozen(kw_only=True)
    class PingOptions:
        count: int = option(COUNT, "N", "number of pings", default=4)

The parser, the help and the keys of a configuration file are made from such a class.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection
from functools import partial
from typing import Final, TypeVar, cast

import attrs

from arcp_trio.cli.value_kinds import LOG_LEVEL, LOG_LEVELS, SWITCH, ValueKind

_T = TypeVar("_T")
_C = TypeVar("_C", bound=Collection[str])

_DECLARED: Final = "declared"
"""The key of a field's metadata that makes its option, or its argument, from the field's name."""


@attrs.frozen(kw_only=True)
class Argument:
    """A value that the command line gives by its place."""

    name: str
    metavar: str
    help: str
    required: bool


@attrs.frozen(kw_only=True)
class Option:
    """A value that the command line gives after a flag, and a configuration file under a key."""

    name: str
    """The key in a configuration file."""
    kind: ValueKind
    metavar: str
    help: str
    default: str
    """The default in words; empty if the help names no default."""
    repeatable: bool = False
    alone_too: bool = False
    """Whether the file may give one item of a repeatable option without a list around it."""
    limit: str | None = None
    """The field of `arcp_trio.Limits` that the option sets."""

    @property
    def flag(self) -> str:
        """The option as the command line spells it."""
        return flag_of(self.name)

    @property
    def wants(self) -> str:
        """What the value in a configuration file must be, in words."""
        if not self.repeatable:
            return self.kind.wants
        alone = f"{self.kind.wants}, or " if self.alone_too else ""
        return f"{alone}a list, each item {self.kind.wants}"

    def accepts(self, value: object) -> bool:
        """Return whether the value of a configuration file is good for this option."""
        if not self.repeatable or (self.alone_too and not isinstance(value, list)):
            return self.kind.accepts(value)
        return isinstance(value, list) and all(map(self.kind.accepts, cast("list[object]", value)))


def flag_of(name: str) -> str:
    """Return the flag of the option with this name."""
    return "--" + name.replace("_", "-")


# -- declaring


def argument(metavar: str, help: str) -> str:  # noqa: A002 - argparse's word
    """Declare a value that is given by its place."""
    declared = partial(Argument, metavar=metavar, help=help, required=True)
    return cast("str", attrs.field(metadata={_DECLARED: declared}))


def optional_argument(metavar: str, help: str) -> str | None:  # noqa: A002
    """Declare a value that is given by its place, or left out."""
    declared = partial(Argument, metavar=metavar, help=help, required=False)
    return cast("str | None", attrs.field(default=None, metadata={_DECLARED: declared}))


def option(
    kind: ValueKind,
    metavar: str,
    help: str,  # noqa: A002
    *,
    default: _T,
    stated: object = None,
    limit: str | None = None,
    secret: bool = False,
) -> _T:
    """Declare an option with one value.

    Args:
        stated: the default that the help states, if it is not `default`.
        limit: the field of `arcp_trio.Limits` that the option sets.
        secret: the value is not part of the repr.
    """
    declared = partial(
        Option,
        kind=kind,
        metavar=metavar,
        help=help,
        default=_in_words(default if stated is None else stated),
        limit=limit,
    )
    return attrs.field(default=default, repr=not secret, metadata={_DECLARED: declared})


def repeatable(
    kind: ValueKind,
    metavar: str,
    help: str,  # noqa: A002
    *,
    default: _C,
    alone_too: bool = False,
) -> _C:
    """Declare an option that may be given several times; `default` says what collects its values.

    Args:
        alone_too: a configuration file may have one value without a list around it.
    """
    declared = partial(
        Option,
        kind=kind,
        metavar=metavar,
        help=help,
        default=_in_words(", ".join(default)),
        repeatable=True,
        alone_too=alone_too,
    )
    collect = cast("Callable[[Collection[str]], _C]", type(default))

    def converter(values: str | Collection[str]) -> _C:
        return collect((values,) if isinstance(values, str) else values)

    return attrs.field(default=default, converter=converter, metadata={_DECLARED: declared})


def switch(help: str) -> bool:  # noqa: A002
    """Declare an option without a value, which is off unless it is given."""
    declared = partial(Option, kind=SWITCH, metavar="", help=help, default="")
    return attrs.field(default=False, metadata={_DECLARED: declared})


def log_level(default: str) -> str:
    """Declare the option that says how much of the log is written."""
    return option(LOG_LEVEL, "LEVEL", ", ".join(LOG_LEVELS), default=default)


def _in_words(default: object) -> str:
    if default is None or default == "":
        return ""
    return f"{default:g}" if isinstance(default, int | float) else shlex.quote(str(default))


# -- what a class declares


def arguments_of(options: type[attrs.AttrsInstance]) -> tuple[Argument, ...]:
    """Return the arguments that a class declares."""
    return tuple(each for each in _declared(options) if isinstance(each, Argument))


def options_of(options: type[attrs.AttrsInstance]) -> tuple[Option, ...]:
    """Return the options that a class declares: its own ones, then those of its bases."""
    return tuple(each for each in _declared(options) if isinstance(each, Option))


def _declared(options: type[attrs.AttrsInstance]) -> list[Argument | Option]:
    return [
        field.metadata[_DECLARED](name=field.name)
        for owner in options.__mro__
        if attrs.has(owner)
        for field in attrs.fields(owner)
        if not field.inherited
    ]
