"""A session watching a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from arcp_trio.runtime.job.job import Job
    from arcp_trio.runtime.session.session import Session
    from arcp_trio.store.records import Entry


@attrs.define(eq=False)
class Watch:
    """A cursor: the next entry of the job's journal that the session is owed.

    History, live, overflow, absence and restart are all the same thing: a cursor that is behind.
    """

    session: Session
    job_id: str
    job: Job | None
    """None once the job has ended and is only in the store."""
    cursor: int = 0
    observer: bool = False
    """The session did not submit the job, but subscribed to it (§7.6)."""

    @property
    def attached(self) -> bool:
        """Whether the session has a connection that it numbers entries for."""
        return self.session.tail is not None

    def hint(self, entry: Entry) -> None:
        """Pass a hint on to the session; the job's journal calls this for every entry."""
        self.session.hint(self, entry)

    @property
    def behind(self) -> bool:
        """Whether the session is owed something."""
        return self.owed > 0

    @property
    def owed(self) -> int:
        """How many entries the session is owed; of an ended job the terminal, at least."""
        return 1 if self.job is None else self.job.journal.length - self.cursor

    def end(self) -> None:
        """The session is owed nothing more of the job."""
        for kept in (self.session.watches, self.session.subscriptions):
            if kept.get(self.job_id) is self:
                del kept[self.job_id]
        self.leave_job()

    def leave_job(self) -> None:
        """Have the job hint at nothing any more, and not wait for this session."""
        journal = None if self.job is None else self.job.journal
        if journal is not None and journal.watches.get(self.session.id) is self:
            del journal.watches[self.session.id]
            journal.reader_moved()
