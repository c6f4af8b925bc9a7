"""What can stand in a session's outbox, in the order in which the client is to learn of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from arcp_trio.runtime.session.unsent import Farewell
from arcp_trio.store.records import Entry

if TYPE_CHECKING:
    from arcp_trio.runtime.connection.connection import Connection
    from arcp_trio.runtime.session.watch import Watch


@attrs.define(eq=False)
class Hints:
    """A job emitted, once or more. They may be dropped: the journal has it, the watch a cursor."""

    watch: Watch
    entries: list[Entry]


AfterNumber = Callable[[int], bytes]
"""Makes a tail that says behind which number it stands."""


@attrs.define(eq=False)
class Answer:
    """A frame without a number for one connection; it dies with it."""

    connection: Connection
    tail: bytes | AfterNumber


@attrs.define(eq=False)
class Promise:
    """A frame without a number that a resume repeats (`job.accepted`, `job.cancelled`).

    With a watch, the session watches the job from here on: its events come behind this frame.
    """

    tail: bytes | AfterNumber
    watch: Watch | None = None


@attrs.define(eq=False)
class Unwatch:
    """The session does not observe the job any more (§7.6)."""

    watch: Watch


@attrs.define(eq=False)
class Attach:
    """From here on the session's frames go to this connection, behind a replay."""

    connection: Connection
    welcome: bytes
    after_seq: int


@attrs.define(eq=False)
class Leave:
    """The connection is to be closed behind everything before this.

    With `caught_up`, also behind every event the session is owed by then.
    """

    connection: Connection
    farewell: Farewell
    caught_up: bool = False


OutboxItem = Hints | Answer | Promise | Unwatch | Attach | Leave
