"""What the agent asks of its client: permission, files, terminals."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeVar

import trio
from attrs import frozen

from arcp_trio.acp.errors import CANCELLED, INTERNAL_ERROR
from arcp_trio.acp.jsonrpc import IncomingRequest, RequestId, error_line, result_line
from arcp_trio.acp.updates import ToolCall
from arcp_trio.wire.json import Json, JsonObject, is_list, is_object, object_in

if TYPE_CHECKING:
    from arcp_trio.acp.session import Session

R = TypeVar("R", bound="Request")


class Stream(enum.Enum):
    """The place in which requests are seen if no handler takes them."""

    STREAM = enum.auto()


STREAM: Final = Stream.STREAM

Handler: TypeAlias = Callable[[R], Awaitable[object]] | Literal[Stream.STREAM] | None
"""What takes requests of one kind: a function, the stream of the turn, or nothing."""


class Request:
    """Something that the agent asks for; the first answer counts."""

    def __init__(
        self,
        id_: RequestId,
        method: str,
        params: JsonObject,
        session: Session,
        send: Callable[[bytes], None],
    ) -> None:
        self.method: Final = method
        self.params: Final[dict[str, Json]] = params
        self.session: Final = session
        self.life: Final = trio.CancelScope()
        """The scope of the handler: cancelled when the agent no longer wants an answer."""
        self.taken_back = False
        """Whether the agent has said that it wants no answer."""
        self._id = id_
        self._send = send
        self._answered = False

    @property
    def answered(self) -> bool:
        """Whether the request has an answer, or needs one no longer."""
        return self._answered

    def answer(self, result: Json) -> None:
        """Answer with a result.

        Raises:
            ValueError: the result is not JSON.
        """
        self._settle(result_line(self._id, result))

    def fail(self, code: int, message: str) -> None:
        """Answer with an error."""
        self._settle(error_line(self._id, code, message))

    def _settle(self, line: bytes) -> None:
        if not self._answered:
            self._answered = True
            self._send(line)

    def give_up(self) -> None:
        """Answer for a program that will not."""
        self.fail(INTERNAL_ERROR, "the client has not answered the request")

    def withdraw(self) -> None:
        """End the handler, as the agent wants no answer."""
        self.fail(CANCELLED, "cancelled")
        self.life.cancel(reason="the agent no longer wants an answer")


@frozen
class PermissionOption:
    """One of the answers that the agent offers."""

    raw: dict[str, Json]

    @property
    def id(self) -> str:
        """The name by which the answer is given."""
        return self._text("optionId")

    @property
    def name(self) -> str:
        """The words for people."""
        return self._text("name")

    @property
    def kind(self) -> str:
        """Either of `allow_once`, `allow_always`, `reject_once` and `reject_always`."""
        return self._text("kind")

    def _text(self, key: str) -> str:
        text = self.raw.get(key)
        return text if isinstance(text, str) else ""


class PermissionRequest(Request):
    """The agent asks whether it may make a tool call."""

    @property
    def tool(self) -> ToolCall:
        """The call, as far as the agent tells of it; its id may be one that was never announced."""
        return ToolCall("tool_call_update", object_in(self.params.get("toolCall")))

    @property
    def options(self) -> list[PermissionOption]:
        """The answers to choose from."""
        options = self.params.get("options")
        return (
            [PermissionOption(each) for each in options if is_object(each)]
            if is_list(options)
            else []
        )

    def option(self, *kinds: str) -> PermissionOption | None:
        """Return an option of the first of these kinds that there is one of."""
        options = self.options
        return next((each for kind in kinds for each in options if each.kind == kind), None)

    def select(self, id_: str) -> None:
        """Answer with an option.

        Raises:
            ValueError: the agent does not offer it.
        """
        if all(each.id != id_ for each in self.options):
            raise ValueError(f"there is no option {id_!r}")
        self.answer({"outcome": {"outcome": "selected", "optionId": id_}})

    def allow_once(self) -> None:
        """Allow this one call; refuse it if the agent only offers to allow more than that."""
        self._choose("allow_once", "reject_once", "reject_always")

    def refuse(self) -> None:
        """Refuse this call; further ones only if there is no other way."""
        self._choose("reject_once", "reject_always")

    def cancel(self) -> None:
        """Answer that the question will not be decided."""
        self.answer({"outcome": {"outcome": "cancelled"}})

    def _choose(self, *kinds: str) -> None:
        option = self.option(*kinds)
        if option is None:
            self.cancel()
        else:
            self.select(option.id)

    def give_up(self) -> None:
        """Answer for a program that will not."""
        self.cancel()


class FileRequest(Request):
    """The agent asks to read or write a text file: `method` says which."""

    @property
    def path(self) -> str:
        """The path, exactly as the agent gives it."""
        path = self.params["path"]
        assert isinstance(path, str), "checked before the request is taken"
        return path


class TerminalRequest(Request):
    """The agent asks for a terminal, or for something of one: `method` says what."""


async def refuse(request: PermissionRequest) -> None:
    """Refuse every permission."""
    request.refuse()


async def allow_once(request: PermissionRequest) -> None:
    """Allow every call that the agent asks for, one at a time."""
    request.allow_once()


PERMISSION: Final = "session/request_permission"
READ_FILE: Final = "fs/read_text_file"
WRITE_FILE: Final = "fs/write_text_file"
_TERMINAL: Final = ("create", "output", "wait_for_exit", "kill", "release")

REQUESTS: Final[Mapping[str, type[Request]]] = {
    PERMISSION: PermissionRequest,
    READ_FILE: FileRequest,
    WRITE_FILE: FileRequest,
    **{f"terminal/{each}": TerminalRequest for each in _TERMINAL},
}


def fault_in(message: IncomingRequest) -> str | None:
    """Say what is wrong with a request of a known method, None if nothing is."""
    if message.params is None:
        return "the params are not an object"
    if REQUESTS[message.method] is FileRequest and not isinstance(message.params.get("path"), str):
        return "the path is not a string"
    return None


class OpenRequests:
    """The agent's requests that have no answer yet, bounded in number and in bytes."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._open: dict[RequestId, tuple[Request, int]] = {}

    def admit(self, id_: RequestId, request: Request, size: int) -> bool:
        """Keep a request until it is answered; return whether there is room for it.

        Raises:
            ValueError: an earlier request has this id, and no answer yet.
        """
        self._open = {key: each for key, each in self._open.items() if not each[0].answered}
        if id_ in self._open:
            raise ValueError("the id of a request that has no answer yet")
        held = sum(each for _, each in self._open.values())
        if len(self._open) >= self._most or (held and held + size > self._most_bytes):
            return False
        self._open[id_] = (request, size)
        return True

    def of(self, session_id: str) -> list[Request]:
        """Return those of one session."""
        return [each for each, _ in self._open.values() if each.session.id == session_id]

    def withdraw(self, id_: Json) -> None:
        """End a request that the agent wants no answer for; others are not known."""
        if isinstance(id_, str | int | None) and not isinstance(id_, bool) and id_ in self._open:
            request, _ = self._open.pop(id_)
            request.taken_back = True
            request.withdraw()

    def end(self) -> None:
        """End them all, as nobody waits for an answer."""
        for request, _ in self._open.values():
            request.withdraw()
        self._open.clear()
