"""Commands between nodes, and the answers to them, as the store keeps them: JSON."""

from __future__ import annotations

from typing import Final

import msgspec

from arcp_trio.runtime.job.commands import JobCommand, Obeyed
from arcp_trio.wire.errors import ArcpError, InternalError, error_from_payload

RELEASE: Final = "release"
"""The kind of a command about a session; the kind of one about a job is the tag of its class."""

_read_command = msgspec.json.Decoder(JobCommand)
_read_answer = msgspec.json.Decoder(dict[str, object])


def kind_of(command: JobCommand) -> str:
    """Return the word for a kind of command."""
    return str(type(command).__struct_config__.tag)


def body_of(command: JobCommand) -> bytes:
    """Encode what a command says."""
    return msgspec.json.encode(command)


def read_command(body: bytes) -> JobCommand | None:
    """Return a command about a job; None for one that only a newer version knows."""
    command: JobCommand
    try:
        command = _read_command.decode(body)
    except msgspec.DecodeError:
        return None
    return command


def encode_answer(answer: Obeyed | ArcpError) -> bytes:
    """Encode what came of a command."""
    said = {"error": answer.payload()} if isinstance(answer, ArcpError) else answer
    return msgspec.json.encode(said)


def read_answer(text: bytes) -> Obeyed | ArcpError:
    """Return what came of a command; an error if only a newer version knows what that is."""
    try:
        said = _read_answer.decode(text)
        if "error" in said:
            return error_from_payload(msgspec.convert(said["error"], dict[str, object]))
        return msgspec.convert(said, Obeyed)
    except msgspec.DecodeError:
        return InternalError("the node of the job has answered what this node does not know")
