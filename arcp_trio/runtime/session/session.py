"""A session: what outlives its connections (§6)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from arcp_trio.runtime.credentials.holes import fill_holes, has_holes, job_of, may_see_values
from arcp_trio.runtime.session.inbox import Inbox
from arcp_trio.runtime.session.line import Line
from arcp_trio.runtime.session.outbox import Item, Outbox, Promise, Unwatch
from arcp_trio.runtime.session.record import Record
from arcp_trio.runtime.views import Scope
from arcp_trio.runtime.wake import Wake
from arcp_trio.transport.close_codes import CloseCode
from arcp_trio.wire.features import Feature

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.job import Job
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.session.attachment import Attachment
    from arcp_trio.runtime.session.clerk import Command
    from arcp_trio.runtime.session.watch import Watch
    from arcp_trio.store.records import SessionRow
    from arcp_trio.wire.errors import ArcpError
    from arcp_trio.wire.json import JsonObject

ELSEWHERE: Final = "the session was resumed elsewhere"
"""Why a connection is closed whose session has another one."""


class Session:
    """A session in memory: while a connection is attached, or something is pending for it.

    Everything that matters is in the store too; a session that is not needed is dropped from memory
    and read from its row again.
    """

    def __init__(self, core: Core, row: SessionRow, window_ends: float | None = None) -> None:
        self.id = row.session_id
        self.principal = row.principal
        self.scope = Scope.among(row.features)
        """What the client may look at, if it may do nothing else."""
        self.record = Record(core.store, core.limits, row)
        self.reads = core.store.for_principal(row.principal)
        """The store, read when it is the principal's turn."""
        self.inbox = Inbox(core.limits, core.ledger.received.share(row.principal))
        self.outbox = Outbox(core.limits, core.ledger.unsent.share(row.principal))
        self.workload = core.workloads.of(row.principal)
        self.watches: dict[str, Watch] = {}
        """By job id: what the session is owed."""
        self.subscriptions: dict[str, Watch] = {}
        """The watches that observe, from the subscribe request to the request to stop."""
        self.attached: Attachment | None = None
        """The client's connection, which may outlast the numbering for it."""
        self.holder: Attachment | None = None
        """The connection whose client is given the newest token: attached, or about to be."""
        self.window_ends = window_ends
        """On Trio's clock: when the session stops being resumable, unless it is attached before."""
        self.lost: str | None = None
        """Why the session cannot go on, if so: it is dropped rather than parked."""
        self.moves = row.moves
        """How often a node has taken it."""
        self.elsewhere = False
        """Another runtime has it, or is to have it: no connection is attached here any more."""
        self.line = Line(self.outbox)
        """The order in which its submits are answered."""
        self.accepting: frozenset[str] = frozenset()  # costs nothing while it is empty
        """Jobs with a key whose acceptance is not in the log yet."""
        self.promises: dict[str, Promise] = {}
        """By job id: acceptances that are not in the store's queue yet."""
        self.asks = 0
        """How many answers of other nodes it waits for."""
        self._policy = core.policy
        self._holds = 0
        self._detached = Wake()

    @property
    def features(self) -> frozenset[str]:
        """What was negotiated (§6.2)."""
        return self.record.features

    @property
    def facts(self) -> dict[str, object]:
        """What every line of the log about this session has."""
        return {"session_id": self.id, "principal": self.principal}

    def may_see(self, job_id: str, owner: str) -> bool:
        """Whether the client may know of a job of `owner` (§6.6)."""
        if self.scope is not None and self.scope.job_id is None:
            return owner == self.principal
        in_scope = self.scope is None or job_id == self.scope.job_id
        return in_scope and self._policy.may_observe(self.principal, owner)

    # -- towards the client

    def tell(self, item: Item) -> None:
        """Put something in the outbox, and keep the session in memory until it is dealt with."""
        self.hold()
        if isinstance(item, Promise) and item.watch is not None and not item.watch.observer:
            self.promises[item.watch.job_id] = item
        self.outbox.tell(item)

    def submitted(self, job_id: str) -> bool:
        """Whether the session was promised a job with a key that has not ended since."""
        watch = self.watches.get(job_id)
        return job_id in self.accepting or (watch is not None and not watch.observer)

    def acceptance_begun(self, job_id: str) -> None:
        """Note that a job with a key is promised, and its acceptance not in the log yet."""
        self.accepting |= {job_id}

    def acceptances_logged(self, job_ids: Iterable[str]) -> None:
        """Note that the acceptances of these jobs are in the log."""
        self.accepting = self.accepting.difference(job_ids)

    def stop_observing(self, job_id: str) -> None:
        """End a subscription: later events are not sent, earlier ones may still come."""
        watch = self.subscriptions.pop(job_id, None)
        if watch is not None:
            watch.leave_journal()
            self.tell(Unwatch(watch))

    def with_secrets(self, tail: bytes, jobs: Jobs) -> bytes:
        """Return the tail of a frame as the client may read it (§14); most frames have no holes.

        If another node may reveal what goes into the holes, they stay for the sender to fill.
        """
        if not has_holes(tail):
            return tail
        elsewhere = jobs.other_wallets is not None and job_of(tail) not in jobs.live
        if elsewhere and Feature.PROVISIONED_CREDENTIALS in self.features:
            return tail
        return fill_holes(tail, partial(self._credential, jobs.live))

    def _credential(
        self, live: Mapping[str, Job], job_id: str, credential_id: str
    ) -> JsonObject | None:
        """Return a credential of a job that is alive, if the client may see its value."""
        job = live.get(job_id)
        if job is None or job.wallet is None:
            return None
        if not may_see_values(self.principal, self.features, job.principal):
            return None
        credential = job.wallet.get(credential_id)
        return None if credential is None else credential.wire()

    # -- from the client

    async def command(self, command: Command) -> None:
        """Have the clerk execute a command after those before it; wait for room."""
        self.hold()
        try:
            await self.inbox.put(command)
        except BaseException:
            self.release()
            raise

    def heard(self, attachment: Attachment) -> None:
        """Note a frame of a client: if it has the newest token, older ones are used up (§6.3)."""
        if attachment is self.holder:
            self.record.heard()

    # -- its connection

    def give_to(self, attachment: Attachment) -> None:
        """Take commands from this connection only, and end the one before."""
        self.evict()
        self.holder = attachment

    def evict(self) -> None:
        """End the connection that holds the session; its socket may only look alive."""
        if self.holder is not None:
            self.holder.closing.now(CloseCode.NORMAL, ELSEWHERE)

    def went_elsewhere(self) -> None:
        """Notice that another runtime has the session, or is to have it: it ends here."""
        self.elsewhere = True
        self.evict()
        if self.attached is not None:
            self.attached.closing.now(CloseCode.NORMAL, ELSEWHERE)
        self.stop_numbering()

    def begin(self, attachment: Attachment) -> None:
        """Attach a new session to its first connection: it is owed nothing yet."""
        self.attach(attachment)
        self.outbox.caught_up()
        attachment.begin(None)

    def attach(self, attachment: Attachment) -> None:
        """Have the scribe number for this connection."""
        self.attached = attachment
        self.window_ends = None
        self.stop_numbering()
        self.outbox.attach(attachment.unsent)

    def detach(self, attachment: Attachment) -> None:
        """Let go of a connection that has ended; the jobs notice nothing."""
        if self.holder is attachment:
            self.holder = None
        if self.attached is attachment:
            self.attached = None
            self.stop_numbering()
            self._detached.set()
            self._look_whether_needed()

    def lose_connection(self, error: ArcpError) -> None:
        """End the connection and number no more: the next connection is sent what is owed."""
        if self.attached is not None:
            self.attached.fail(error, CloseCode.FAILED)
        self.stop_numbering()

    def stop_numbering(self) -> None:
        """Have the scribe number nothing: what the session is owed stays in the journals."""
        self.outbox.detach()
        for watch in self.watches.values():
            if watch.journal is not None:
                watch.journal.reader_moved()

    async def left(self) -> None:
        """Wait until no connection is attached."""
        while self.attached is not None:
            await self._detached.wait()

    def lose(self, why: str) -> None:
        """Have the session dropped, rather than parked, once it is not needed."""
        self.lost = why

    # -- its time in memory

    def hold(self) -> None:
        """Keep the session in memory: something is pending for it."""
        self._holds += 1

    def release(self, count: int = 1) -> None:
        """Undo `count` holds; `tell` makes one for each item."""
        if count:
            self._holds -= count
            self._look_whether_needed()

    def _look_whether_needed(self) -> None:
        # Every command and answer comes by here: the scribe is woken only when it has to stop.
        if not self.needed:
            self.outbox.look()

    @property
    def needed(self) -> bool:
        """Whether it must stay in memory. False holds only until the next checkpoint."""
        return self.attached is not None or self._holds > 0

    @property
    def waits_for_store(self) -> bool:
        """Whether something is pending that, as far as is known, waits for the store."""
        return self._holds > 0

    @property
    def lag(self) -> int:
        """How many events its client is behind: not numbered, not sent, or not acknowledged.

        Sent events count for clients that acknowledge (§6.5). Without a client there is no lag.
        """
        outbox, record = self.outbox, self.record
        if outbox.unsent is None:
            return 0
        watches = self.watches.values()
        owed = sum(watch.owed for watch in watches) if outbox.behind else outbox.hints
        sent = max(0, record.top - record.floor) if record.acked else outbox.unsent.frames
        return owed + sent
