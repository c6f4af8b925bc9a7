"""JSON-RPC 2.0 as lines: what a line says, and how a line is written. Nothing here does I/O."""

from __future__ import annotations

import math
from typing import Final, TypeAlias

from attrs import frozen

from arcp_trio.acp.errors import INTERNAL_ERROR
from arcp_trio.wire.errors import InvalidRequest, clip
from arcp_trio.wire.faults import MAX_INT, MIN_INT, has_more_values
from arcp_trio.wire.json import (
    JsonLike,
    JsonObject,
    JsonValue,
    dumps,
    is_list,
    is_object,
    loads,
    loads_lax,
    object_in,
)

RequestId: TypeAlias = int | str | None

WRITE_DEPTH: Final = 128
"""Levels of nesting in what is written."""


@frozen
class Notification:
    """A message that has no answer."""

    method: str
    params: JsonObject


@frozen
class IncomingRequest:
    """A message that has to be answered; `params` is None if it is not an object."""

    id: RequestId
    method: str
    params: JsonObject | None


@frozen
class ErrorAnswer:
    """The error in an answer."""

    code: int
    message: str
    data: JsonValue


@frozen
class IncomingAnswer:
    """The answer to a request: a result, or an error."""

    id: RequestId
    result: JsonValue
    error: ErrorAnswer | None


Message: TypeAlias = Notification | IncomingRequest | IncomingAnswer


def parse(line: str | bytes, max_depth: int, max_values: int) -> Message:
    """Return what a line says.

    Text that cannot be passed on is mended: what is not UTF-8 and lone surrogates become U+FFFD,
    numbers without a finite value or beyond 64 bits become null.

    Raises:
        ValueError: names why the line is not a message.
    """
    text = line if isinstance(line, str) else line.decode(errors="replace")
    if has_more_values(text, max_values):
        raise ValueError("too many values")
    value = _read(text, max_depth)
    if not is_object(value):
        raise ValueError("not an object")
    id_ = value.get("id")
    if type(id_) not in (int, str, type(None)):
        raise ValueError("the id is neither an integer nor a string")
    assert isinstance(id_, RequestId)
    params = value.get("params")
    method = value.get("method")
    if isinstance(method, str):
        fields = {} if params is None else params if is_object(params) else None
        if "id" in value:
            return IncomingRequest(id_, method, fields)
        if fields is None:
            raise ValueError("the params are not an object")
        return Notification(method, fields)
    if "id" in value and ("result" in value or "error" in value):
        return IncomingAnswer(id_, value.get("result"), _error_in(value.get("error")))
    raise ValueError("neither a request nor an answer")


def _error_in(value: JsonValue) -> ErrorAnswer | None:
    if value is None:
        return None
    fields = object_in(value)
    code, message = fields.get("code"), fields.get("message")
    return ErrorAnswer(
        code if type(code) is int else INTERNAL_ERROR,
        message if isinstance(message, str) else clip(str(value)),
        fields.get("data"),
    )


def _read(text: str, max_depth: int) -> JsonValue:
    try:
        return loads(text, max_depth=max_depth)
    except InvalidRequest:
        value = loads_lax(text)
    mended = _mended(value, max_depth)
    if object_in(value).get("id") != object_in(mended).get("id"):
        raise ValueError("the id is neither an integer nor a string")
    return mended


def _mended(value: JsonValue, depth: int) -> JsonValue:
    if depth < 0 or (depth == 0 and isinstance(value, dict | list)):
        raise ValueError("nested too deeply")
    if is_object(value):
        return {_mended_text(key): _mended(item, depth - 1) for key, item in value.items()}
    if is_list(value):
        return [_mended(item, depth - 1) for item in value]
    if isinstance(value, str):
        return _mended_text(value)
    if type(value) is int and not MIN_INT <= value <= MAX_INT:
        return None
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _mended_text(text: str) -> str:
    # Two halves of one character, each escaped, have been joined by the decoder already.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def request_line(id_: int, method: str, params: JsonLike) -> bytes:
    """Write a request."""
    return _write({"id": id_, "method": method, "params": params})


def notification_line(method: str, params: JsonLike) -> bytes:
    """Write a notification."""
    return _write({"method": method, "params": params})


def result_line(id_: RequestId, result: JsonLike) -> bytes:
    """Write the answer to a request."""
    return _write({"id": id_, "result": result})


def error_line(id_: RequestId, code: int, message: str) -> bytes:
    """Write the refusal of a request."""
    return _write({"id": id_, "error": {"code": code, "message": message}})


def _write(fields: dict[str, JsonLike]) -> bytes:
    return dumps({"jsonrpc": "2.0", **fields}, max_depth=WRITE_DEPTH)
