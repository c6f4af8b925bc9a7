"""Reading the head of an HTTP request; a body is never read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import attrs
import h11
import trio

from arcp_trio.front.origins import Host, parse_host

HEAD_BYTES: Final = 16 * 1024
"""The longest head that is read, more than browsers send with all their cookies."""

_SCHEMES: Final = ("http://", "https://", "ws://", "wss://")


class BadRequest(Exception):  # noqa: N818 - the name of its HTTP status
    """The peer sent something other than a valid request; `status` is the answer to it."""

    def __init__(
        self, status: int, message: str, headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers


class BadUpgrade(BadRequest):
    """The peer sent half an opening handshake of a WebSocket."""


@attrs.frozen(kw_only=True)
class Head:
    """The head of a request, as far as the front needs it."""

    method: str
    path: str
    """The path without the query, which may be a secret."""
    host: Host | None
    """The host that the client asks for; None from an HTTP/1.0 client that names none."""
    origin: str | None
    """The web page that makes the request, as a browser names it; None if not a browser."""
    upgrade_key: str | None
    """The key of a request for a WebSocket; None if the request is for something else."""
    if_none_match: str
    """The tags of the file that the client has kept; empty if it has kept no file."""
    rest: bytes
    """What was read after the head: the beginning of what follows."""


async def read_head(stream: trio.abc.Stream) -> Head | None:
    """Read a request up to the blank line after its head; None if the client closed before.

    Cancellation: what has been read is lost, so give the stream up.

    Raises:
        BadRequest: the request is not valid HTTP/1.1, or its head is too large.
    """
    # h11 checks its bound only while a head is incomplete, so it is given no more than that.
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES - 1)
    left = HEAD_BYTES
    try:
        while True:
            data = await stream.receive_some(left)
            connection.receive_data(bytes(data))
            left -= len(data)
            event = connection.next_event()
            if isinstance(event, h11.Request):
                return _head(event, connection.trailing_data[0])
            if event is not h11.NEED_DATA:
                return None
    except h11.RemoteProtocolError as error:
        raise BadRequest(error.error_status_hint, "This is not an HTTP request.") from error


def _head(request: h11.Request, rest: bytes) -> Head:
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
        raise BadRequest(400, "The Host header is malformed.")
    # There is no upgrade from HTTP/1.0 (RFC 9110 §7.8).
    upgrades = request.http_version > b"1.0" and "websocket" in _tokens(b"upgrade", headers)
    return Head(
        method=request.method.decode("latin-1"),
        path=path.partition("?")[0],
        host=host,
        origin=origins[0] if origins else None,
        upgrade_key=_upgrade_key(headers) if upgrades else None,
        if_none_match=", ".join(value for name, value in headers if name == b"if-none-match"),
        rest=rest,
    )


def _upgrade_key(headers: Sequence[tuple[bytes, str]]) -> str:
    """Check a client's part of the opening handshake (RFC 6455 §4.2.1), and return its key."""
    for name, value in headers:
        if name == b"transfer-encoding" or (name == b"content-length" and int(value)):
            raise BadRequest(400, "A request for a WebSocket has no body.")
        if (name == b"connection" or name.startswith(b"sec-websocket-")) and not value.isascii():
            raise BadRequest(400, f"{name.decode()} is not in ASCII.")
    if "upgrade" not in _tokens(b"connection", headers):
        raise BadUpgrade(400, "The header 'Connection: Upgrade' is missing.")
    if "13" not in _tokens(b"sec-websocket-version", headers):
        version = ("Sec-WebSocket-Version", "13")
        raise BadUpgrade(426, "Only version 13 of WebSockets is spoken here.", (version,))
    key = next((value for name, value in headers if name == b"sec-websocket-key"), "")
    if not key:
        raise BadUpgrade(400, "The header 'Sec-WebSocket-Key' is missing.")
    return key


def _split(target: str) -> tuple[str, str | None]:
    """Split a request target into its path and, if it is a URL, its authority.

    The authority of a URL takes precedence over the Host header (RFC 9112 §3.2.2).
    """
    lowered = target.lower()
    for scheme in _SCHEMES:
        if lowered.startswith(scheme):
            authority, slash, path = target[len(scheme) :].partition("/")
            return slash + path, authority
    return target, None


def _tokens(wanted: bytes, headers: Iterable[tuple[bytes, str]]) -> set[str]:
    """Return the words in all headers of a name, in lower case."""
    values = [value for name, value in headers if name == wanted]
    return {token.strip().lower() for value in values for token in value.split(",")}
