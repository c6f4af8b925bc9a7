"""Connections, each with a thread of its own, that are made again after they were lost."""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Final, TypeVar

import attrs
import psycopg
import trio
from psycopg import sql
from psycopg.types.numeric import Int8BinaryDumper

from arcp_trio.store.call_thread import CallThread
from arcp_trio.store.errors import Fenced, StoreError
from arcp_trio.store.interface import JournalTrimmed, LogTrimmed
from arcp_trio.store.postgres._address import DatabaseAddress
from arcp_trio.store.postgres._errors import FENCED, store_errors
from arcp_trio.store.postgres._schema import Database
from arcp_trio.store.postgres._texts import take_any_text
from arcp_trio.store.shared import EngineCall, Timed

_T = TypeVar("_T")

ANSWER_SECONDS: Final = 10.0
"""How long to wait for an answer before the connection is given up.

This is longer than a statement waits for a lock, and than a healthy server is ever busy with one of
the store's. It is the only bound for a server that stands still: what is set for its statements it
does not look at then, and its system still acknowledges what is sent to it.
"""

PLAN_SECONDS: Final = 5.0
"""How long plans of statements are kept: tables that were small then may be large by now."""

# To plan a statement takes longer than to execute it, so plans are kept; but see `plan_anew`.
#
# Most servers have lz4, which packs journals several times as fast as what they use by default.
_SETTINGS: Final = """
    SET search_path = {schema}, pg_temp;
    SET application_name = {application};
    SELECT set_config('synchronous_commit', {synchronous}, false)
        WHERE {synchronous} = 'off' OR current_setting('synchronous_commit') = 'off';
    SET arcp.node = {node};
    SELECT set_config('default_toast_compression', 'lz4', false) FROM pg_settings
        WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals);
    SET jit = off;
    SET plan_cache_mode = force_generic_plan;
    SET lock_timeout = '5s';
    SET idle_in_transaction_session_timeout = '15s'"""
_TRANSACTION_TIMEOUT: Final = "; SET transaction_timeout = '15s'"
_TRANSACTION_TIMEOUT_SINCE: Final = 170000

_OTHERS_GO_ON: Final = "other nodes go on with what it had"
TAKEN_OVER: Final = f"it was taken for dead, or a later start has its name; {_OTHERS_GO_ON}"
"""Why a node is fenced whose row says that it is gone."""


@attrs.define(eq=False)
class Membership:
    """What all connections of a node share."""

    address: DatabaseAddress
    synchronous: bool
    name: str = ""
    """The name of the node."""
    node: int = 0
    """The number of the node; 0 before it has one, and for those that only look."""
    signing_key: bytes = attrs.field(default=b"", repr=False)
    """See `Shared.signing_key`."""
    silent: str | None = None
    """Why the node gives no signs of life; None if it does."""
    fenced: Fenced | None = None
    """Why nothing can be stored any more."""
    timed: Timed | None = None
    """See `Shared.time_calls`."""
    answered: float = -math.inf
    """When the server has last answered a call, on Trio's clock."""

    def fence(self, reason: str = TAKEN_OVER) -> Fenced:
        """Note that this node is over; return the error that says so."""
        if self.fenced is None:
            if reason == TAKEN_OVER and self.silent is not None:
                reason = f"it could give no sign of life: {self.silent}; {_OTHERS_GO_ON}"
            self.fenced = Fenced(f"node {self.node} is fenced: {reason}")
        return Fenced(*self.fenced.args)


def application_name(address: DatabaseAddress, node: int) -> str:
    """Return the name by which the server's other users know the connections of a node."""
    return f"{address.schema}/{node}"


class DatabaseThread:
    """A connection and the thread that uses it, for as long as the `with` block around it.

    A call that fails gives the connection up. The next one makes another.
    """

    def __init__(self, membership: Membership, purpose: str, *, standstill: bool = False) -> None:
        """Make a thread, which connects at its first call.

        Args:
            membership: the node.
            purpose: what the connection is for.
            standstill: see `CallThread`.
        """
        self._membership = membership
        self._thread = CallThread(f"store {purpose}", standstill=standstill)
        self._turn = trio.Lock()
        self.busy_since = math.inf
        """When the call that is under way was begun, on Trio's clock."""
        self._db: Database | None = None
        self._given_up = threading.Event()
        """Whether the call that is made now is to end, whatever it waits for."""
        self._planned = -math.inf
        """When the plans of the connection's statements began to be made."""

    def __enter__(self) -> None:
        self._thread.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._cut()  # a call may be left, if the writer has failed while others went on
        self._thread.__exit__(kind, error, traceback)
        self._drop()

    async def run(self, act: Callable[[Database], _T], *, seconds: float = ANSWER_SECONDS) -> _T:
        """Call `act` in the thread, and give the connection up if that takes too long.

        A cancel gives the connection up, too, and waits for the call's end.

        Raises:
            Fenced: the node is over.
            StoreError: the database cannot do it now.
        """
        async with self._turn:
            if self._membership.fenced is not None:  # whether or not the store is still open
                raise self._membership.fence()
            failed: StoreError | None = None
            self._given_up.clear()
            self.busy_since = trio.current_time()
            with trio.move_on_after(seconds) as scope:
                try:
                    result = await self._thread.run(partial(self._call, act), self._cut)
                    self._membership.answered = trio.current_time()
                    return result  # noqa: TRY300 - an answer, in time or not
                except StoreError as error:
                    failed = error
                finally:
                    self.busy_since = math.inf
            if failed is not None and not scope.cancel_called:
                await trio.lowlevel.checkpoint_if_cancelled()  # then it was cut off for that
                raise failed
        raise self._silent(seconds) from failed

    def _silent(self, seconds: float) -> StoreError:
        return StoreError(f"{self._membership.address}: no answer within {seconds:g} s")

    async def run_timed(self, call: EngineCall, act: Callable[[Database], _T]) -> _T:
        """Call `act` as `run` does, and tell how long the answer took."""
        began = trio.current_time()
        result = await self.run(act)
        if self._membership.timed is not None:
            self._membership.timed(call, trio.current_time() - began)
        return result

    async def transact(self, act: Callable[[Database], _T]) -> _T:
        """Call `act` in a transaction that begins with a look whether the node is gone."""

        def in_transaction(db: Database) -> _T:
            with member_transaction(db, self._membership.node):
                return act(db)

        return await self.run(in_transaction)

    def let_loop_go_on(self) -> None:
        """Let the loop go on that stands still for the call."""
        self._thread.let_loop_go_on()

    # -- in the thread

    def _call(self, act: Callable[[Database], _T]) -> _T:
        membership = self._membership
        try:
            with store_errors(membership.address):
                return act(self._connection())
        except (JournalTrimmed, LogTrimmed):
            raise  # an answer: the connection is as good as before
        except psycopg.Error as error:
            self._drop()
            if error.sqlstate == FENCED:
                raise membership.fence() from error
            raise
        except BaseException:
            self._drop()
            raise

    def _connection(self) -> Database:
        if self._db is None or self._db.closed:
            self._db = connect(self._membership)  # from here on it can be cut off
            if self._given_up.is_set():
                cut(self._db)
            enter(self._db, self._membership)
        if time.monotonic() - self._planned > PLAN_SECONDS:
            self._db.execute("DISCARD PLANS", prepare=False)
            self._planned = time.monotonic()
        return self._db

    def _drop(self) -> None:
        if self._db is not None:
            with suppress(psycopg.Error):
                self._db.close()
            self._db = None

    # -- in the loop

    def _cut(self) -> None:
        """Cut the connection off, so that the call that waits for an answer ends."""
        self._given_up.set()  # for one that is only being made
        db = self._db  # which the thread may drop at any time
        if db is not None:
            cut(db)


def cut(db: Database) -> None:
    """Cut a connection off that another thread uses; what waits for an answer there fails."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(db.fileno())) as line:
        db.fileno()  # fails if it was closed just before: then the number may be another socket's
        line.shutdown(socket.SHUT_RDWR)


def connect(membership: Membership) -> Database:
    """Return a new connection, whose transactions are begun and ended by hand.

    Raises:
        psycopg.Error: the server cannot be reached, or does not let this role in.
    """
    conninfo = membership.address.conninfo
    db: Database = psycopg.connect(conninfo, autocommit=True, prepare_threshold=0)
    return db


def check_room(membership: Membership, count: int) -> None:
    """Check that the server lets a node make this many more connections.

    Raises:
        psycopg.Error: it does not.
    """
    with ExitStack() as made:
        for _ in range(count):
            made.enter_context(closing(connect(membership)))


def enter(db: Database, membership: Membership) -> None:
    """Make a new connection ready for what a node does.

    The server may stop answering in between, so another thread has to be able to cut it off.

    Raises:
        psycopg.Error: the node is gone, or the server does not answer.
    """
    db.adapters.register_dumper(int, Int8BinaryDumper)
    take_any_text(db)
    set_up(db, membership)
    if membership.node:
        refuse_if_gone(db, membership.node)


@contextmanager
def member_transaction(db: Database, node: int) -> Generator[None]:
    """Do what is in the block in one transaction, unless the node is gone.

    Nobody can fence the node before the transaction ends. Statements wait for the server only where
    the block fetches rows, or ends: a distant database would make each of them take a round trip.
    So no `rowcount` is known within the block.
    """
    with db.pipeline():  # psycopg's own transactions would wait at their beginning, too
        db.execute("BEGIN")
        refuse_if_gone(db, node)
        try:
            yield
        except BaseException:
            with suppress(psycopg.Error):  # the first error counts
                db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")


def refuse_if_gone(db: Database, node: int) -> None:
    """Have the server raise an error, whose state is `FENCED`, if the node is gone."""
    db.execute("SELECT member(%s)", (node,))


def set_up(db: Database, membership: Membership) -> None:
    """Set what holds for all that is done on the connection."""
    address = membership.address
    settings = sql.SQL(_SETTINGS).format(
        schema=sql.Identifier(address.schema),
        application=sql.Literal(application_name(address, membership.node)),
        synchronous=sql.Literal("on" if membership.synchronous else "off"),
        node=sql.Literal(str(membership.node)),
    )
    if db.info.server_version >= _TRANSACTION_TIMEOUT_SINCE:
        settings += sql.SQL(_TRANSACTION_TIMEOUT)
    db.execute(settings, prepare=False)
