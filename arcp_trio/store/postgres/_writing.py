"""Commits of groups of writes: gathered by kind, and sent in one go as one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs
import msgspec
from psycopg import Cursor

from arcp_trio.store.postgres import _commands, _keys
from arcp_trio.store.postgres._schema import Database
from arcp_trio.store.postgres._statements import Statement, execute
from arcp_trio.store.postgres._writing_jobs import JobWrites
from arcp_trio.store.postgres._writing_sessions import SessionWrites
from arcp_trio.store.shared_writes import (
    AnswerNode,
    AskAgain,
    AskNode,
    ClaimKey,
    CloseSession,
    DropAnswers,
    DropClaim,
    Follow,
    KeepQuestions,
    ReleaseSession,
    ShowKey,
    Spend,
    SubmitAgain,
    TakeSession,
    Unfollow,
)
from arcp_trio.store.writes import (
    AcceptJob,
    AddSubmitter,
    AppendJournal,
    AppendLog,
    CancelJob,
    DropSession,
    Expire,
    FinishJob,
    KeepCredentials,
    KeepMemo,
    KeepRun,
    KeepSpent,
    MoveFloor,
    PutSession,
    RotateToken,
    StartJob,
    TrimJournal,
    Write,
)

_FENCE: Final = "SELECT fence(%b, %b, %b)"

_FOLLOW: Final = """
    INSERT INTO follow (jid, node) SELECT jid, %(me)b FROM job
    WHERE job_id = ANY(%(0)b::text[]) ON CONFLICT (jid, node) DO NOTHING"""
_UNFOLLOW: Final = """
    DELETE FROM follow USING job
    WHERE job_id = ANY(%(0)b::text[]) AND follow.jid = job.jid AND follow.node = %(me)b"""

_MINE: Final = """
    SELECT session_id FROM session WHERE session_id = ANY(%(wanted)s) AND node = %(me)s
    UNION ALL SELECT job_id FROM job WHERE job_id = ANY(%(wanted)s)
    UNION ALL SELECT job_id FROM key WHERE job_id = ANY(%(wanted)s)"""

_Rows: TypeAlias = Cursor[tuple[Any, ...]]
_Command: TypeAlias = AskNode | AskAgain | AnswerNode | DropAnswers | ShowKey


@attrs.frozen
class Committed:
    """What came of a group that is stored."""

    refused: frozenset[str] = frozenset()
    """Sessions and jobs whose writes were left out, as they are another node's."""
    moved: Mapping[int, Sequence[int]] = attrs.field(factory=dict[int, Sequence[int]])
    """By node, the journals that it follows and that were added to."""
    commanded: frozenset[int] = frozenset()
    """Nodes for which there is a command or an answer."""


class GroupPipeline:
    """Sends one group of writes as one transaction, and waits for the answers once.

    Of writes of one kind a statement has all, so some are stored before others that were put
    earlier, but none before one that it depends on. Writes to a job or a session that is gone are
    dropped: nothing can read them.
    """

    def __init__(self, db: Database, me: int, sent: Callable[[], None]) -> None:
        """Make a pipeline.

        Args:
            db: the connection.
            me: the number of the node.
            sent: called when all is sent, and the answers are waited for.
        """
        self._db = db
        self._me = me
        self._sent = sent
        self._sessions = SessionWrites()
        self._jobs = JobWrites()
        self._follows: dict[str, bool] = {}
        """By job, whether this node follows it from now on."""
        self._claims: list[ClaimKey | DropClaim] = []
        self._commands: list[_Command] = []
        self._wanted: set[str] = set()
        """Sessions and jobs that have to be this node's."""
        self._granted: list[_Rows | None] = []
        """The answers that name those that are."""
        self._followed: list[_Rows | None] = []
        self._commanded: list[_Rows | None] = []

    def store(self, writes: Sequence[Write], number: int) -> Committed:
        """Store the writes as the node's group of this number.

        Raises:
            psycopg.Error: they are not stored, or that is not known. `FENCED` says that the node is
                gone, or that the group before this one is not its last.
        """
        entries = [w.entry for w in writes if isinstance(w, AppendJournal | FinishJob)]
        ordinal = max((entry.ordinal for entry in entries), default=0)
        with self._db.pipeline():  # whose end commits: until then all is one transaction
            self._db.execute(_FENCE, (self._me, number, ordinal))
            for write in writes:
                if type(write) is AppendJournal:  # most are
                    self._jobs.append(write)
                else:
                    self._gather(write)
            self._send()
            self._sent()
        return Committed(
            refused=frozenset(self._wanted.difference(*map(_firsts, self._granted))),
            moved=_by_first(self._followed),
            commanded=frozenset[int]().union(*map(_firsts, self._commanded)),
        )

    def found_stored(self, writes: Sequence[Write]) -> Committed:
        """Return what came of a group that turns out to be stored already.

        What is another node's by now counts as refused. Whom to wake is no longer known.
        """
        sessions, jobs = SessionWrites(), JobWrites()
        for write in writes:
            if (function := _FUNCTIONS.get(type(write))) is not None:
                function(sessions, jobs, write)
        claimed = {write.job_id for write in writes if isinstance(write, ClaimKey)}
        wanted = sessions.ids() | jobs.ids() | claimed
        mine = self._db.execute(_MINE, {"wanted": [*wanted], "me": self._me})
        return Committed(refused=frozenset(wanted - _firsts(mine)))

    def _gather(self, write: Write) -> None:
        if self._comes_later(write):
            self._send()
        function = _FUNCTIONS.get(type(write))
        if function is not None:
            function(self._sessions, self._jobs, write)
            return
        match write:
            case Follow() | Unfollow():
                self._follows[write.job_id] = isinstance(write, Follow)
            case ClaimKey() | DropClaim():
                self._claims.append(write)
            case AskNode() | AskAgain() | AnswerNode() | DropAnswers() | ShowKey():
                self._commands.append(write)
            case _:
                assert type(write) is Expire, write  # no statement of the group's

    def _comes_later(self, write: Write) -> bool:
        """Return whether a write depends on what the statements for those before it do."""
        sessions, jobs = self._sessions, self._jobs
        match write:
            case AcceptJob():
                child = write.parent is not None
                above = child and (write.parent in jobs.ids() or sessions.watches_change)
                return above or (write.key is not None and jobs.has_key(write.key))
            case ClaimKey():
                return jobs.has_key(write)
            case AppendLog():
                return sessions.begins_again(write) or sessions.is_over(write.session_id)
            case TakeSession() | RotateToken() | MoveFloor():
                return sessions.is_over(write.session_id)
            case _:
                return False

    def _send(self) -> None:
        """Send the statements for what was gathered."""
        sessions, jobs = self._sessions, self._jobs
        self._wanted |= sessions.ids() | jobs.ids()
        for statement in sessions.beginning():
            self._execute(statement)
        # In the order of their keys, so that no two groups wait for each other.
        claims = sorted(self._claims, key=lambda claim: (claim.principal, claim.key))
        self._granted += map(self._claim, claims)
        self._execute(jobs.sessions())
        self._granted.append(self._execute(jobs.acceptances()))
        for statement in jobs.rest():
            self._execute(statement)
        self._granted.append(sessions.change(self._db, self._me))
        for statement in sessions.rest():
            self._execute(statement)
        self._execute((_FOLLOW, self._followed_jobs(begins=True)))
        self._execute((_UNFOLLOW, self._followed_jobs(begins=False)))
        self._followed.append(self._execute(jobs.journals()))
        self._commanded += map(self._command, self._commands)
        self._sessions, self._jobs = SessionWrites(), JobWrites()
        self._follows, self._claims, self._commands = {}, [], []

    def _followed_jobs(self, *, begins: bool) -> list[tuple[str]]:
        return [(job_id,) for job_id, follows in self._follows.items() if follows is begins]

    def _execute(self, statement: Statement) -> _Rows | None:
        return execute(self._db, statement, self._me)

    def _claim(self, write: ClaimKey | DropClaim) -> _Rows | None:
        values = {"me": self._me, **msgspec.structs.asdict(write)}
        if isinstance(write, ClaimKey):
            self._wanted.add(write.job_id)
            return self._db.execute(_keys.CLAIM, values)
        self._db.execute(_keys.DROP_CLAIM, values)
        return None

    def _command(self, write: _Command) -> _Rows | None:
        values = {"me": self._me, **msgspec.structs.asdict(write)}
        match write:
            case AskNode():
                return self._db.execute(_commands.ASK, values)
            case AskAgain():
                return self._db.execute(_commands.ASK_AGAIN, values)
            case AnswerNode():
                return self._db.execute(_commands.ANSWER, values)
            case DropAnswers():
                self._db.execute(_commands.DROP, {**values, "numbers": list(write.numbers)})
                return None
            case ShowKey():
                self._db.execute(_commands.SHOW_KEY, values)
                return None


def _firsts(rows: _Rows | None) -> set[Any]:
    """Return the first values of the rows."""
    return set() if rows is None else {row[0] for row in rows.fetchall()}


def _by_first(answers: Iterable[_Rows | None]) -> dict[int, list[int]]:
    """Return the second values of the rows, by the first ones."""
    found: dict[int, list[int]] = {}
    for rows in answers:
        for first, second in () if rows is None else rows.fetchall():
            found.setdefault(first, []).append(second)
    return found


def _of_session(
    gather: Callable[[SessionWrites, Any], None],
) -> Callable[[SessionWrites, JobWrites, Any], None]:
    return lambda sessions, _, write: gather(sessions, write)


def _of_job(
    gather: Callable[[JobWrites, Any], None],
) -> Callable[[SessionWrites, JobWrites, Any], None]:
    return lambda _, jobs, write: gather(jobs, write)


_FUNCTIONS: Final[Mapping[type[Write], Callable[[SessionWrites, JobWrites, Any], None]]] = {
    PutSession: _of_session(SessionWrites.put_session),
    TakeSession: _of_session(SessionWrites.take),
    RotateToken: _of_session(SessionWrites.rotate_token),
    AppendLog: _of_session(SessionWrites.append_log),
    AddSubmitter: _of_session(SessionWrites.add_submitter),
    MoveFloor: _of_session(SessionWrites.move_floor),
    CloseSession: _of_session(SessionWrites.close),
    SubmitAgain: _of_session(SessionWrites.submit_again),
    DropSession: _of_session(SessionWrites.drop),
    ReleaseSession: _of_session(SessionWrites.release),
    AcceptJob: _of_job(JobWrites.accept),
    StartJob: _of_job(JobWrites.start),
    CancelJob: _of_job(JobWrites.cancel),
    Spend: _of_job(JobWrites.spend),
    KeepQuestions: _of_job(JobWrites.ask),
    AppendJournal: _of_job(JobWrites.append),
    FinishJob: _of_job(JobWrites.finish),
    KeepMemo: _of_job(JobWrites.keep_memo),
    KeepRun: _of_job(JobWrites.keep_run),
    KeepSpent: _of_job(JobWrites.keep_spent),
    TrimJournal: _of_job(JobWrites.trim),
    KeepCredentials: _of_job(JobWrites.keep_credentials),
}
"""What gathers each write, but for those that `GroupPipeline` gathers itself."""
