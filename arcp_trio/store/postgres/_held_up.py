"""What another node holds up by standing still in the middle of a transaction goes on.

A process that is stopped, or whose network is gone, keeps the locks of a transaction that it has
begun. A write that needs one of them would wait until that node is taken for dead, and everything
else that this node stores would wait with it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import trio

from arcp_trio.store.errors import Fenced
from arcp_trio.store.outage import Outage
from arcp_trio.store.postgres._connections import application_name

if TYPE_CHECKING:
    from arcp_trio.store.postgres._address import DatabaseAddress
    from arcp_trio.store.postgres._connections import DatabaseThread, Membership
    from arcp_trio.store.postgres._schema import Database
    from arcp_trio.store.postgres.reader import PostgresReader

log = logging.getLogger(__name__)

HELD_UP_SECONDS: Final = 0.5
"""How long a call takes before what may hold it up is looked for, and the pause between looks."""

STILL_SECONDS: Final = 1.0
"""How long a node says nothing in the middle of a transaction before its connection is ended."""

# The server waits for the client of such a connection, in a transaction or in a pipeline.
_CUT_OFF: Final = """
    WITH blocking AS (
        SELECT DISTINCT unnest(pg_blocking_pids(pid)) AS pid FROM pg_stat_activity
        WHERE application_name = %(mine)s AND wait_event_type = 'Lock'
            AND datname = current_database() AND usename = current_user
    ), cut AS (
        SELECT pid, application_name FROM pg_stat_activity JOIN blocking USING (pid)
        WHERE starts_with(application_name, %(nodes)s)
            AND substr(application_name, length(%(nodes)s) + 1) ~ '^[0-9]+$'
            AND application_name <> %(mine)s
            AND datname = current_database() AND usename = current_user
            AND wait_event_type = 'Client'
            AND state_change < clock_timestamp() - make_interval(secs => %(still)s)
    ) SELECT application_name, pg_terminate_backend(pid) FROM cut"""


async def cut_off_what_holds_up(
    threads: Sequence[DatabaseThread], membership: Membership, reader: PostgresReader
) -> None:
    """End connections of other nodes that stand still and hold up one of the threads' calls.

    A node that was only slow loses a connection, and tries again.
    """
    outage = Outage(log, "what holds up this node cannot be found")
    while True:
        await trio.sleep(HELD_UP_SECONDS)
        since = min((thread.busy_since for thread in threads), default=math.inf)
        if trio.current_time() - since < HELD_UP_SECONDS:
            continue
        try:
            with outage:
                for other in await reader.read(_cut_off, membership.address, membership.node):
                    log.warning("cut off a node that held up this one", extra={"number": other})
        except Fenced:
            return


def _cut_off(db: Database, address: DatabaseAddress, me: int) -> list[int]:
    """End those connections; return the numbers of their nodes."""
    nodes = application_name(address, 0).removesuffix("0")
    names = {"mine": application_name(address, me), "nodes": nodes, "still": STILL_SECONDS}
    found = db.execute(_CUT_OFF, names).fetchall()
    return [int(name.removeprefix(nodes)) for name, _ in found]
