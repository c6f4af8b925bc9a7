"""What becomes of a connection: what it wants, whether it may, and who it is handed to."""

from __future__ import annotations

import logging
import math
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

import attrs
import trio

from arcp_trio.front import pages
from arcp_trio.front.origins import Origins
from arcp_trio.front.pages import Page
from arcp_trio.front.request import BadRequest, Head, read_head
from arcp_trio.front.waiting import Visitor, WaitingRoom
from arcp_trio.runtime.runtime import Runtime
from arcp_trio.transport import (
    HandshakeFailed,
    TransportClosed,
    accept,
    close_forcefully,
)

log = logging.getLogger(__name__)

#: Of what a stranger has said, what a line of the log repeats.
_QUOTED_CHARS: Final = 100


class _TurnedAway(Exception):  # noqa: N818 - not an error of ours
    """A client gets nothing, or a page that says why; `reason` is what that is counted as."""

    def __init__(self, reason: str, message: str, response: bytes = b"") -> None:
        super().__init__(message)
        self.reason = reason
        self.response = response


@attrs.frozen(kw_only=True)
class Caller:
    """Who has connected, and by which way."""

    peer: str
    """For logs."""
    private: bool
    """Nobody can read along."""
    loopback: bool = False
    """It has come to a loopback address, whatever else is listened on."""


@attrs.define(eq=False, kw_only=True)
class Door:
    """What the connections that come in by one listener have in common."""

    runtime: Runtime
    room: WaitingRoom
    origins: Origins = attrs.field(factory=Origins)
    ssl_context: Callable[[], ssl.SSLContext] | None = None

    async def receive(self, stream: trio.abc.Stream, caller: Caller) -> None:
        """Serve a connection, however it ends, and close it."""
        deadline = trio.current_time() + self.runtime.limits.handshake_seconds
        visitor = self.room.enter(partial(_hang_up, stream), deadline)
        try:
            with visitor.scope:
                try:
                    if self.ssl_context is not None:
                        stream = await _encrypt(stream, self.ssl_context())
                        caller = attrs.evolve(caller, private=True)
                    await self._serve(stream, caller, visitor)
                except _TurnedAway as away:
                    if not visitor.evicted:
                        self._failed(caller, away.reason, str(away))
                    if away.response:
                        await pages.send(stream, away.response)
            if visitor.evicted:
                self._failed(caller, "connections_before_handshake", "too many without a session")
            elif visitor.scope.cancelled_caught:
                self._failed(caller, "handshake_seconds", "no opening handshake in time")
        finally:
            self.room.let_in(visitor)
            await close_forcefully(stream)  # noqa: ASYNC102 - bounds itself

    def _failed(self, caller: Caller, reason: str, why: str) -> None:
        log.info(
            "connection turned away", extra={"peer": caller.peer, "reason": reason, "why": why}
        )
        self.runtime.connection_failed(reason)

    async def _serve(self, stream: trio.abc.Stream, caller: Caller, visitor: Visitor) -> None:
        head = await _read_head(stream)
        if head is None:
            return
        self._check(head, caller)
        page = pages.page_for(head, self.runtime)
        if page is not None:
            if head.upgrades:  # no browser that looks around, but a client that has gone astray
                where = f"a WebSocket at {head.path[:_QUOTED_CHARS]!r}"
                raise _TurnedAway("path", where, page.encode(head))
            await pages.send(stream, page.encode(head))
            return
        limits, deadline = self.runtime.limits, visitor.scope.deadline
        let_in = partial(self.room.let_in, visitor)
        try:
            async with accept(
                stream,
                received=head.received,
                max_bytes=limits.frame_bytes_in,
                first_bytes=limits.first_frame_bytes,
                peer=caller.peer,
                private=caller.private,
            ) as transport:
                visitor.scope.deadline = math.inf  # from here on, attending minds the deadline
                await self.runtime.attend(transport, deadline=deadline, welcomed=let_in)
        except HandshakeFailed as exc:
            raise _TurnedAway("websocket", str(exc)) from exc
        except TransportClosed as exc:
            log.info("connection ended", extra={"peer": caller.peer, "why": str(exc)})

    def _check(self, head: Head, caller: Caller) -> None:
        """Turn away who means somebody else, and web pages that nobody has allowed."""
        if pages.is_public(head):
            return
        encrypted = self.ssl_context is not None
        # Under a name that its certificate does not have, no browser gets as far as this with TLS.
        unproven = caller.loopback and not encrypted
        if not self.origins.admits_host(head.host, loopback=unproven):
            page = Page(403, "This Host is not served here; --allow-origin allows more.\n")
            name = head.host.name if head.host is not None else ""
            raise _TurnedAway("host", f"asks for the host {name}", page.encode(head))
        if not self.origins.admits_origin(head.origin, head.host, encrypted=encrypted):
            page = Page(403, "This Origin may not connect; --allow-origin allows it.\n")
            quoted = repr((head.origin or "")[:_QUOTED_CHARS])
            raise _TurnedAway("origin", f"from the web page {quoted}", page.encode(head))


async def _encrypt(stream: trio.abc.Stream, context: ssl.SSLContext) -> trio.abc.Stream:
    # What HTTP says about its own length makes the farewells of TLS superfluous.
    secure = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
    try:
        await secure.do_handshake()
    except trio.BrokenResourceError as exc:
        raise _TurnedAway("tls", f"no TLS handshake: {exc.__cause__ or exc}") from exc
    return secure


async def _read_head(stream: trio.abc.Stream) -> Head | None:
    try:
        return await read_head(stream)
    except BadRequest as exc:
        page = Page(exc.status, f"{exc}\n")
        raise _TurnedAway("request", str(exc), page.encode()) from exc
    except trio.BrokenResourceError as exc:
        if isinstance(exc.__cause__, ssl.SSLError):
            raise _TurnedAway("tls", f"no TLS any more: {exc.__cause__}") from exc
        return None  # gone


def _hang_up(stream: trio.abc.Stream) -> None:
    """End both directions, so that nothing waits any more, whoever does."""
    if isinstance(stream, trio.SocketStream):
        with suppress(OSError):  # gone already
            stream.socket.shutdown(socket.SHUT_RDWR)
