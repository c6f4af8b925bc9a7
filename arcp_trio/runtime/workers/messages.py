"""What the runtime and a worker send each other: frames over a socket, with values as JSON."""

from __future__ import annotations

import os
import traceback
from decimal import Decimal
from typing import Final

import attrs
import msgspec

from arcp_trio.runtime.credentials.credential import Credential
from arcp_trio.runtime.job.blocking import AgentCancelled
from arcp_trio.runtime.job.desk import Desk
from arcp_trio.runtime.job.job_view import JobFacts
from arcp_trio.wire.errors import (
    ArcpError,
    JobCancelled,
    JobFailed,
    JobTimedOut,
    error_from_payload,
)
from arcp_trio.wire.events import InvalidEvent
from arcp_trio.wire.json import (
    MAX_DEPTH,
    JsonLike,
    JsonObject,
    JsonValue,
    dumps,
    loads,
    loads_exact,
    object_in,
)

FAILURES: Final = frozenset({Desk.fail_call.__name__, Desk.fail_tool.__name__})
"""Operations whose last argument is an exception."""

HEADER_BYTES: Final = 4
FRAME_ALLOWANCE: Final = 64 * 1024
"""Bytes of a frame around the value in it, at most."""

SPENT: Final = "spent"
"""The name in the last frame of a job whose worker must not have another one: it is ended."""

_DEPTH: Final = MAX_DEPTH + 4
"""Values stand in lists of arguments."""


class WorkerFrame(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """One message. `kind` says what the other fields mean."""

    kind: str
    """What it is: job, cancel, reply, failed, file, bytes, ask are sent to a worker.

    A worker sends call, drop, end, error, alive.
    """
    call: int = 0
    """The number of a call, which its answer repeats."""
    name: str = ""
    data: bytes = b""


@attrs.frozen(kw_only=True)
class AgentCall:
    """What a worker is told of a job that it is to do."""

    facts: JobFacts
    loop: str | None
    seconds: float | None
    """The time until the job's deadline."""
    most_bytes: int
    most_waits: int

    def data(self) -> bytes:
        """Encode it."""
        return msgspec.json.encode(self)


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(WorkerFrame).decode


call_of: Final = msgspec.json.Decoder(AgentCall).decode
"""Decodes what a worker is told."""


def packed(frame: WorkerFrame) -> bytes:
    """Return a frame as it is sent: its length, then itself."""
    data = _encode(frame)
    return len(data).to_bytes(HEADER_BYTES, "big") + data


class Unpacker:
    """Takes frames out of the bytes that arrive."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Take bytes that have arrived."""
        self._buffer += data

    def next(self, most_bytes: int | None = None) -> WorkerFrame | None:
        """Return the next frame, or None if it is not there yet.

        Raises:
            ValueError: it is too large, or not a frame.
        """
        if len(self._buffer) < HEADER_BYTES:
            return None
        size = int.from_bytes(self._buffer[:HEADER_BYTES], "big")
        if most_bytes is not None and size > most_bytes:
            raise ValueError(f"a frame of more than {most_bytes} bytes")
        end = HEADER_BYTES + size
        if len(self._buffer) < end:
            return None
        data = bytes(self._buffer[HEADER_BYTES:end])
        del self._buffer[:end]
        try:
            return _decode(data)
        except msgspec.MsgspecError as error:
            raise ValueError(f"not a frame: {error}") from error


# -- values


def value_data(value: JsonLike) -> bytes:
    """Encode a value that an operation takes or returns.

    Raises:
        ValueError: it is not JSON.
    """
    return dumps(value, max_depth=_DEPTH)


def value_of(data: bytes) -> JsonValue:
    """Decode a value."""
    return loads(data, max_depth=_DEPTH)


def exact_value_of(data: bytes) -> JsonValue:
    """Decode a value with a `Decimal` for each number with a fraction."""
    return loads_exact(b'{"value":%b}' % data)["value"]


def amounts_of(data: bytes) -> dict[str, Decimal]:
    """Decode amounts by currency."""
    return {each: Decimal(str(amount)) for each, amount in object_in(exact_value_of(data)).items()}


def credential_of(fields: JsonObject) -> Credential:
    """Make a credential of its fields."""
    return Credential(**fields)  # type: ignore[arg-type]  # they are of a credential


# -- errors

_OF_PYTHON: Final[dict[str, type[Exception]]] = {
    each.__name__: each
    for each in (InvalidEvent, ValueError, TypeError, KeyError, AssertionError, RuntimeError)
}
_OF_CHILDREN: Final[dict[str, type[ArcpError]]] = {
    each.__name__: each for each in (JobFailed, JobCancelled, JobTimedOut)
}


class ErrorInProcess(Exception):  # noqa: N818 - what it stands for may be anything
    """An exception of another process, whose traceback is the text of this one."""


def error_data(error: BaseException) -> bytes:
    """Encode an exception for the other side."""
    name = type(error).__name__
    if not isinstance(error, Exception):
        return dumps({"class": AgentCancelled.__name__})
    if isinstance(error, ArcpError):
        return dumps({"class": name, "arcp": error.payload()})
    if isinstance(error, OSError):
        where = error.filename if isinstance(error.filename, str) else None
        return dumps({"class": "OSError", "errno": error.errno, "file": where})
    if name in _OF_PYTHON:
        text = str(error.args[0]) if error.args else ""
        return dumps({"class": name, "text": text, "trace": _trace(error)})
    return dumps({"class": name, "trace": _trace(error)})


def _trace(error: BaseException) -> str:
    text = "".join(traceback.format_exception(error))[-16 * 1024 :]
    return text.encode(errors="replace").decode()


def error_of(data: bytes) -> BaseException:
    """Return the exception that the other side has told of."""
    fields = object_in(value_of(data))
    name = str(fields["class"])
    if "arcp" in fields:
        error = error_from_payload(object_in(fields["arcp"]))
        kind = _OF_CHILDREN.get(name)
        if kind is None or type(error) is kind:
            return error
        return kind(
            error.message, details=error.details, retryable=error.retryable, code=error.code
        )
    if name == "OSError":
        number = fields["errno"]
        number = number if isinstance(number, int) else 0
        return OSError(number, os.strerror(number), fields["file"])
    if name in _OF_PYTHON:
        return _OF_PYTHON[name](fields["text"])
    if name == AgentCancelled.__name__:
        return AgentCancelled("the job is to end")
    return ErrorInProcess(fields["trace"])
