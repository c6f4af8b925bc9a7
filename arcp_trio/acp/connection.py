"""JSON-RPC over a transport, in both directions; one task reads, another one writes.

This module knows nothing of agents and clients: either side could use it.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

import trio

from arcp_trio.acp.errors import AgentGone, LineTooLong, NotAcp, TimedOut
from arcp_trio.acp.jsonrpc import (
    IncomingAnswer,
    IncomingRequest,
    Message,
    Notification,
    notification_line,
    parse,
    request_line,
)
from arcp_trio.acp.limits import Limits
from arcp_trio.acp.sent_request import Deliver, SentRequest, settle
from arcp_trio.transport import MessageTooBig, TransportClosed
from arcp_trio.transport.stdio import LineTransport
from arcp_trio.wire.errors import clip
from arcp_trio.wire.json import JsonLike, JsonValue

log = logging.getLogger(__name__)

LARGE_LINE: Final = 1024 * 1024
"""A larger line is read in a thread, as it takes some hundredths of a second."""
_WRITE_BYTES: Final = 256 * 1024
"""About as much is given to one write."""


_limiter: Final = trio.lowlevel.RunVar[trio.CapacityLimiter]("large lines of ACP agents")


def _one_at_a_time() -> trio.CapacityLimiter:
    """Return the limiter of all threads that read lines, which slow each other and the loop."""
    try:
        return _limiter.get()
    except LookupError:
        limiter = trio.CapacityLimiter(1)
        _limiter.set(limiter)
        return limiter


class Receiver(Protocol):
    """Takes what the peer sends; the next line is read when a call has returned."""

    async def take_notification(self, message: Notification, size: int) -> None:
        """Take a notification, of a line of that size."""
        ...

    async def take_request(self, message: IncomingRequest, size: int) -> None:
        """Take a request, or raise `ValueError` if it is not one that can be answered."""
        ...

    def end(self) -> None:
        """Nothing more will come."""
        ...


class Peer(Protocol):
    """The program at the other end, apart from what it says."""

    @property
    def name(self) -> str:
        """The program's name, for messages."""
        ...

    async def exited(self) -> None:
        """Wait until the program has exited."""
        ...

    async def explain(self) -> AgentGone:
        """Say how the program has ended, now that its output has."""
        ...


class Connection:
    """One JSON-RPC connection."""

    def __init__(
        self, transport: LineTransport, peer: Peer, receiver: Receiver, limits: Limits
    ) -> None:
        self.over: AgentGone | None = None
        """Why nothing more comes, once that is so."""
        self._transport = transport
        self._peer = peer
        self._receiver = receiver
        self._limits = limits
        self._sent: dict[int, SentRequest] = {}
        self._next_id = 0
        self._bad_lines = 0
        self._reading = trio.CancelScope()
        self._patience = math.inf
        """For how long the reader waits for the next line."""
        self._reason: AgentGone | None = None
        """Why this side ends the connection."""
        self._outgoing: deque[bytes] = deque()
        self._unsent = 0
        """The bytes of what waits, and of what is being written."""
        self._writable = True
        self._changed = trio.lowlevel.ParkingLot()

    @property
    def arrivals(self) -> int:
        """The number of the read that brought the end of the line being taken."""
        return self._transport.arrivals

    async def run(self) -> None:
        """Read and write until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read_all, name="ACP reader")
            nursery.start_soon(self._write_all, name="ACP writer")
            await self._peer.exited()
            # Another process may hold the output open. What the program has said is still read.
            self._hurry(self._limits.leave_seconds)

    # -- sending

    def request(self, method: str, params: JsonLike, deliver: Deliver = settle) -> SentRequest:
        """Send a request.

        Args:
            deliver: called by the reader when it meets the answer, before it takes the next line;
                sets `settled` at once or later.
        """
        if self.over is not None:
            raise self.over
        line = request_line(self._next_id, method, params)
        sent = SentRequest(self._next_id, method, deliver)
        self._next_id += 1
        self._sent[sent.id] = sent
        self.send(line)
        return sent

    def notify(self, method: str, params: JsonLike) -> None:
        """Send a notification."""
        self.send(notification_line(method, params))

    def send(self, line: bytes) -> None:
        """Have a line written; lost if the peer is gone."""
        if self.over is not None or not self._writable:
            return
        if self._unsent + len(line) > self._limits.unsent_bytes:
            self._writable = False
            self._reason = AgentGone(
                f"{self._peer.name} does not read what it is sent: {self._unsent} bytes wait"
            )
            self._hurry(0)
            return
        self._outgoing.append(line)
        self._unsent += len(line)
        self._changed.unpark_all()

    async def flush(self) -> None:
        """Wait until everything is written, or nothing can be."""
        while self._unsent and self._writable and self.over is None:
            await self._changed.park()

    # -- answers

    async def wait(
        self, sent: SentRequest, seconds: float, heard: Callable[[], float] | None = None
    ) -> JsonValue:
        """Return the result of a request.

        Cancellation: tells the peer that the answer is no longer wanted.

        Args:
            seconds: for how long to wait for the answer to arrive.
            heard: the time of the last sign of life, which the seconds are counted from.

        Raises:
            AgentError: the peer has answered with an error.
            AgentGone: the peer has ended.
            TimedOut: no answer has come in time.
        """
        begun = trio.current_time()
        try:
            while not sent.arrived.is_set():
                deadline = (heard() if heard else begun) + seconds
                if deadline <= trio.current_time():
                    raise TimedOut(f"{self._peer.name} has not answered {sent.method} in time")
                with trio.CancelScope(deadline=deadline):
                    await sent.arrived.wait()
            await sent.settled.wait()
        finally:
            if self._sent.pop(sent.id, None) is not None:
                self.notify("$/cancel_request", {"requestId": sent.id})
        return sent.result()

    # -- reading

    async def _read_all(self) -> None:
        try:
            while True:
                line = await self._receive()
                try:
                    await self._take(line)
                except ValueError as error:
                    self._pass_over(line, error)
        except MessageTooBig as error:
            most = self._limits.line_bytes
            await self._end(LineTooLong(f"{self._peer.name} has sent {error}", most))
        except NotAcp as failure:
            await self._end(failure)
        except TransportClosed:
            await self._end(self._reason or await self._peer.explain())

    async def _receive(self) -> str | bytes:
        with trio.CancelScope(deadline=trio.current_time() + self._patience) as self._reading:
            return await self._transport.receive()
        raise TransportClosed

    def _hurry(self, seconds: float) -> None:
        """Have the reader end when nothing has come for some seconds."""
        self._patience = seconds
        self._reading.deadline = trio.current_time() + seconds

    async def _take(self, line: str | bytes) -> None:
        message = await self._parsed(line)
        # Most lines are ASCII, and need not be encoded to tell their size.
        size = len(line if isinstance(line, bytes) or line.isascii() else line.encode())
        match message:
            case Notification():
                await self._receiver.take_notification(message, size)
            case IncomingRequest():
                await self._receiver.take_request(message, size)
            case IncomingAnswer():
                await self._take_answer(message)

    async def _parsed(self, line: str | bytes) -> Message:
        bounds = self._limits.depth, self._limits.values
        if len(line) <= LARGE_LINE:
            return parse(line, *bounds)
        # The loop goes on meanwhile; the next line waits, and so do large lines of other agents.
        return await trio.to_thread.run_sync(
            parse, line, *bounds, abandon_on_cancel=True, limiter=_one_at_a_time()
        )

    async def _take_answer(self, answer: IncomingAnswer) -> None:
        if not isinstance(answer.id, int):
            raise ValueError("an answer to no request")  # noqa: TRY004 - what is wrong is a value
        sent = self._sent.pop(answer.id, None)
        if sent is not None:
            sent.meet(answer)
            await sent.deliver(sent)
        elif not 0 <= answer.id < self._next_id:
            raise ValueError("an answer to no request")
        # Otherwise the answer is late, or has been given before.

    def _pass_over(self, line: str | bytes, error: ValueError) -> None:
        self._bad_lines += 1
        facts = {"agent": self._peer.name, "why": clip(str(error)), "line": clip(repr(line[:200]))}
        log.debug("line is not ACP", extra=facts)
        if self._bad_lines > self._limits.bad_lines:
            raise NotAcp(
                f"{self._peer.name} does not speak ACP: more than {self._limits.bad_lines} lines "
                f"of its output are something else, the last one {facts['line']}"
            )

    async def _end(self, failure: AgentGone) -> None:
        self.over = failure
        self._changed.unpark_all()
        self._receiver.end()
        while self._sent:
            _, sent = self._sent.popitem()
            sent.lose(failure)
            await sent.deliver(sent)

    # -- writing

    async def _write_all(self) -> None:
        try:
            while True:
                while not self._outgoing:
                    await self._changed.park()
                lines = [self._outgoing.popleft()]
                size = len(lines[0])
                while self._outgoing and size < _WRITE_BYTES:
                    size += len(self._outgoing[0])
                    lines.append(self._outgoing.popleft())
                await self._transport.send(lines)
                self._unsent -= size
                self._changed.unpark_all()
        except TransportClosed:
            self._writable = False
            self._outgoing.clear()
            self._changed.unpark_all()
            # The peer may have said something before it closed its input.
            self._hurry(self._limits.leave_seconds)
