"""Signs of life, which a thread gives whatever the loop does."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import psycopg
import trio

from arcp_trio.store.errors import StoreError
from arcp_trio.store.nodes import RollCall, Seen
from arcp_trio.store.outage import Outage
from arcp_trio.store.postgres._connections import Membership, connect, cut, enter
from arcp_trio.store.postgres._errors import FENCED, words_of
from arcp_trio.store.postgres._nodes import beat
from arcp_trio.store.postgres._schema import Database

LOOP_SECONDS: Final = 60.0
"""A node whose loop stands still for longer gives no more signs of life."""

LATE: Final = 2.5
"""A beat that takes more intervals than this has failed."""

END_SECONDS: Final = 1.0
"""How long the thread may take to end, once its connection is cut."""

SILENT_BEATS: Final = 2
"""How many beats fail in a row before it is said why: one that is alone means nothing."""

log = logging.getLogger(__name__)


class BeatThread:
    """Beats for one node, on a connection of its own that is made again after it was lost."""

    def __init__(
        self, membership: Membership, seconds: float, seen: Seen, over: Callable[[], None]
    ) -> None:
        self._membership = membership
        self._seconds = seconds
        self._seen = seen
        self._call_over = over
        self._db: Database | None = None
        self._given_up = threading.Event()
        """Whether the beat that is under way has failed, whatever it waits for."""
        self._turned = time.monotonic()
        """When the loop was seen to turn."""
        self._stop = threading.Event()
        self._ended = trio.Event()
        self._failed = 0
        """How many beats in a row have failed."""
        self._outage = Outage(log, "no sign of life given, others may take this node for dead")
        self._error: BaseException | None = None

    async def run(self) -> None:
        """Beat until cancelled.

        Raises:
            Fenced: the node is gone.
        """
        token = trio.lowlevel.current_trio_token()
        # A daemon: a server that does not answer must not hold up the end of the process.
        thread = threading.Thread(target=self._work, args=(token,), name="store beats", daemon=True)
        thread.start()
        try:
            await self._ended.wait()
        finally:
            self._stop.set()
            self._cut()
            with trio.move_on_after(END_SECONDS, shield=True):
                await trio.to_thread.run_sync(thread.join, abandon_on_cancel=True)
        assert self._error is not None
        raise self._error

    def _loop_turns(self, seen: RollCall | None) -> None:
        self._turned = time.monotonic()
        with self._outage:
            if seen is None and self._membership.silent is not None:
                raise StoreError(f"{self._membership.address}: {self._membership.silent}")
        self._seen(seen)

    # -- in the thread

    def _work(self, token: trio.lowlevel.TrioToken) -> None:
        try:
            while not self._stop.is_set():
                began = time.monotonic()
                seen = self._beat()
                with suppress(trio.RunFinishedError):
                    token.run_sync_soon(self._loop_turns, seen)
                self._stop.wait(began + self._seconds - time.monotonic())
        except BaseException as error:  # noqa: ASYNC103, BLE001 - the task raises it
            self._error = error
            if self._membership.fenced is not None:
                self._call_over()
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(self._ended.set)
        finally:
            self._drop()

    def _beat(self) -> RollCall | None:
        """Beat once; return None if that has failed."""
        membership = self._membership
        self._given_up.clear()
        late = threading.Timer(LATE * self._seconds, self._cut)
        late.daemon = True
        try:
            late.start()
        except RuntimeError:
            self._fail("the system has no more threads")
            return None
        try:
            if self._db is None:
                self._db = connect(membership)
                if self._given_up.is_set():
                    cut(self._db)
                enter(self._db, membership)
                self._db.execute("SET synchronous_commit = off")
            alive = time.monotonic() - self._turned <= LOOP_SECONDS
            seen = beat(self._db, membership.node, alive=alive)
        except psycopg.Error as error:
            self._drop()
            if error.sqlstate == FENCED:
                raise membership.fence() from error
            late_words = f"no answer within {LATE * self._seconds:g} s"
            words = words_of(error) or f"{type(error).__name__}: {error}"
            self._fail(late_words if self._given_up.is_set() else words)
            return None
        finally:
            late.cancel()
        if seen is None:
            raise membership.fence()
        self._failed, membership.silent = 0, None
        return seen

    def _fail(self, why: str) -> None:
        self._failed += 1
        if self._failed >= SILENT_BEATS:
            self._membership.silent = why

    def _drop(self) -> None:
        if self._db is not None:
            with suppress(psycopg.Error):
                self._db.close()
            self._db = None

    # -- in any thread

    def _cut(self) -> None:
        """Cut the connection, so that a call that waits for an answer ends."""
        self._given_up.set()  # for one that is only being made
        db = self._db
        if db is not None:
            cut(db)
