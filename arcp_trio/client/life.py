"""From connect to leaving: the tasks behind a client, and how their ends become the program's."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import trio

from arcp_trio.client.calls import Call
from arcp_trio.client.delivery import Delivery
from arcp_trio.client.errors import ConnectionLost, afresh
from arcp_trio.client.link import Link
from arcp_trio.client.presence import Presence
from arcp_trio.client.room import Room
from arcp_trio.client.session import Session
from arcp_trio.client.supervisor import Supervisor
from arcp_trio.groups import unwrapped

CLOSE_SECONDS: Final = 5.0
"""How long leaving waits for event handlers to be done, and for the session's end."""
HURRIED_CLOSE_SECONDS: Final = 1.0
"""The same, where an exception leaves the block."""


class Life:
    """One client's."""

    def __init__(self, supervisor: Supervisor, delivery: Delivery, room: Room) -> None:
        self.room = room
        self._supervisor = supervisor
        self._delivery = delivery
        self._opened = trio.Event()
        self._block = trio.CancelScope()
        # Shielded: a program that is cancelled takes leave, too.
        self._supervision = trio.CancelScope(shield=True)
        self._ended = trio.Event()
        self._failure: Exception | None = None
        """Why calls cannot be made any more."""
        self._watchers = 0
        """Who waits for nothing but the end."""
        self._lost = False
        """That is because the session was lost."""
        self._raised: Exception | None = None
        """What the event handler raised."""
        self._told = False
        """The program knows of the failure: a call of its raised it."""

    @property
    def session(self) -> Session:
        """The session."""
        assert self._supervisor.session is not None
        return self._supervisor.session

    @property
    def link(self) -> Link | None:
        """The connection, where there is one."""
        return self._supervisor.link

    @property
    def presence(self) -> Presence:
        """Whether there is one."""
        return self._supervisor.presence

    async def call(self, call: Call) -> object:
        """Make a request and wait for its answer, on however many connections it takes."""
        self._check()
        session, link = self.session, self.link
        session.calls.add(call)  # first: an answer cannot come too early
        try:
            if link is not None:
                link.send_frame(session.calls.frame(call, session.id))
            with self.room.waiting():
                return await call.answer.wait()
        finally:
            session.calls.remove(call)

    async def over(self) -> None:
        """Wait for the end, and raise what it was unless the program has left."""
        self._watchers += 1
        try:
            await self._ended.wait()
        finally:
            self._watchers -= 1
        if self._lost:
            self._check()

    async def leave(self, seconds: float = CLOSE_SECONDS) -> None:
        """Close the session (§6.7), and see that everything that came is handed on.

        Any number of tasks may do so, and do so again: each returns when that is done.
        """
        deadline = trio.current_time() + seconds
        with trio.CancelScope(deadline=deadline):
            await self._say_goodbye()
        self._supervision.cancel()
        await self._ended.wait()
        if self._supervisor.session is not None:
            with trio.CancelScope(deadline=deadline):
                await self.session.closed.wait()

    @asynccontextmanager
    async def lived(self) -> AsyncGenerator[None, None]:
        """Connect, and stay connected for as long as the block lasts.

        What ends the block comes out of it as it is, and not in a group: what it raised, or else
        what went wrong behind it.
        """
        raised: BaseException | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._supervise, name="client supervisor")
            nursery.start_soon(self._deliver, name="client consumer")
            seconds = HURRIED_CLOSE_SECONDS
            try:
                await self._opened.wait()
                with self._block:
                    if self._failure is None:
                        yield
                        seconds = CLOSE_SECONDS
            except trio.Cancelled:
                raise
            except BaseException as exc:  # noqa: BLE001 - raised again below
                raised = exc
            finally:
                with trio.CancelScope(shield=True):
                    await self.leave(seconds)
                nursery.cancel_scope.cancel()
        lost = self._failure
        self._delivery.end()
        self._settle(ConnectionLost("the client is closed"))
        if raised is None:
            raised = self._raised or (None if self._told else lost)
        if raised is not None:
            raise raised

    # -- the tasks

    async def _supervise(self) -> None:
        try:
            with self._supervision:
                await self._supervisor.run(self._opened.set)
            self._told = True  # it is the program that leaves
            self._settle(ConnectionLost("the client is closed"))
        except Exception as exc:  # noqa: BLE001 - raised again, in the program
            self._fail(unwrapped(exc))
        self._ended.set()
        self.presence.end()
        self._opened.set()

    async def _deliver(self) -> None:
        try:
            await self._delivery.run()
        except Exception as exc:  # noqa: BLE001 - raised again, out of the block
            self._raised = unwrapped(exc)
            self._block.cancel()
        finally:
            self._delivery.end()

    def _fail(self, failure: Exception) -> None:
        """There is no session any more: tell the calls that wait, or else the block."""
        self._lost = True
        self._told = self.room.awaited or self._watchers > 0
        self._settle(failure)
        if not self._told:
            self._block.cancel()

    def _settle(self, failure: Exception) -> None:
        if self._failure is None:
            self._failure = failure
        if self._supervisor.session is not None:
            self._supervisor.session.lose(self._failure)

    def _check(self) -> None:
        if self._failure is not None:
            self._told = True
            raise afresh(self._failure)

    async def _say_goodbye(self) -> None:
        self._supervisor.leaving = True
        link = self.link
        if link is None:
            return
        if not self.session.closing:
            self.session.closing = True
            link.send("session.close", {"reason": "the client leaves"})
        with self.room.waiting():
            if not await self.session.closed.wait():
                link.send("session.bye", {"reason": "the client leaves"})
            link.finish()
            await self._ended.wait()
