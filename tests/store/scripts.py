"""Scripts: writes as a runtime could put them, at random."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from arcp_trio.store.memos import Durability, Memo
from arcp_trio.store.records import Entry, LogItem, Mark, Range, Status
from arcp_trio.store.writes import (
    AcceptJob,
    AddSubmitter,
    AppendJournal,
    AppendLog,
    CancelJob,
    DropSession,
    FinishJob,
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
from tests.store.engines import job_row, key_row, session_row

WRITES: Final = 150
MOST_TOGETHER: Final = 40


class SessionPlan:
    """A session as the script has it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.top = 0
        self.floor = 0
        self.row = 0
        self.tokens = 1
        self.cursors: dict[str, int] = {}
        self.reached: dict[str, int] = {}
        """Cursors of watches that have ended: no entry is numbered twice."""


class JobPlan:
    """A job as the script has it."""

    def __init__(self, name: str, *, durable: bool) -> None:
        self.name = name
        self.durable = durable
        self.length = 0
        self.base = 0
        self.over = False


class Script:
    """Writes as a runtime could put them, at random."""

    def __init__(self, seed: int) -> None:
        self.writes: list[Write] = []
        self.sessions: dict[str, SessionPlan] = {}
        self.jobs: dict[str, JobPlan] = {}
        self.told: set[tuple[str, str]] = set()
        """Sessions and jobs: the session's log has the promise of the job."""
        self._random = random.Random(seed)
        self._ordinal = 0
        self._open()
        self._accept()
        while len(self.writes) < WRITES:
            self._random.choice(self._moves())()

    def groups(self) -> list[list[Write]]:
        """Return the writes in groups of any size."""
        found, rest = [], self.writes
        while rest:
            count = self._random.randint(1, MOST_TOGETHER)
            found.append(rest[:count])
            rest = rest[count:]
        return found

    def _moves(self) -> list[Callable[[], None]]:
        often = [self._emit, self._emit, self._number, self._number, self._number, self._remember]
        seldom = [self._open, self._drop, self._rotate, self._accept, self._delegate, self._finish]
        return [*often, *often, *seldom, self._start, self._cancel, self._floor, self._trim]

    # -- sessions

    def _session(self) -> SessionPlan:
        if not self.sessions:
            self._open()
        return self._random.choice(list(self.sessions.values()))

    def _open(self) -> None:
        plan = SessionPlan(f"S{len(self.writes)}")
        self.sessions[plan.name] = plan
        self.writes.append(PutSession(session_row(plan.name, token=f"{plan.name}.0".encode())))

    def _drop(self) -> None:
        if len(self.sessions) > 1:
            plan = self._session()
            del self.sessions[plan.name]
            self.writes.append(DropSession(plan.name))

    def _rotate(self) -> None:
        plan = self._session()
        digests = [f"{plan.name}.{n}".encode() for n in range(plan.tokens - 1, plan.tokens + 1)]
        plan.tokens += 1
        features = frozenset({"ack", f"f{plan.tokens}"})
        self.writes.append(
            RotateToken(plan.name, digests[1], (digests[0],), features, "standard", "inf mark")
        )

    def _floor(self) -> None:
        plan = self._session()
        plan.floor = self._random.randint(plan.floor, plan.top)
        self.writes.append(MoveFloor(plan.name, plan.floor, acked=True))

    def _number(self) -> None:
        """Number some of what a session is owed, begin a watch, or end one."""
        plan = self._session()
        items: list[LogItem] = []
        watched, ended, observed, cursors = [], [], [], {}
        for job in self._random.sample(list(self.jobs.values()), min(2, len(self.jobs))):
            if job.name not in plan.cursors:
                plan.cursors[job.name] = plan.reached.get(job.name, 0)
                watched.append(job.name)
                items.append(Mark(plan.top, plan.row, f"accepted {job.name}".encode()))
                if self._random.random() < 0.3:
                    observed.append(job.name)
                else:
                    self.told.add((plan.name, job.name))
            cursor = max(plan.cursors[job.name], job.base)
            count = self._random.randint(0, job.length - cursor)
            if count:
                items.append(Range(plan.top + 1, job.name, cursor, count))
                plan.top += count
            plan.cursors[job.name] = cursors[job.name] = cursor + count
            if self._random.random() < 0.2:
                ended.append(job.name)
                plan.reached[job.name] = plan.cursors.pop(job.name)
        size = sum(item.size for item in items)
        self.writes.append(
            AppendLog(plan.name, plan.row, items, plan.top, cursors, watched, ended, observed, size)
        )
        plan.row += 1

    # -- jobs

    def _job(self) -> JobPlan:
        running = [job for job in self.jobs.values() if not job.over]
        if not running:
            self._accept()
            return self._job()
        return self._random.choice(running)

    def _accept(self, parent: JobPlan | None = None) -> None:
        session = self._session()
        plan = JobPlan(f"J{len(self.writes)}", durable=self._random.random() < 0.5)
        self.jobs[plan.name] = plan
        row = replace(job_row(plan.name, session_id=session.name), created_at=len(self.writes))
        key = key_row(plan.name, key=plan.name) if self._random.random() < 0.3 else None
        durability = Durability(input=b"1") if plan.durable else None
        above = None if parent is None else parent.name
        self.writes.append(AcceptJob(row, key, above, durability))
        if self._random.random() < 0.3:
            session = self._session()
            self.writes.append(AddSubmitter(plan.name, session.name))
            self.told.add((session.name, plan.name))

    def _delegate(self) -> None:
        self._accept(self._job())

    def _start(self) -> None:
        self.writes.append(StartJob(self._job().name, float(len(self.writes))))

    def _cancel(self) -> None:
        self.writes.append(CancelJob(self._job().name, f"reason {len(self.writes)}"))

    def _entry(self, job: JobPlan, *, terminal: bool = False) -> Entry:
        self._ordinal += 1
        job.length += 1
        told = f"{job.name}:{job.length - 1}".encode()
        return Entry(job.length - 1, self._ordinal, told, None, terminal)

    def _emit(self) -> None:
        job = self._job()
        for _ in range(self._random.randint(1, 3)):
            self.writes.append(AppendJournal(job.name, self._entry(job)))

    def _finish(self) -> None:
        job = self._job()
        job.over = True
        end = self._entry(job, terminal=True)
        at = float(len(self.writes))
        self.writes.append(
            FinishJob(job.name, Status.SUCCESS, at, end, last_event="bye\0", durable=job.durable)
        )

    def _remember(self) -> None:
        job = self._job()
        number = len(self.writes)
        memo = Memo(f"step {number % 3}", "step", job.length, str(number).encode())
        self.writes.append(KeepMemo(job.name, memo))
        if job.durable:
            self.writes += [
                KeepRun(job.name, number, number % 2),
                KeepSpent(job.name, str(number).encode()),
            ]

    def _trim(self) -> None:
        job = self._job()
        job.base = self._random.randint(job.base, job.length)
        self.writes.append(TrimJournal(job.name, job.base))
