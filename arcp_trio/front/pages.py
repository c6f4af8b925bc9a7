"""The answers to plain HTTP requests: pages for operators, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from email.utils import formatdate
from http import HTTPStatus
from typing import Final

import attrs
import trio

from arcp_trio.addresses import WEBSOCKET_PATH
from arcp_trio.front.request import Head
from arcp_trio.runtime.runtime import Runtime
from arcp_trio.transport.base import GONE

DRAIN_SECONDS: Final = 1.0
"""How long a client may take to read its response and close, before it is closed by force."""
_READ_BYTES: Final = 64 * 1024
_METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@attrs.frozen
class Page:
    """An HTTP response."""

    status: int
    text: str
    headers: tuple[tuple[str, str], ...] = attrs.field(default=(), kw_only=True)
    type: str = attrs.field(default="text/plain; charset=utf-8", kw_only=True)
    cache: str = attrs.field(default="no-store", kw_only=True)
    """How long it may be kept, in the words of `Cache-Control`."""

    def encode(self, request: Head | None = None) -> bytes:
        """Return the whole response, without its body if the request is a HEAD."""
        body = self.text.encode()
        headers = (
            ("Date", formatdate(usegmt=True)),
            ("Content-Type", self.type),
            ("Content-Length", str(len(body))),
            ("Cache-Control", self.cache),
            ("Connection", "close"),
            *self.headers,
        )
        lines = [
            f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}",
            *(f"{name}: {value}" for name, value in headers),
        ]
        head = "\r\n".join(lines).encode() + b"\r\n\r\n"
        return head if request is not None and request.method == "HEAD" else head + body


def healthz(_runtime: Runtime) -> Page:
    """Answer that the process is alive."""
    return Page(200, "alive\n")


def readyz(runtime: Runtime) -> Page:
    """Answer whether the runtime takes work, and if not, why."""
    reason = runtime.ready()
    return Page(200, "ready\n") if reason is None else Page(503, f"{reason}\n")


def metrics(runtime: Runtime) -> Page:
    """Answer with the metrics, as Prometheus reads them."""
    return Page(200, runtime.exposition(), type=_METRICS_TYPE)


_PAGES: Final[dict[str, Callable[[Runtime], Page]]] = {
    "/healthz": healthz,
    "/readyz": readyz,
    "/metrics": metrics,
}


def is_public(head: Head) -> bool:
    """Return whether a page is for all Hosts and Origins: probes know an address and no name."""
    return head.path not in (WEBSOCKET_PATH, "/metrics")


def page_for(head: Head, runtime: Runtime) -> Page | None:
    """Return the page for a request; None if it asks for a WebSocket at the right path."""
    if head.path == WEBSOCKET_PATH:
        return _no_socket(head)
    page = _PAGES.get(head.path)
    if page is None:
        return Page(404, f"There is nothing here; the WebSocket is at {WEBSOCKET_PATH}.\n")
    if head.method not in ("GET", "HEAD"):
        return not_allowed("GET, HEAD")
    return page(runtime)


def _no_socket(head: Head) -> Page | None:
    if head.method != "GET":
        return not_allowed("GET")
    if head.upgrade_key is not None:
        return None
    headers = (("Upgrade", "websocket"), ("Connection", "Upgrade"))
    return Page(426, "This is the address of a WebSocket.\n", headers=headers)


def not_allowed(methods: str) -> Page:
    """Answer that only these methods are possible here."""
    return Page(405, f"Use {methods}.\n", headers=(("Allow", methods),))


async def send(stream: trio.abc.Stream, response: bytes) -> None:
    """Send a response, unless the client has closed the connection."""
    with suppress(*GONE):
        await stream.send_all(response)


async def drain(stream: trio.abc.Stream) -> None:
    """Say that nothing follows, and wait up to `DRAIN_SECONDS` for the client to close.

    Closing a socket with unread data resets it, and a reset can overtake the response.
    """
    # Content-Length has said where the response ends, so no close_notify of TLS is needed.
    below: trio.abc.Stream = getattr(stream, "transport_stream", stream)
    with suppress(*GONE), trio.move_on_after(DRAIN_SECONDS):
        if isinstance(below, trio.abc.HalfCloseableStream):
            await below.send_eof()
        while await below.receive_some(_READ_BYTES):
            pass
