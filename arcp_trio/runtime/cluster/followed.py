"""A journal that another node writes, as far as it is known here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable

    from arcp_trio.runtime.job.written import Watcher, Written
    from arcp_trio.store.records import Entry
    from arcp_trio.store.shared import Extent


@attrs.define(eq=False)
class Followed:
    """A journal that another node writes, for the sessions here that watch it.

    The entries are in the store. What is here is how many there are, and up to which one the
    sessions were given hints.
    """

    job_id: str
    joined: Callable[[Followed], None]
    """Called when the first session has joined."""
    left: Callable[[Followed], None]
    """Called when the last session has left."""
    length: int
    """How many entries there are at least."""
    hinted: int
    """The index of the first entry of which no hint was given."""
    finished: bool = False
    """Whether the terminal is among them."""
    trace_id: str | None = None
    key: int | None = None
    """How the store's wake-ups name it; None before it is known."""
    tree: int | None = None
    """The key of the first job above it, or its own; None before it is known."""
    elsewhere: bool = attrs.field(default=True, init=False)
    _watches: dict[str, Watcher] = attrs.field(factory=dict[str, "Watcher"])

    # -- the sessions that watch: see `Written`

    def has(self, session_id: str) -> bool:
        """Whether a session has joined the journal."""
        return session_id in self._watches

    def join(self, watch: Watcher) -> None:
        """Send hints to a session from now on."""
        first = not self._watches
        self._watches[watch.session_id] = watch
        if first:
            self.hinted = max(self.hinted, watch.cursor)
            self.joined(self)

    def leave(self, watch: Watcher) -> None:
        """Send no hints to a session any longer."""
        if self._watches.get(watch.session_id) is watch:
            del self._watches[watch.session_id]
            self.length = max(self.length, watch.cursor)
            if not self._watches:
                self.left(self)

    def reader_moved(self) -> None:
        """Do nothing: the job waits at its own node."""

    # -- what is found in the store

    @property
    def known(self) -> int:
        """How many entries the store is known to have had."""
        return max(self.length, *(watch.cursor for watch in self._watches.values()), 0)

    def forget(self, length: int) -> None:
        """Take in that a failover has left only `length` entries in the store.

        A session that was given one of those cannot go on: others will have their indexes.
        """
        self.length, self.hinted = length, min(self.hinted, length)
        for watch in self._watches.values():
            if watch.cursor > length:
                watch.lose_track()

    def learn(self, extent: Extent) -> None:
        """Take in how far the journal goes."""
        # What is known may be newer than this, but not than the end.
        self.length = extent.length if extent.finished else max(self.length, extent.length)
        self.finished = extent.finished
        self.trace_id = extent.trace_id
        self.key, self.tree = extent.key, extent.tree

    @property
    def done(self) -> bool:
        """Whether the sessions were given hints of all there will ever be."""
        return self.finished and self.hinted >= self.length

    @property
    def takes_hints(self) -> bool:
        """Whether a session is to be given hints of what is new."""
        return any(watch.takes_hints for watch in self._watches.values())

    def next_hint(self) -> int | None:
        """Return the index of the first entry that a session here has to be given a hint of."""
        if not self.takes_hints:
            self.hinted = self.length  # what there is will be read from the cursors on
        return self.hinted if self.hinted < self.length else None

    def hint(self, entry: Entry) -> None:
        """Give the sessions notice of an entry, unless more of it is known than is asked for."""
        if self.hinted <= entry.index < self.length:
            self.hinted = entry.index + 1
            for watch in self._watches.values():
                watch.hint(entry)

    @property
    def owed(self) -> int:
        """How many entries the session that is furthest behind is owed."""
        cursors = (watch.cursor for watch in self._watches.values() if watch.attached)
        return max(0, self.length - min(cursors, default=self.length))

    def fall_behind(self) -> None:
        """Have the sessions read the journal themselves, each from its cursor on."""
        self.hinted = self.length
        for watch in self._watches.values():
            watch.fall_behind()

    def become(self, journal: Written | None) -> None:
        """Have the sessions go on with the journal of a job here; with none if there is no more."""
        for watch in list(self._watches.values()):
            watch.read_from(journal)
