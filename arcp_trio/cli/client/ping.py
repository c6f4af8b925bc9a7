"""`arcp-trio ping`: whether a runtime answers, and how fast (§6.4)."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import trio

from arcp_trio.cli.client.connecting import reach
from arcp_trio.cli.client.options import PingOptions
from arcp_trio.cli.client.output import Output, stdout
from arcp_trio.cli.client.runner import Interrupts, run_client
from arcp_trio.cli.errors import REFUSED, UNREACHABLE, CommandError
from arcp_trio.cli.text import safe_line
from arcp_trio.client import ConnectionFailed
from arcp_trio.client.dialing import Dialer
from arcp_trio.client.handshake import Greeting, greet, hello
from arcp_trio.transport import Transport, TransportClosed
from arcp_trio.wire import envelope
from arcp_trio.wire.errors import ArcpError
from arcp_trio.wire.features import Feature
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.json import JsonObject, dumps

_FEATURES: Final = (Feature.HEARTBEAT,)
_ANSWER_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 0.25
_FAREWELL_SECONDS: Final = 2.0


def run(given: Mapping[str, object]) -> int:
    """Ping and return the exit code."""
    options = PingOptions(**given)  # type: ignore[arg-type]  # the parser held each to its kind

    async def ping(interrupts: Interrupts) -> int:
        found = reach(options, os.environ)
        try:
            pings = _Pings(options.count, found.shown_url, stdout())
            await pings.run(found.dialer, found.token, interrupts)
        except (ConnectionFailed, ArcpError) as error:
            raise found.failure(error) from error
        except (TransportClosed, trio.TooSlowError) as error:
            raise CommandError(
                f"{found.shown_url} does not answer; look at what its log says",
                exit_code=UNREACHABLE,
            ) from error
        return 0

    return run_client(options, ping)


class _Pings:
    """Some pings in one session of their own."""

    def __init__(self, count: int, url: str, out: Output) -> None:
        self._count = count
        self._url = url
        self._out = out
        self._times: list[float] = []

    async def run(self, dialer: Dialer, token: str | None, interrupts: Interrupts) -> None:
        """Connect, ping as often as asked, and say what it came to.

        The session is closed in order, also if a signal ends it before.

        Raises:
            ConnectionFailed, ArcpError, TransportClosed, trio.TooSlowError: it came to nothing.
        """
        begun = trio.current_time()
        # One bound for connecting, lifted once that is done: the transport is a block around all.
        with trio.CancelScope(deadline=begun + _ANSWER_SECONDS) as connecting:
            async with dialer.open() as transport:
                greeting = await greet(transport, hello(token, _FEATURES), _FEATURES)
                connecting.deadline = math.inf
                try:
                    with interrupts.leaving():
                        await self._say(f"session opened in {_ms(trio.current_time() - begun)}")
                        await self._ping_all(transport, greeting)
                finally:
                    with trio.move_on_after(_FAREWELL_SECONDS, shield=True):
                        await _leave(transport, greeting)
        if connecting.cancelled_caught:
            raise trio.TooSlowError
        best, worst = min(self._times), max(self._times)
        mean = math.fsum(self._times) / len(self._times)
        await self._say(f"{_ms(best)} at best, {_ms(mean)} on average, {_ms(worst)} at worst")

    async def _ping_all(self, transport: Transport, greeting: Greeting) -> None:
        if Feature.HEARTBEAT not in greeting.features:
            raise CommandError(
                f"{self._url} is there, but answers no pings: it has no heartbeat",
                exit_code=REFUSED,
            )
        for number in range(self._count):
            await trio.sleep(_PAUSE_SECONDS if number else 0)
            begun = trio.current_time()
            with trio.fail_after(_ANSWER_SECONDS):
                await _ping(transport, greeting)
            self._times.append(trio.current_time() - begun)
            await self._say(f"answer from {self._url} in {_ms(self._times[-1])}")

    async def _say(self, text: str) -> None:
        await self._out.write(f"{safe_line(text)}\n")


async def _ping(transport: Transport, greeting: Greeting) -> None:
    nonce = new_id("p_")
    await _send(transport, greeting, "session.ping", {"nonce": nonce})
    while True:
        frame = envelope.decode(await transport.receive())
        if frame.type == "session.pong" and frame.payload.get("ping_nonce") == nonce:
            return
        if frame.type == "session.ping":
            await _send(
                transport, greeting, "session.pong", {"ping_nonce": frame.payload.get("nonce")}
            )


async def _leave(transport: Transport, greeting: Greeting) -> None:
    with suppress(TransportClosed):
        await _send(transport, greeting, "session.close", {"reason": "pinged"})
    await transport.close()


async def _send(transport: Transport, greeting: Greeting, kind: str, payload: JsonObject) -> None:
    frame = envelope.encode(kind, dumps(payload), session_id=greeting.session_id)
    await transport.send([frame])


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"
