"""From connecting to leaving: a client's two tasks, and how the end of each reaches the program."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import trio

from arcp_trio.client.delivery import Delivery
from arcp_trio.client.errors import ConnectionLost
from arcp_trio.client.session import ClientSession, SessionEnd
from arcp_trio.client.supervisor import Supervisor
from arcp_trio.client.unread import UnreadEvents
from arcp_trio.groups import unwrapped

CLOSE_SECONDS: Final = 5.0
"""How long leaving waits for event handlers, and for the runtime to close the session."""
HURRIED_CLOSE_SECONDS: Final = 1.0
"""How long leaving waits when an exception leaves the block."""


class Lifecycle:
    """Runs the supervisor and the delivery of one client."""

    def __init__(self, supervisor: Supervisor, delivery: Delivery, unread: UnreadEvents) -> None:
        self._supervisor = supervisor
        self._delivery = delivery
        self._unread = unread
        self._block = trio.CancelScope()
        # Shielded: a program that is cancelled closes its session, too.
        self._supervision = trio.CancelScope(shield=True)
        self._end: SessionEnd | None = None
        self._ended = trio.Event()
        """Set when the session has ended: there will be no other connection."""
        self._lost = False
        """Whether the session ended although the program did not close it."""
        self._watchers = 0
        """How many tasks wait for the session's end alone."""
        self._handling = trio.CancelScope()
        """The scope of the handlers of questions."""
        self._raised: Exception | None = None
        """The exception that a handler, of events or of questions, raised."""

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[ClientSession, None]:
        """Open a session, and keep it connected for as long as the block lasts.

        The exception that ends the block comes out as itself and not in a group: what the block
        raised, or else what a handler raised, or why the session was lost, or the KeyboardInterrupt
        of a Ctrl-C that finds a task of the client at work.
        """
        raised: BaseException | None = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._supervise, name="client supervisor")
                nursery.start_soon(self._deliver, name="client consumer")
                seconds = HURRIED_CLOSE_SECONDS
                try:
                    await self._supervisor.opened.wait()
                    session = self._supervisor.session
                    if session is not None:
                        nursery.start_soon(self._handle_questions, session, name="client questions")
                    with self._block:
                        if session is not None and self._end is None:
                            yield session
                            seconds = CLOSE_SECONDS
                except trio.Cancelled:
                    raise
                except BaseException as error:  # noqa: BLE001 - raised again below
                    raised = error
                finally:
                    self._handling.cancel()
                    with trio.CancelScope(shield=True):
                        await self.leave(seconds)
                    nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raised = unwrapped(group)
        if raised is None:
            raised = self._raised
        if raised is None and self._end is not None and not self._end.told:
            raised = self._end.error
        if raised is not None:
            raise raised

    async def leave(self, seconds: float = CLOSE_SECONDS) -> None:
        """Close the session (§6.7), and hand on everything that has arrived.

        Any number of tasks may leave, again and again: each returns when the session is closed.
        """
        deadline = trio.current_time() + seconds
        with trio.CancelScope(deadline=deadline):
            await self._close()
        self._supervision.cancel()
        await self._ended.wait()
        if self._supervisor.session is not None:
            with trio.CancelScope(deadline=deadline):
                await self._supervisor.session.closed.wait()

    async def _close(self) -> None:
        self._supervisor.leaving = True
        session = self._supervisor.session
        if session is not None and session.connection is not None:
            with self._unread.waiting():
                await session.close()
                await self._ended.wait()

    async def wait_ended(self) -> None:
        """Wait for the end of the session, and raise why it ended unless the program has left."""
        self._watchers += 1
        try:
            await self._ended.wait()
        finally:
            self._watchers -= 1
        if self._lost and self._supervisor.session is not None:
            self._supervisor.session.check()

    # -- the tasks

    async def _supervise(self) -> None:
        end = SessionEnd(ConnectionLost("the client is closed"), told=True)
        try:
            with self._supervision:
                await self._supervisor.run()
        except Exception as error:  # noqa: BLE001 - raised again, in the program
            self._lost = True
            # A waiting call raises the error. Without one the block has to.
            told = self._unread.awaited or self._watchers > 0
            end = SessionEnd(unwrapped(error), told=told)
            if not told:
                self._block.cancel()
        finally:
            self._end = end
            if self._supervisor.session is not None:
                self._supervisor.session.finish(end)
            self._ended.set()

    async def _deliver(self) -> None:
        try:
            await self._delivery.run()
        except Exception as error:  # noqa: BLE001 - raised again, out of the block
            self._raised = unwrapped(error)
            self._block.cancel()
        finally:
            self._delivery.end()

    async def _handle_questions(self, session: ClientSession) -> None:
        try:
            with self._handling:
                await session.question_handling.run()
        except Exception as error:  # noqa: BLE001 - raised again, out of the block
            self._raised = unwrapped(error)
            self._block.cancel()
