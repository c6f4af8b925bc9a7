"""The way of an accepted connection: to a page, to a refusal, or as a WebSocket to the runtime."""

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
from arcp_trio.front.console import Console
from arcp_trio.front.origins import Origins
from arcp_trio.front.pages import Page
from arcp_trio.front.repeats import Repeats
from arcp_trio.front.request import BadRequest, BadUpgrade, Head, read_head
from arcp_trio.front.waiting import Visitor, WaitingRoom
from arcp_trio.runtime.runtime import Runtime
from arcp_trio.transport import HandshakeFailed, TransportClosed, accept, close_forcefully

log = logging.getLogger(__name__)

_QUOTED_CHARS: Final = 100
"""How much of a peer's text a line of the log repeats."""


class _TurnedAway(Exception):  # noqa: N818 - not an error of ours
    """A peer is refused. `reason` is the word under which that is counted."""

    def __init__(self, reason: str, message: str, response: bytes = b"") -> None:
        super().__init__(message)
        self.reason = reason
        self.response = response


@attrs.frozen(kw_only=True)
class Caller:
    """The peer of a connection, and the way it came."""

    peer: str
    """Its address, for logs."""
    private: bool
    """Whether the connection is known to be encrypted, or to stay within the machine."""
    loopback: bool = False
    """Whether it connected to a loopback address, whatever else the listener is bound to."""


@attrs.define(eq=False, kw_only=True)
class Door:
    """The front for the connections of one listener."""

    runtime: Runtime
    room: WaitingRoom
    origins: Origins = attrs.field(factory=Origins)
    console: Console | None = None
    ssl_context: Callable[[], ssl.SSLContext] | None = None
    failures: Repeats = attrs.field(factory=lambda: Repeats(log, "connection turned away"))

    async def receive(self, stream: trio.abc.Stream, caller: Caller) -> None:
        """Serve a connection until it ends, and close it."""
        deadline = trio.current_time() + self.runtime.limits.handshake_seconds
        visitor = self.room.enter(caller.peer, partial(_hang_up, stream), deadline)
        try:
            with visitor.scope:
                try:
                    if self.ssl_context is not None:
                        stream = await _encrypt(stream, self.ssl_context())
                        caller = attrs.evolve(caller, private=True)
                    await self._serve(stream, caller, visitor)
                except _TurnedAway as away:
                    if not visitor.evicted:
                        await self._refuse(stream, caller, visitor, away)
            if visitor.answered:
                pass  # an end at this point is not counted as another failure
            elif visitor.evicted:
                self._failed(caller, "connections_before_handshake", "too many without a session")
            elif visitor.scope.cancelled_caught:
                self._failed(caller, "handshake_seconds", "no opening handshake in time")
        finally:
            self.room.leave(visitor)
            await close_forcefully(stream)  # noqa: ASYNC102 - bounds itself

    async def _refuse(
        self, stream: trio.abc.Stream, caller: Caller, visitor: Visitor, away: _TurnedAway
    ) -> None:
        visitor.answered = True
        self._failed(caller, away.reason, str(away))
        if away.response:
            await pages.send(stream, away.response)
            await pages.drain(stream)

    def _failed(self, caller: Caller, reason: str, why: str) -> None:
        self.failures.tell(reason, peer=caller.peer, why=why)
        self.runtime.connection_failed(reason)

    async def _serve(self, stream: trio.abc.Stream, caller: Caller, visitor: Visitor) -> None:
        head = await _read_head(stream)
        if head is None:
            return
        page = None if self.console is None else self.console.page_for(head)
        if page is not None or not pages.is_public(head):
            self._check(head, caller)
        page = page or pages.page_for(head, self.runtime)
        if page is None:
            await self._attend(stream, head, caller, visitor)
        elif head.upgrade_key is not None:  # most likely a client with a wrong URL
            where = f"a WebSocket at {head.path[:_QUOTED_CHARS]!r}"
            raise _TurnedAway("path", where, page.encode(head))
        else:
            await pages.send(stream, page.encode(head))
            visitor.answered = True
            await pages.drain(stream)

    async def _attend(
        self, stream: trio.abc.Stream, head: Head, caller: Caller, visitor: Visitor
    ) -> None:
        """Open the WebSocket, and have the runtime attend to it."""
        assert head.upgrade_key is not None, "without one there is a page"
        limits, deadline = self.runtime.limits, visitor.scope.deadline
        welcomed = partial(self.room.leave, visitor)
        try:
            async with accept(
                stream,
                key=head.upgrade_key,
                received=head.rest,
                max_bytes=limits.frame_bytes_in,
                first_bytes=limits.first_frame_bytes,
                peer=caller.peer,
                private=caller.private,
            ) as transport:
                visitor.scope.deadline = math.inf  # from here on the runtime holds the deadline
                await self.runtime.attend(transport, deadline=deadline, welcomed=welcomed)
        except HandshakeFailed as error:
            raise _TurnedAway("websocket", str(error)) from error
        except TransportClosed as error:
            log.info("connection ended", extra={"peer": caller.peer, "why": str(error)})

    def _check(self, head: Head, caller: Caller) -> None:
        """Turn away requests for another Host, and web pages whose Origin is not allowed."""
        encrypted = self.ssl_context is not None
        # With TLS a browser has checked the name against the certificate already.
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
    # HTTP says itself where a message ends, so a missing close_notify hides nothing.
    secure = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
    try:
        await secure.do_handshake()
    except trio.BrokenResourceError as error:
        raise _TurnedAway("tls", f"no TLS handshake: {error.__cause__ or error}") from error
    return secure


async def _read_head(stream: trio.abc.Stream) -> Head | None:
    """Read the request; None if the client closed the connection."""
    try:
        return await read_head(stream)
    except BadRequest as error:
        reason = "websocket" if isinstance(error, BadUpgrade) else "request"
        page = Page(error.status, f"{error}\n", headers=error.headers)
        raise _TurnedAway(reason, str(error), page.encode()) from error
    except trio.BrokenResourceError as error:
        if isinstance(error.__cause__, ssl.SSLError):
            raise _TurnedAway("tls", f"TLS broke off: {error.__cause__}") from error
        return None


def _hang_up(stream: trio.abc.Stream) -> None:
    """Shut both directions of a socket down, so that no task waits for the peer any longer."""
    if isinstance(stream, trio.SocketStream):
        with suppress(OSError):  # the peer was faster
            stream.socket.shutdown(socket.SHUT_RDWR)
