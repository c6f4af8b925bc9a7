"""The kinds of values that options take: how each is read, and which values it accepts."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Sequence
from typing import Final, TypeGuard

import attrs

from arcp_trio.addresses import HIGHEST_PORT

LOG_LEVELS: Final = ("debug", "info", "warning", "error")
_MOST_SECONDS: Final = 2**31 - 1
"""The greatest number of seconds in a welcome: clients read them as a 32-bit number."""
_LONGEST_DURATION: Final = 100 * 365 * 86_400

_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION: Final = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?[smhd]){1,4}|[0-9]+(?:\.[0-9]+)?", re.ASCII)
_PART: Final = re.compile(r"([0-9.]+)([smhd]?)")


@attrs.frozen
class ValueKind:
    """A kind of values. They come as text of the command line, or typed from a file."""

    wants: str
    """What a value must be, in words."""
    convert: Callable[[str], object]
    """Turns text into a value; `ValueError` if that is not possible."""
    accepts: Callable[[object], bool]
    """Whether a value is of this kind."""

    def from_text(self, text: str) -> object:
        """Return the value of an argument of the command line.

        Raises:
            argparse.ArgumentTypeError: the text is not of this kind. The message does not repeat
                the text, which may be a secret.
        """
        try:
            value = self.convert(text)
        except ValueError:
            value = None
        if not self.accepts(value):
            raise argparse.ArgumentTypeError(f"must be {self.wants}")
        return value


def is_whole(value: object, least: float = -math.inf, most: float = math.inf) -> TypeGuard[int]:
    """Return whether a value is a whole number within these bounds; a boolean is not."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_finite(value: object) -> TypeGuard[float]:
    """Return whether a value is a finite number; a boolean is not."""
    return math.isfinite(value) if isinstance(value, float) else is_whole(value)


def seconds_of(text: str) -> float:
    """Return the seconds that `90`, `90s`, `10m`, `1h30m` or `2d` stands for.

    Raises:
        ValueError: the text is not such a time.
    """
    if not _DURATION.fullmatch(text):
        raise ValueError(text)
    return math.fsum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_number_from_0(value: object) -> bool:
    return is_finite(value) and value >= 0


def _is_duration(value: object) -> bool:
    return isinstance(value, float) and 0 < value <= _LONGEST_DURATION


def one_of(words: Sequence[str]) -> ValueKind:
    """Return the kind whose values are these words."""
    return ValueKind(f"one of {', '.join(words)}", str, lambda value: value in words)


def _whole(wants: str, least: int, most: float = math.inf) -> ValueKind:
    return ValueKind(f"a whole number{wants}", int, lambda value: is_whole(value, least, most))


TEXT: Final = ValueKind("text that is not empty", str, _is_text)
SWITCH: Final = ValueKind("true or false", bool, lambda value: isinstance(value, bool))
NUMBER: Final = _whole(", 0 or more", 0)
COUNT: Final = _whole(", 1 or more", 1)
PORT: Final = _whole(f" from 0 to {HIGHEST_PORT}", 0, HIGHEST_PORT)
SECONDS: Final = ValueKind("a number of seconds, 0 or more", float, _is_number_from_0)
WHOLE_SECONDS: Final = _whole(f" of seconds from 1 to {_MOST_SECONDS}", 1, _MOST_SECONDS)
DURATION: Final = ValueKind("a time such as 90s, 10m or 1h30m", seconds_of, _is_duration)
LOG_LEVEL: Final = one_of(LOG_LEVELS)
