"""A bounded HTTP GET, without redirects and compression."""

from __future__ import annotations

import ssl
from http import HTTPStatus
from typing import Final
from urllib.parse import SplitResult

import h11
import trio

_READ_BYTES: Final = 64 * 1024


async def get(url: SplitResult, tls: ssl.SSLContext | None, *, most_bytes: int) -> bytes:
    """Return the body of a GET of an http URL, or with `tls` of an https one, without a timeout.

    Raises:
        ValueError: the request failed, or its answer is larger than `most_bytes`.
    """
    assert url.hostname is not None
    try:
        stream: trio.abc.Stream = await trio.open_tcp_stream(
            url.hostname, url.port or (80 if tls is None else 443)
        )
        if tls is not None:
            # https_compatible, as servers close without close_notify.
            stream = trio.SSLStream(
                stream, tls, server_hostname=url.hostname, https_compatible=True
            )
        async with stream:
            return await _ask(stream, url, most_bytes)
    except (OSError, trio.BrokenResourceError, h11.RemoteProtocolError) as error:
        # Trio's error for a bad certificate says why in its cause.
        raise ValueError(str(error.__cause__ or error)) from error


async def _ask(stream: trio.abc.Stream, url: SplitResult, most_bytes: int) -> bytes:
    connection = h11.Connection(our_role=h11.CLIENT)
    request = h11.Request(
        method="GET",
        target=(url.path or "/") + (f"?{url.query}" if url.query else ""),
        headers=[("Host", url.netloc), ("Accept", "application/json"), ("Connection", "close")],
    )
    for event in (request, h11.EndOfMessage()):
        await stream.send_all(connection.send(event) or b"")
    content = bytearray()
    while True:
        match connection.next_event():
            case h11.NEED_DATA:
                connection.receive_data(bytes(await stream.receive_some(_READ_BYTES)))
            case h11.Response(status_code=status):
                _check(status)
            case h11.Data(data=data):
                content += data
                if len(content) > most_bytes:
                    raise ValueError(f"the answer is larger than {most_bytes} bytes")
            case h11.EndOfMessage():
                return bytes(content)
            case h11.ConnectionClosed():
                raise ValueError("there is no answer")
            case _:
                pass  # an informational response (1xx) before the final one


def _check(status: int) -> None:
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        raise ValueError("the answer is a redirect, which is not followed; use its target")
    if status != HTTPStatus.OK:
        raise ValueError(f"the answer is {status}")
