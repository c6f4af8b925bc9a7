"""`arcp-trio ping`: whether a runtime answers, and how fast (§6.4)."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from typing import Final

import trio

from arcp_trio import ConnectionFailed
from arcp_trio.cli.client.connecting import Destination, find_runtime
from arcp_trio.cli.client.options import PingOptions
from arcp_trio.cli.client.output import Output, json_line, stdout
from arcp_trio.cli.client.runner import run_client
from arcp_trio.cli.client.signals import Interrupted, Interrupts
from arcp_trio.cli.errors import CommandError, ExitCode
from arcp_trio.cli.text import safe_line
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


def run(options: PingOptions) -> int:
    """Ping the runtime, and return the exit code."""
    return run_client(_ping_runtime, options)


async def _ping_runtime(options: PingOptions, interrupts: Interrupts) -> int:
    runtime = find_runtime(options, os.environ)
    try:
        await _Pings(options, runtime, stdout()).run(interrupts)
    except (ConnectionFailed, ArcpError) as error:
        raise runtime.failure(error) from error
    except (TransportClosed, trio.TooSlowError) as error:
        raise CommandError(
            f"{runtime.shown_url} does not answer; look at its log",
            exit_code=ExitCode.UNREACHABLE,
        ) from error
    return ExitCode.SUCCESS


class _Pings:
    """Several pings in one session."""

    def __init__(self, options: PingOptions, runtime: Destination, out: Output) -> None:
        self._options = options
        self._runtime = runtime
        self._out = out
        self._times: list[float] = []

    async def run(self, interrupts: Interrupts) -> None:
        """Connect, ping, and write how long it took; a signal ends the session in order, too.

        Raises:
            ConnectionFailed, ArcpError, TransportClosed, trio.TooSlowError: there is no session,
                or an answer does not come.
        """
        begun = trio.current_time()
        # The deadline is for connecting, and lifted after that: the connection is open only inside
        # of the block.
        with trio.CancelScope(deadline=begun + _ANSWER_SECONDS) as connecting:
            async with self._runtime.dialer.open() as transport:
                opening = hello(self._runtime.token, _FEATURES)
                greeting = await greet(transport, opening, _FEATURES)
                connecting.deadline = math.inf
                try:
                    with interrupts.leaving():
                        opened = trio.current_time() - begun
                        await self._write(f"session opened in {_ms(opened)} ms", opened=opened)
                        await self._ping_all(transport, greeting)
                except Interrupted:
                    pass  # what was measured until then is summed up
                finally:
                    with trio.move_on_after(_FAREWELL_SECONDS, shield=True):
                        await _leave(transport, greeting)
        if connecting.cancelled_caught:
            raise trio.TooSlowError
        if self._times:
            await self._sum_up()

    async def _sum_up(self) -> None:
        best, worst = min(self._times), max(self._times)
        mean = math.fsum(self._times) / len(self._times)
        await self._write(
            f"{_ms(best)} ms at best, {_ms(mean)} ms on average, {_ms(worst)} ms at worst",
            best=best,
            mean=mean,
            worst=worst,
        )

    async def _ping_all(self, transport: Transport, greeting: Greeting) -> None:
        url = self._runtime.shown_url
        if Feature.HEARTBEAT not in greeting.features:
            raise CommandError(
                f"{url} can be reached, but answers no pings: it does not have the feature"
                f" {Feature.HEARTBEAT}",
                exit_code=ExitCode.FAILED,
            )
        for number in range(self._options.count):
            await trio.sleep(_PAUSE_SECONDS if number else 0)
            begun = trio.current_time()
            with trio.fail_after(_ANSWER_SECONDS):
                await _ping(transport, greeting)
            self._times.append(answered := trio.current_time() - begun)
            await self._write(f"answer from {url} in {_ms(answered)} ms", answer=answered)

    async def _write(self, text: str, **seconds: float) -> None:
        """Write what was measured: in words or, for programs, in milliseconds by name."""
        if self._options.json:
            figures = {f"{name}_ms": float(_ms(value)) for name, value in seconds.items()}
            await self._out.write(json_line(figures))
        else:
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
    return f"{seconds * 1000:.1f}"
