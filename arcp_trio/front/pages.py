"""What is answered to plain HTTP: the pages for those who look after a runtime, and refusals."""

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

#: How long a client may take to read its response and go, before it is closed by force.
DRAIN_SECONDS: Final = 1.0
_READ_BYTES: Final = 64 * 1024
_METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@attrs.frozen
class Page:
    """An answer."""

    status: int
    text: str
    headers: tuple[tuple[str, str], ...] = attrs.field(default=(), kw_only=True)
    type: str = attrs.field(default="text/plain; charset=utf-8", kw_only=True)

    def encode(self, request: Head | None = None) -> bytes:
        """Return the whole response; behind it the connection is closed."""
        body = self.text.encode()
        headers = (
            ("Date", formatdate(usegmt=True)),
            ("Content-Type", self.type),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
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
    """Whoever gets this can tell that the process is alive."""
    return Page(200, "alive\n")


def readyz(runtime: Runtime) -> Page:
    """Whether it takes work, and if not, why."""
    reason = runtime.ready()
    return Page(200, "ready\n") if reason is None else Page(503, f"{reason}\n")


def metrics(runtime: Runtime) -> Page:
    """Figures, for Prometheus."""
    return Page(200, runtime.exposition(), type=_METRICS_TYPE)


_PAGES: Final[dict[str, Callable[[Runtime], Page]]] = {
    "/healthz": healthz,
    "/readyz": readyz,
    "/metrics": metrics,
}


def is_public(head: Head) -> bool:
    """Whether everybody may ask: probes know addresses and no names."""
    return head.path not in (WEBSOCKET_PATH, "/metrics")


def page_for(head: Head, runtime: Runtime) -> Page | None:
    """Return the answer; None if a WebSocket is asked for in the place for it."""
    if head.path == WEBSOCKET_PATH:
        return _no_socket(head)
    page = _PAGES.get(head.path)
    if page is None:
        return Page(404, f"There is nothing here; the WebSocket is at {WEBSOCKET_PATH}.\n")
    if head.method not in ("GET", "HEAD"):
        return _not_allowed("GET, HEAD")
    return page(runtime)


def _no_socket(head: Head) -> Page | None:
    if head.method != "GET":
        return _not_allowed("GET")
    if head.upgrades:
        return None
    headers = (("Upgrade", "websocket"), ("Connection", "Upgrade"))
    return Page(426, "This is the place of a WebSocket.\n", headers=headers)


def _not_allowed(methods: str) -> Page:
    return Page(405, f"Use {methods}.\n", headers=(("Allow", methods),))


async def send(stream: trio.abc.Stream, response: bytes) -> None:
    """Send a response, and wait a little until the client has gone.

    Closing a socket with unread data resets it, and a reset can overtake the response.
    """
    with suppress(*GONE):
        await stream.send_all(response)
        # The length has told where the answer ends, so an end of the TLS itself is not missed.
        below: trio.abc.Stream = getattr(stream, "transport_stream", stream)
        with trio.move_on_after(DRAIN_SECONDS):
            if isinstance(below, trio.abc.HalfCloseableStream):
                await below.send_eof()
            while await below.receive_some(_READ_BYTES):
                pass
