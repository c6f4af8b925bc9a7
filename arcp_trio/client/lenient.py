"""JSON as it comes: what is of another type than it should be is taken for absent."""

from __future__ import annotations

from typing import TypeGuard

from arcp_trio.wire.json import Json, JsonObject


def object_in(value: Json) -> JsonObject:
    """Take an object, or an empty one."""
    return value if _is_object(value) else {}


def list_in(value: Json) -> list[Json]:
    """Take an array, or an empty one."""
    return value if _is_list(value) else []


def text_in(value: Json) -> str | None:
    """Take a string that is not empty."""
    return value if isinstance(value, str) and value else None


def _is_object(value: Json) -> TypeGuard[JsonObject]:
    return isinstance(value, dict)


def _is_list(value: Json) -> TypeGuard[list[Json]]:
    return isinstance(value, list)
