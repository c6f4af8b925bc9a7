"""A journal and those who watch it, as each of them knows the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from arcp_trio.store.records import Entry


class Watcher(Protocol):
    """A session that watches a job, as far as the job's journal needs to know it."""

    cursor: int
    """The index of the next entry that the session is owed."""

    @property
    def session_id(self) -> str:
        """The session's id."""
        ...

    @property
    def attached(self) -> bool:
        """Whether the session has a connection that it numbers entries for."""
        ...

    @property
    def takes_hints(self) -> bool:
        """Whether the session numbers entries as it is given notice of them."""
        ...

    def hint(self, entry: Entry, /) -> None:
        """Notice that the journal has a new entry. Never waits, never fails."""
        ...

    def read_from(self, journal: Written | None, /) -> None:
        """Go on with another journal, or with none, that has the same entries."""
        ...

    def lose_track(self) -> None:
        """Have the client told that the store has forgotten entries that it was given."""
        ...

    def fall_behind(self) -> None:
        """Have the session read the journal, from the cursor on."""
        ...


class Written(Protocol):
    """A journal to which entries may be added, by a job of this runtime or at another node."""

    @property
    def trace_id(self) -> str | None:
        """The job's trace; None if it is not known yet."""
        ...

    @property
    def length(self) -> int:
        """How many entries the journal was given, as far as is known here."""
        ...

    @property
    def elsewhere(self) -> bool:
        """Whether another node adds the entries: there may be more than is known here."""
        ...

    def has(self, session_id: str) -> bool:
        """Whether a session has joined the journal."""
        ...

    def join(self, watch: Watcher) -> None:
        """Send hints to a session from now on."""
        ...

    def leave(self, watch: Watcher) -> None:
        """Neither send hints to a session nor wait for it any longer."""
        ...

    def reader_moved(self) -> None:
        """Notice that a session moved on or left."""
        ...


class OtherJournals(Protocol):
    """The journals that other nodes write, as far as sessions here watch them."""

    @property
    def most_owed(self) -> int:
        """How many entries the session that is furthest behind is owed of one journal."""
        ...

    def __len__(self) -> int:
        """Return how many there are."""
        ...

    def find(self, job_id: str, length: int) -> Written:
        """Return the journal of another node's job; it has `length` entries at least."""
        ...

    def refuse_if_full(self, job_id: str) -> None:
        """Refuse to follow another one if there are too many.

        Raises:
            InternalError: the limit is reached.
        """
        ...
