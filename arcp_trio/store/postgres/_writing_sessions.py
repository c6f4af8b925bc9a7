"""What the writes about sessions do to the tables, gathered over a group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import attrs
import msgspec
from psycopg import Cursor

from arcp_trio.store.packing import pack_items
from arcp_trio.store.postgres._schema import Database
from arcp_trio.store.postgres._statements import Statement, columns
from arcp_trio.store.records import Range
from arcp_trio.store.snapshot import EVERYTHING
from arcp_trio.store.writes import (
    AddSubmitter,
    AppendLog,
    CloseSession,
    DropSession,
    MoveFloor,
    PutSession,
    ReleaseSession,
    RotateToken,
    TakeSession,
)

_PUT: Final = """
    INSERT INTO session (session_id, principal, features, dialect, top, floor, rows, acked,
        log_bytes, node)
    SELECT c.*, %(me)b FROM unnest(%(0)b::text[], %(1)b::text[], %(2)b::text[], %(3)b::text[],
        %(4)b::bigint[], %(5)b::bigint[], %(6)b::bigint[], %(7)b::boolean[], %(8)b::bigint[])
        AS c"""

# One that another node is just taking, or whose window has ended, is not waited for.
_TAKE: Final = """
    UPDATE session SET node = %(me)b, parked_until = NULL, moves = moves + 1 WHERE sid IN (
        SELECT sid FROM session WHERE session_id = ANY(%(0)b::text[]) AND node IS NULL
        FOR NO KEY UPDATE SKIP LOCKED)"""

# It locks the rows of the sessions, and returns those that are this node's.
_CHANGE: Final = """
    WITH mine AS (
        UPDATE session AS s SET top = coalesce(nullif(c.top, -1), s.top),
            rows = coalesce(nullif(c.rows, -1), s.rows),
            floor = coalesce(nullif(c.floor, -1), s.floor),
            log_bytes = coalesce(nullif(c.log_bytes, -1), s.log_bytes),
            acked = s.acked OR c.acked, closed = s.closed OR c.closed
        FROM unnest(%(0)b::text[], %(1)b::bigint[], %(2)b::bigint[], %(3)b::bigint[],
            %(4)b::bigint[], %(5)b::boolean[], %(6)b::boolean[])
            AS c (session_id, top, rows, floor, log_bytes, acked, closed)
        WHERE s.session_id = c.session_id AND s.node = %(me)b
        RETURNING s.sid, s.session_id
    ), logged AS (
        INSERT INTO log (sid, last_place, row, items)
        SELECT mine.sid, c.last_place, c.row, c.items
        FROM unnest(%(7)b::text[], %(8)b::bigint[], %(9)b::bigint[], %(10)b::bytea[])
            AS c (session_id, last_place, row, items) JOIN mine USING (session_id)
    ), watched AS (
        INSERT INTO watch (sid, jid, cursor, last_seq, observed)
        SELECT mine.sid, j.jid, c.cursor, c.last_seq, c.observed
        FROM unnest(%(11)b::text[], %(12)b::text[], %(13)b::bigint[], %(14)b::bigint[],
            %(15)b::boolean[]) AS c (session_id, job_id, cursor, last_seq, observed)
        JOIN mine USING (session_id) JOIN job AS j ON j.job_id = c.job_id
        ON CONFLICT (sid, jid) DO UPDATE SET cursor = excluded.cursor,
            last_seq = greatest(watch.last_seq, excluded.last_seq),
            observed = watch.observed OR excluded.observed
    )
    SELECT session_id FROM mine"""

_NEGOTIATE: Final = """
    UPDATE session AS s SET features = c.features, dialect = c.dialect
    FROM unnest(%(0)b::text[], %(1)b::text[], %(2)b::text[]) AS c (session_id, features, dialect)
    WHERE s.session_id = c.session_id AND s.node = %(me)b"""

_DROP_TOKENS: Final = """
    DELETE FROM token USING session
    WHERE session_id = ANY(%(0)b::text[]) AND node = %(me)b AND token.sid = session.sid"""

_PUT_TOKENS: Final = """
    INSERT INTO token (digest, sid, place) SELECT c.digest, s.sid, c.place
    FROM unnest(%(0)b::text[], %(1)b::bytea[], %(2)b::bigint[]) AS c (session_id, digest, place)
    JOIN session AS s ON s.session_id = c.session_id AND s.node = %(me)b"""

_UNWATCH: Final = """
    WITH ended AS (
        DELETE FROM watch AS w
        USING unnest(%(0)b::text[], %(1)b::text[]) AS c (session_id, job_id), session AS s, job AS j
        WHERE s.session_id = c.session_id AND s.node = %(me)b AND j.job_id = c.job_id
            AND w.sid = s.sid AND w.jid = j.jid
        RETURNING w.jid, w.last_seq, j.sid = w.sid AS first)
    INSERT INTO last_number (jid, seq) SELECT jid, last_seq FROM ended WHERE first AND last_seq > 0
    ON CONFLICT (jid) DO UPDATE SET seq = greatest(last_number.seq, excluded.seq)"""

_TOLD: Final = """
    UPDATE submitter AS t SET told = true
    FROM unnest(%(0)b::text[], %(1)b::text[]) AS c (session_id, job_id), session AS s, job AS j
    WHERE s.session_id = c.session_id AND s.node = %(me)b AND j.job_id = c.job_id
        AND t.jid = j.jid AND t.session_id = c.session_id AND NOT t.told"""

_ADD_SUBMITTER: Final = """
    INSERT INTO submitter (jid, session_id, told) SELECT j.jid, c.session_id, true
    FROM unnest(%(0)b::text[], %(1)b::text[]) AS c (session_id, job_id)
    JOIN job AS j ON j.job_id = c.job_id
    LEFT JOIN session AS s ON s.session_id = c.session_id
    WHERE s.sid IS NULL OR s.node = %(me)b
    ON CONFLICT (jid, session_id) DO UPDATE SET told = true"""

_WASTE: Final = """
    INSERT INTO log_waste (sid, below) SELECT s.sid, c.below
    FROM unnest(%(0)b::text[], %(1)b::bigint[]) AS c (session_id, below)
    JOIN session AS s ON s.session_id = c.session_id AND s.node = %(me)b
    ON CONFLICT (sid) DO UPDATE SET below = greatest(log_waste.below, excluded.below)"""

# Tokens and watches go with their session.
_DROP: Final = """
    WITH numbers AS (
        INSERT INTO last_number (jid, seq) SELECT w.jid, w.last_seq
        FROM session AS s JOIN watch AS w USING (sid) JOIN job AS j USING (jid)
        WHERE s.session_id = ANY(%(0)b::text[]) AND s.node = %(me)b
            AND j.sid = w.sid AND w.last_seq > 0
        ON CONFLICT (jid) DO UPDATE SET seq = greatest(last_number.seq, excluded.seq))
    DELETE FROM session WHERE session_id = ANY(%(0)b::text[]) AND node = %(me)b"""

_RELEASE: Final = """
    UPDATE session AS s
    SET node = NULL, parked_until = now() + make_interval(secs => c.seconds)
    FROM unnest(%(0)b::text[], %(1)b::float8[]) AS c (session_id, seconds)
    WHERE s.session_id = c.session_id AND s.node = %(me)b"""


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
    _taken: list[str] = attrs.field(factory=list[str])
    _changes: dict[str, _Change] = attrs.field(factory=dict[str, _Change])
    _negotiated: dict[str, tuple[str, str]] = attrs.field(factory=dict[str, tuple[str, str]])
    _tokens: dict[str, tuple[bytes, ...]] = attrs.field(factory=dict[str, tuple[bytes, ...]])
    _batches: list[AppendLog] = attrs.field(factory=list[AppendLog])
    _cursors: dict[tuple[str, str], _Cursor] = attrs.field(factory=dict[tuple[str, str], _Cursor])
    _ended: dict[tuple[str, str], None] = attrs.field(factory=dict[tuple[str, str], None])
    _told: dict[tuple[str, str], None] = attrs.field(factory=dict[tuple[str, str], None])
    _submitters: dict[tuple[str, str], None] = attrs.field(factory=dict[tuple[str, str], None])
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
        """Gather a parked session that is to be this node's."""
        self._taken.append(write.session_id)
        self._change(write.session_id)

    def rotate_token(self, write: RotateToken) -> None:
        """Gather what a session's newest connection has negotiated, and its tokens."""
        self._change(write.session_id)
        self._negotiated[write.session_id] = " ".join(sorted(write.features)), write.dialect
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
            _PUT,
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
                )
                for write in self._new
            ],
        )
        yield _TAKE, [(session_id,) for session_id in sorted(self._taken)]

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
        return db.execute(_CHANGE, values)

    def rest(self) -> Iterator[Statement]:
        """Yield what comes after the jobs of the group, and after the change."""
        yield _NEGOTIATE, [(session_id, *each) for session_id, each in self._negotiated.items()]
        yield _DROP_TOKENS, [(session_id,) for session_id in self._tokens]
        yield (
            _PUT_TOKENS,
            [
                (session_id, digest, place)
                for session_id, digests in self._tokens.items()
                for place, digest in enumerate(digests)
            ],
        )
        yield _ADD_SUBMITTER, list(self._submitters)
        yield _TOLD, list(self._told)
        yield _UNWATCH, list(self._ended)
        yield _WASTE, list(self._floors.items())
        yield _DROP, [(session_id,) for session_id in self._dropped]
        yield _RELEASE, list(self._released.items())
