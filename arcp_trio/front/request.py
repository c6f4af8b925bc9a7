"""The head of an HTTP request, which is all of it that is ever read here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs
import h11
import trio

from arcp_trio.front.origins import Host, parse_host

#: Larger than what browsers send with all their cookies.
HEAD_BYTES: Final = 16 * 1024

_SCHEMES: Final = ("http://", "https://", "ws://", "wss://")


class BadRequest(Exception):  # noqa: N818 - the name of its HTTP status
    """What came is no request that could be answered; `status` is the answer all the same."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@attrs.frozen(kw_only=True)
class Head:
    """What a client asks for."""

    method: str
    path: str
    """Without the query, which may be a secret."""
    host: Host | None
    """Whom it takes this for; None from a client older than HTTP/1.1 that does not say."""
    origin: str | None
    """The web page that asks, as a browser names it; None from everything else."""
    upgrades: bool
    """Whether it asks for a WebSocket."""
    received: bytes
    """Everything read so far: the head, and perhaps more."""


async def read_head(stream: trio.abc.Stream) -> Head | None:
    """Read a request up to the blank line behind its head; None if the client went before.

    Cancellation: what has been read is lost, so bound it and give the stream up.

    Raises:
        BadRequest: it is not HTTP, or too large.
    """
    # h11 minds its bound only as long as a head is not whole, so it is given no more than that.
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES - 1)
    received = bytearray()
    try:
        while True:
            data = await stream.receive_some(HEAD_BYTES - len(received))
            connection.receive_data(bytes(data))
            received += data
            event = connection.next_event()
            if isinstance(event, h11.Request):
                return _head(event, bytes(received))
            if event is not h11.NEED_DATA:
                return None
    except h11.RemoteProtocolError as error:
        raise BadRequest(error.error_status_hint, "This is not an HTTP request.") from error


def _head(request: h11.Request, received: bytes) -> Head:
    if not request.http_version.startswith(b"1."):
        raise BadRequest(505, "Only HTTP/1.1 is spoken here.")
    headers = [(name, value.decode("latin-1")) for name, value in request.headers]
    origins = [value for name, value in headers if name == b"origin"]
    if len(origins) > 1:
        raise BadRequest(400, "There is more than one Origin.")
    path, authority = _split(request.target.decode("latin-1"))
    if authority is None:
        authority = next((value for name, value in headers if name == b"host"), None)
    host = None if authority is None else parse_host(authority)
    if authority is not None and host is None:
        raise BadRequest(400, "The Host is not one.")
    # There is no upgrade from HTTP/1.0 (RFC 9110 §7.8).
    upgrades = request.http_version > b"1.0" and "websocket" in _tokens(
        value for name, value in headers if name == b"upgrade"
    )
    if upgrades:
        _check_upgrade(headers)
    return Head(
        method=request.method.decode("latin-1"),
        path=path.partition("?")[0],
        host=host,
        origin=origins[0] if origins else None,
        upgrades=upgrades,
        received=received,
    )


def _check_upgrade(headers: Iterable[tuple[bytes, str]]) -> None:
    """Refuse what the WebSocket library does not answer, or takes for frames."""
    for name, value in headers:
        if name == b"transfer-encoding" or (name == b"content-length" and int(value)):
            raise BadRequest(400, "A request for a WebSocket has no body.")
        if (name == b"connection" or name.startswith(b"sec-websocket-")) and not value.isascii():
            raise BadRequest(400, f"{name.decode()} is not in ASCII.")


def _split(target: str) -> tuple[str, str | None]:
    """Take a target apart: a whole URL names the host too, and outdoes the header (RFC 9112)."""
    lowered = target.lower()
    for scheme in _SCHEMES:
        if lowered.startswith(scheme):
            authority, slash, path = target[len(scheme) :].partition("/")
            return slash + path, authority
    return target, None


def _tokens(values: Iterable[str]) -> set[str]:
    return {token.strip().lower() for value in values for token in value.split(",")}
