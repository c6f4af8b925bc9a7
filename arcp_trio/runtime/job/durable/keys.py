"""The key of a step: names and occurrences, from the outermost step to this one, as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arcp_trio.wire.json import dumps, loads

if TYPE_CHECKING:
    from arcp_trio.wire.json import JsonValue


def key_of(path: tuple[str | int, ...]) -> str:
    """Return a path as the store has it."""
    return dumps(list(path)).decode()


def named(key: str) -> str:
    """Return a key as people read it: the names of the steps, and how often they had come."""
    path = path_of(key)
    pairs = zip(path[::2], path[1::2], strict=True)
    return " / ".join(f"{name!r}" if n == 1 else f"{name!r} number {n}" for name, n in pairs)


def path_of(key: str) -> list[JsonValue]:
    """Return the path that a key is made of."""
    path = loads(key)
    assert isinstance(path, list)
    return path


def is_within(key: str, step: str) -> bool:
    """Return whether a key is a step's own, or that of something inside of it."""
    return key == step or key.startswith(step[:-1] + ",")
