"""The values of steps: JSON, or what cattrs makes of and from JSON."""

from __future__ import annotations

from typing import Final, cast

from cattrs.preconf.json import make_converter

from arcp_trio.wire.json import MAX_DEPTH, JsonLike, dumps, loads

_DEPTH: Final = MAX_DEPTH - 4
"""Levels of nesting: a result stands in an event, a memo, or a list of arguments."""

_converter: Final = make_converter()


def encoded(value: object, returns: type | None, name: str) -> bytes:
    """Return what a step's function has returned as JSON.

    Raises:
        TypeError: it cannot be stored.
    """
    try:
        plain = value if returns is None else _converter.unstructure(value, unstructure_as=returns)
        return dumps(cast("JsonLike", plain), max_depth=_DEPTH)
    except Exception as error:
        wanted = "JSON" if returns is None else f"a JSON {_named(returns)}"
        raise TypeError(f"step {name!r} returned what is not {wanted}: {error}") from error


def decoded(stored: bytes, returns: type[object] | None, name: str) -> object:
    """Return a stored result.

    Raises:
        TypeError: it is not of the type that `returns` names.
    """
    value = loads(stored)
    if returns is None:
        return value
    try:
        return _converter.structure(value, returns)
    except Exception as error:
        raise TypeError(f"the result of step {name!r} is no {_named(returns)}: {error}") from error


def _named(returns: object) -> str:
    """Return a type as people write it; a union, for one, has no name."""
    return returns.__name__ if isinstance(returns, type) else str(returns)
