"""What a client session with an agent can fail with."""

from __future__ import annotations

from typing import Final

from arcp_trio.wire.json import Json

INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
LOG_IN_FIRST: Final = -32000
NOT_FOUND: Final = -32002
CANCELLED: Final = -32800


class AcpFailure(Exception):  # noqa: N818 - the public name; each subclass says what happened
    """The base of what this package raises."""


class AgentError(AcpFailure):
    """The agent answered a request with an error: its code, its words, and what it adds."""

    def __init__(self, code: int, message: str, data: Json = None) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message
        self.data = data


class AgentGone(AcpFailure):
    """The agent has ended, or closed its output.

    `exit_status` is the exit code of its process, or minus the number of the signal that ended it;
    None if it is not known.
    """

    def __init__(self, message: str, exit_status: int | None = None) -> None:
        super().__init__(message)
        self.exit_status = exit_status


class NotAcp(AgentGone):
    """The program writes what is not ACP, more than can be passed over; nothing more is read."""


class LineTooLong(NotAcp):
    """The program has written a line that is longer than `most` bytes; nothing more is read."""

    def __init__(self, message: str, most: int) -> None:
        super().__init__(message)
        self.most = most


class TimedOut(AcpFailure):
    """The agent did not answer in time."""


class Busy(AcpFailure):
    """The session has an open turn, or the agent has it open already."""


class Unsupported(AcpFailure):
    """The agent does not offer what it is asked for."""


class VersionMismatch(AcpFailure):
    """The agent speaks another version of the protocol."""
