"""A session's cursor into a job's journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from arcp_trio.runtime.job.written import Written
    from arcp_trio.runtime.session.session import Session
    from arcp_trio.store.records import Entry


@attrs.define(eq=False)
class Watch:
    """One session watching one job: `cursor` is the next entry of the journal it is owed.

    History, live events, overflow, absence and restart are all the same: a cursor that is behind.
    """

    session: Session
    job_id: str
    journal: Written | None
    """None for a job that has ended and is only in the store."""
    cursor: int = 0
    observer: bool = False
    """The session subscribed to the job rather than submitting it (§7.6)."""
    hinted: bool = False
    """The journal has given notice of everything that the session is owed."""
    lost_track: bool = False
    """The store has forgotten entries that the session was given."""
    given: int = attrs.field(init=False)
    """The index after the last entry that the session was given a number for, since the watch
    began or went back; an entry may have no number."""
    first_time: int = 0
    """From this index on, the session has not been owed the entries before."""

    def __attrs_post_init__(self) -> None:
        self.given = self.cursor

    def go_back(self, cursor: int) -> None:
        """Have the session owed again what it was given from `cursor` on (§7.6)."""
        self.first_time = max(self.first_time, self.cursor)
        self.cursor = self.given = cursor
        self.hinted = False
        self.session.outbox.fall_behind()

    def hint(self, entry: Entry) -> None:
        """Give the session notice of an entry; the job's journal calls this for each one."""
        self.session.outbox.hint(self, entry)

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self.session.id

    @property
    def attached(self) -> bool:
        """Whether the session has a connection for which it numbers entries."""
        return self.session.outbox.unsent is not None

    @property
    def takes_hints(self) -> bool:
        """Whether the session numbers entries as it is given notice of them."""
        return self.attached and not self.session.outbox.behind

    def lose_track(self) -> None:
        """Have the client told that the store has forgotten entries that it was given."""
        self.lost_track = True
        self.fall_behind()

    def fall_behind(self) -> None:
        """Have the session read journals, from the cursors on."""
        self.session.outbox.fall_behind()
        self.session.outbox.look()

    @property
    def behind(self) -> bool:
        """Whether the session is owed something."""
        return self.owed > 0

    @property
    def owed(self) -> int:
        """How many entries the session is owed; of an ended job at least the terminal."""
        return 1 if self.journal is None else max(0, self.journal.length - self.cursor)

    @property
    def may_be_behind(self) -> bool:
        """Whether the session is owed something, or may be: another node writes the journal."""
        return self.behind or self.follows

    @property
    def follows(self) -> bool:
        """Whether another node writes the journal."""
        return self.journal is not None and self.journal.elsewhere

    def skip_to_terminal(self) -> None:
        """Have the session owed nothing but the terminal; the job has ended."""
        if self.journal is not None:
            self.cursor = self.given = self.journal.length - 1

    def end(self) -> None:
        """Stop watching: the session is owed nothing more of the job."""
        for kept in (self.session.watches, self.session.subscriptions):
            if kept.get(self.job_id) is self:
                del kept[self.job_id]
        self.leave_journal()

    # -- its journal

    def join_journal(self) -> None:
        """Have the journal send hints to the session, if its job has not ended."""
        if self.journal is not None:
            self.hinted = not self.may_be_behind
            self.journal.join(self)

    def leave_journal(self) -> None:
        """Have the journal neither send hints to the session nor wait for it."""
        if self.journal is not None:
            self.hinted = False
            self.journal.leave(self)

    def read_from(self, journal: Written | None) -> None:
        """Go on with another journal, or with none, that has the same entries."""
        self.leave_journal()
        self.journal = journal
        self.join_journal()
        if self.behind:
            self.fall_behind()
