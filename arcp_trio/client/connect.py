"""`connect`: a session with a runtime, as if the network never failed."""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager

from arcp_trio.client.assembly import MAX_RESULT_BYTES
from arcp_trio.client.client import Client
from arcp_trio.client.delivery import Delivery
from arcp_trio.client.dialing import Target, dialer
from arcp_trio.client.events import EventHandler
from arcp_trio.client.lifecycle import Lifecycle
from arcp_trio.client.supervisor import Supervisor
from arcp_trio.client.unread import UnreadEvents
from arcp_trio.under_trio import need_trio
from arcp_trio.wire.features import CLIENT_FEATURES


@asynccontextmanager
async def connect(
    target: Target,
    *,
    token: str | None = None,
    on_event: EventHandler | None = None,
    features: Iterable[str] = CLIENT_FEATURES,
    ssl_context: ssl.SSLContext | None = None,
    reconnect_seconds: float | None = None,
    max_result_bytes: int = MAX_RESULT_BYTES,
    now: Callable[[], float] = time.time,
) -> AsyncGenerator[Client, None]:
    """Open a session with a runtime, for as long as the block lasts.

    When the connection is lost, the client opens another one and resumes the session: pending calls
    go on, and no event is missing or repeated. Leaving the block closes the session; its jobs go
    on.

    Args:
        target: a `ws://` or `wss://` URL, or `unix:` and the path of a socket; several of them, as
            a list or with commas, such as the nodes of a cluster: they are tried in turn; the
            command of a runtime that speaks on its standard input and output, as a list; an open
            stream; or an async function that opens a stream, called for each connection. The client
            closes the streams.
        token: the bearer token that authenticates the client (§6.1).
        on_event: called with each event of each job, one at a time, in order. It may itself make
            calls of the client. An exception that it raises ends the block.
        features: the features to offer (§6.2).
        ssl_context: for `wss://`, instead of the system's default.
        reconnect_seconds: for how long to try to reconnect after a loss, 0 for not at all; by
            default for as long as the session can be resumed.
        max_result_bytes: the largest streamed result; a larger one fails.
        now: returns the time of day, in seconds since 1970.

    Raises:
        ConnectionFailed: the connection cannot be opened; a subclass says why. The block raises it,
            too, if the session is lost while no call is waiting that could raise it.
        ArcpError: the runtime refused the session, with the class of its code.
        ResumeWindowExpired: the connection was lost for longer than the session can be resumed.
        RuntimeError: the program does not run under Trio.
    """
    need_trio("arcp_trio.connect")
    unread = UnreadEvents(handled=on_event is not None)
    delivery = Delivery(on_event, unread)
    supervisor = Supervisor(
        dialer(target, ssl_context),
        token=token,
        features=features,
        delivery=delivery,
        unread=unread,
        max_result_bytes=max_result_bytes,
        reconnect_seconds=reconnect_seconds,
        now=now,
    )
    lifecycle = Lifecycle(supervisor, delivery, unread)
    async with lifecycle.running() as session:
        yield Client(session, lifecycle, now)
