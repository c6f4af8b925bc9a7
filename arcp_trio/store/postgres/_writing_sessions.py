"""What the writes about sessions do to the tables, gathered over a group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import msgspec
from psycopg import Cursor

from arcp_trio.store.packing import pack_items
from arcp_trio.store.postgres._schema import Database
from arcp_trio.store.postgres._session_statements import (
    ADD_SUBMITTER,
    CHANGE,
    DROP,
    DROP_TOKENS,
    NEGOTIATE,
    PUT,
    PUT_TOKENS,
    RELEASE,
    SUBMIT_AGAIN,
    TAKE,
    TOLD,
    UNWATCH,
    WASTE,
)
from arcp_trio.store.postgres._statements import Statement, columns
from arcp_trio.store.records import Range
from arcp_trio.store.shared_writes import CloseSession, ReleaseSession, SubmitAgain, TakeSession
from arcp_trio.store.snapshot import EVERYTHING
from arcp_trio.store.writes import (
    AddSubmitter,
    AppendLog,
    DropSession,
    MoveFloor,
    PutSession,
    RotateToken,
)


class _Change(msgspec.Struct):
    """New values of a session's row; -1 stands for what stays."""

    top: int = -1
    rows: int = -1
    floor: int = -1
    log_bytes: int = -1
    acked: bool = False
    closed: bool = False


class _Cursor(msgspec.Struct):
    """New values of a watch."""

    index: int
    last_seq: int
    observed: bool


@attrs.define(eq=False)
class SessionWrites:
    """Writes about sessions, that can be stored all at once."""

    _new: list[PutSession] = attrs.field(factory=list[PutSession])
    _taken: list[TakeSession] = attrs.field(factory=list[TakeSession])
    _changes: dict[str, _Change] = attrs.field(factory=dict[str, _Change])
    _negotiated: dict[str, tuple[str, str, str]] = attrs.field(
        factory=dict[str, tuple[str, str, str]]
    )
    _tokens: dict[str, tuple[bytes, ...]] = attrs.field(factory=dict[str, tuple[bytes, ...]])
    _batches: list[AppendLog] = attrs.field(factory=list[AppendLog])
    _cursors: dict[tuple[str, str], _Cursor] = attrs.field(factory=dict[tuple[str, str], _Cursor])
    _ended: dict[tuple[str, str], None] = attrs.field(factory=dict[tuple[str, str], None])
    _told: dict[tuple[str, str], None] = attrs.field(factory=dict[tuple[str, str], None])
    _submitters: dict[tuple[str, str], None] = attrs.field(factory=dict[tuple[str, str], None])
    _submitted_again: dict[tuple[str, str], None] = attrs.field(factory=dict[tuple[str, str], None])
    _floors: dict[str, int] = attrs.field(factory=dict[str, int])
    _dropped: dict[str, None] = attrs.field(factory=dict[str, None])
    _released: dict[str, float] = attrs.field(factory=dict[str, float])

    @property
    def watches_change(self) -> bool:
        """Whether a watch begins or ends: what a job's acceptance begins depends on watches."""
        return bool(self._cursors or self._ended or self._dropped)

    def is_over(self, session_id: str) -> bool:
        """Return whether nothing more can be gathered of a session."""
        return session_id in self._dropped or session_id in self._released

    def _change(self, session_id: str) -> _Change:
        return self._changes.setdefault(session_id, _Change())

    # -- gathering

    def put_session(self, write: PutSession) -> None:
        """Gather a new session."""
        row = write.row
        self._new.append(write)
        self._tokens[row.session_id] = (*row.spare_digests, row.token_digest)
        self._change(row.session_id)

    def take(self, write: TakeSession) -> None:
        """Gather a session of another node, or of none, that is to be this node's."""
        self._taken.append(write)
        self._change(write.session_id)

    def rotate_token(self, write: RotateToken) -> None:
        """Gather what a session's newest connection has negotiated, and its tokens."""
        self._change(write.session_id)
        features = " ".join(sorted(write.features))
        self._negotiated[write.session_id] = features, write.dialect, write.client
        self._tokens[write.session_id] = (*write.spare_digests, write.token_digest)

    def append_log(self, write: AppendLog) -> None:
        """Gather a batch of a log, and the new values of the session and its watches."""
        session_id = write.session_id
        change = self._change(session_id)
        change.top, change.rows, change.log_bytes = write.top, write.row + 1, write.log_bytes
        if write.items:
            self._batches.append(write)
        last_seqs = {item.job_id: item.last_seq for item in write.items if type(item) is Range}
        for job_id, index in write.cursors.items():
            last_seq, observed = last_seqs.get(job_id, 0), job_id in write.observed
            cursor = self._cursors.get((session_id, job_id))
            if cursor is None:
                self._cursors[session_id, job_id] = _Cursor(index, last_seq, observed)
            else:
                cursor.index = index
                cursor.last_seq = max(cursor.last_seq, last_seq)
                cursor.observed = cursor.observed or observed
        for job_id in write.watched:
            if job_id not in write.observed:
                self._told[session_id, job_id] = None
        for job_id in write.ended:
            self._ended[session_id, job_id] = None

    def begins_again(self, write: AppendLog) -> bool:
        """Return whether a batch has a watch that has ended among what was gathered."""
        return any((write.session_id, job_id) in self._ended for job_id in write.cursors)

    def add_submitter(self, write: AddSubmitter) -> None:
        """Gather another submitter of a job."""
        self._submitters[write.session_id, write.job_id] = None

    def submit_again(self, write: SubmitAgain) -> None:
        """Gather a submitter that comes again."""
        self._change(write.session_id)
        self._submitted_again[write.session_id, write.job_id] = None

    def move_floor(self, write: MoveFloor) -> None:
        """Gather a floor; housekeeping deletes the part of the log below it."""
        change = self._change(write.session_id)
        change.floor, change.log_bytes = write.floor, write.log_bytes
        change.acked = change.acked or write.acked
        self._floors[write.session_id] = 2 * write.floor + 1

    def close(self, write: CloseSession) -> None:
        """Gather that the client has closed a session."""
        self._change(write.session_id).closed = True

    def drop(self, write: DropSession) -> None:
        """Gather a session's end; housekeeping deletes its log."""
        self._change(write.session_id)
        self._floors[write.session_id] = EVERYTHING
        self._dropped[write.session_id] = None

    def release(self, write: ReleaseSession) -> None:
        """Gather a session that is to be parked."""
        self._change(write.session_id)
        self._released[write.session_id] = write.seconds

    # -- statements

    def ids(self) -> set[str]:
        """Return the sessions whose rows have to be this node's."""
        return set(self._changes)

    def beginning(self) -> Iterator[Statement]:
        """Yield what comes first: sessions that become this node's."""
        yield (
            PUT,
            [
                (
                    (row := write.row).session_id,
                    row.principal,
                    " ".join(sorted(row.features)),
                    row.dialect,
                    row.top,
                    row.floor,
                    row.log_rows,
                    row.acked,
                    row.log_bytes,
                    row.client,
                )
                for write in self._new
            ],
        )
        yield TAKE, sorted((take.session_id, take.node or 0, take.moves) for take in self._taken)

    def change(self, db: Database, me: int) -> Cursor[tuple[Any, ...]] | None:
        """Store batches of logs, cursors, and what else is in the rows of sessions.

        Return the answer, which names those that are this node's; the others are left alone.
        """
        if not self._changes:
            return None
        changes = [
            (session_id, *msgspec.structs.astuple(change))
            for session_id, change in sorted(self._changes.items())
        ]
        batches = [
            (write.session_id, write.items[-1].last_place, write.row, pack_items(write.items))
            for write in self._batches
        ]
        cursors = [
            (*names, cursor.index, cursor.last_seq, cursor.observed)
            for names, cursor in self._cursors.items()
        ]
        values = {
            "me": me,
            **columns(changes),
            **columns(batches, 7, width=4),
            **columns(cursors, 11, width=5),
        }
        return db.execute(CHANGE, values)

    def rest(self) -> Iterator[Statement]:
        """Yield what comes after the jobs of the group, and after the change."""
        yield NEGOTIATE, [(session_id, *each) for session_id, each in self._negotiated.items()]
        yield DROP_TOKENS, [(session_id,) for session_id in self._tokens]
        yield (
            PUT_TOKENS,
            [
                (session_id, digest, place)
                for session_id, digests in self._tokens.items()
                for place, digest in enumerate(digests)
            ],
        )
        closed = {session_id for session_id, change in self._changes.items() if change.closed}
        yield ADD_SUBMITTER, [(*names, names[0] in closed) for names in self._submitters]
        yield SUBMIT_AGAIN, [(*names, names[0] in closed) for names in self._submitted_again]
        yield TOLD, list(self._told)
        yield UNWATCH, list(self._ended)
        yield WASTE, list(self._floors.items())
        yield DROP, [(session_id,) for session_id in self._dropped]
        yield RELEASE, list(self._released.items())
