"""What a job remembers: its memos by key, and the events that it has emitted."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import attrs
import trio

from arcp_trio.runtime.job.durable.keys import is_within, key_of, named, path_of
from arcp_trio.runtime.limits import limit_hit, too_large
from arcp_trio.store.memos import APPROVAL, NOTE, NOTE_KEY, RESULT, Memo, memo_size
from arcp_trio.store.writes import KeepMemo, KeepRun
from arcp_trio.wire.events import digest
from arcp_trio.wire.json import dumps, loads_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arcp_trio.runtime.core import Core
    from arcp_trio.store.interface import Reads
    from arcp_trio.store.queue import Group
    from arcp_trio.wire.json import JsonLike, JsonObject, JsonValue

log = logging.getLogger(__name__)


@attrs.define(eq=False)
class Recall:
    """How far the read of what earlier runs of a job have left has come."""

    tried: trio.Event = attrs.field(factory=trio.Event)
    """Set once it is read, or could not be read at the first try."""
    over: trio.Event = attrs.field(factory=trio.Event)
    """Set once it is read, or given up."""

    def end(self) -> None:
        """Let all go on that wait for it."""
        self.tried.set()
        self.over.set()


@attrs.define(eq=False)
class Memory:
    """The memory of one job. If the job is not durable, only its note is stored."""

    core: Core
    job_id: str
    durable: bool
    run: int = 1
    """Which call of the agent this is."""
    fruitless_runs: int = 1
    """How many runs in a row, up to this one, have made no memo and reached no wait."""
    recall: Recall | None = None
    """The read of what earlier runs have left; None if there were none."""
    waits: bool = False
    """The agent is yet to be called again: its next run does not count, so far."""
    progressed: trio.Event = attrs.field(factory=trio.Event)
    """Set once this run has made a memo, or waits."""
    result: list[JsonObject] = attrs.field(factory=list["JsonObject"])
    """What earlier runs have left of a streamed result, until this run goes on with it."""
    _known: dict[str, Memo] = attrs.field(factory=dict[str, Memo])
    """The memos of earlier runs that this one has not reached."""
    _approvals: dict[str, JsonObject] = attrs.field(factory=dict[str, "JsonObject"])
    """What earlier runs have asked people to approve where this one has not come yet."""
    _asked: set[str] = attrs.field(factory=set[str])
    """The keys that this run has used."""
    _recalled: set[str] = attrs.field(factory=set[str])
    """The keys that an earlier run had finished: nothing inside of these is reached."""
    _open: dict[str, tuple[str, JsonObject]] = attrs.field(
        factory=dict[str, tuple[str, "JsonObject"]]
    )
    """Kind and state of what this run has begun and not finished, by key."""
    _inner: dict[str, Memo] = attrs.field(factory=dict[str, Memo])
    """What this run has finished, or found finished, inside of a step that is open."""
    _sizes: dict[str, int] = attrs.field(factory=dict[str, int])
    """Bytes of each memo."""
    _size: int = 0
    """Bytes of all memos."""
    _told: dict[bytes, list[int]] = attrs.field(factory=dict[bytes, list[int]])
    """Indexes of events that earlier runs have emitted and this one has not, by digest."""
    _last: Group | None = None
    """The store's group in which the newest memo is."""

    # -- from earlier runs

    async def until_recalled(self) -> None:
        """Wait until what earlier runs have left is read, or given up."""
        if self.recall is not None:
            await self.recall.over.wait()

    async def is_known(self) -> bool:
        """Return whether what earlier runs have left is read, after the first try at the latest."""
        if self.recall is None:
            return True
        await self.recall.tried.wait()
        return self.recall.over.is_set()

    async def load(self, reads: Reads) -> None:
        """Read what earlier runs have left."""
        memos = await reads.memos(self.job_id)
        self.result = [loads_object(memo.value) for memo in memos if memo.kind == RESULT]
        for memo in memos:
            if memo.kind == APPROVAL:
                self._approvals[memo.key] = loads_object(memo.value)
            elif memo.kind not in (NOTE, RESULT):
                self._known[memo.key] = memo
            self._note_size(memo)
        self._told.clear()  # the store may have failed in between, before
        index: int | None = 0
        while index is not None:
            piece, index = await reads.said(self.job_id, index)
            for at, known in piece:
                self._told.setdefault(known, []).append(at)

    def passes_over(self, event: bytes) -> bool:
        """Return whether an earlier run has emitted this event; each of its events counts once."""
        if not self._told:
            return False
        known = digest(event)
        indexes = self._told.get(known)
        if indexes is None:
            return False
        indexes.pop()
        if not indexes:
            del self._told[known]
        return True

    @property
    def last_finished(self) -> str | None:
        """The last step that earlier runs have finished, for people to read."""
        finished = [key for key, memo in self._known.items() if _is_done(memo)]
        return named(finished[-1]) if finished else None

    def unfinished(self, kind: str) -> list[tuple[str, JsonObject]]:
        """Return keys and states of what earlier runs have begun of a kind and not finished."""
        states = [
            (key, loads_object(memo.value))
            for key, memo in self._known.items()
            if memo.kind == kind
        ]
        return [(key, state) for key, state in states if "done" not in state]

    def warn_of_the_rest(self, facts: Mapping[str, object]) -> None:
        """Warn of what earlier runs have done and this one, which has returned, has not."""
        missed = next((key for key in self._known if not self._is_inside_recalled(key)), None)
        if missed is not None:
            place = named(missed)
        elif self._told:
            place = f"the event at index {min(map(min, self._told.values()))}"
        else:
            return
        log.warning(
            "agent has not reached what it did in an earlier run", extra={**facts, "place": place}
        )

    def _is_inside_recalled(self, key: str) -> bool:
        return any(each in self._recalled for each in _above(key))

    def is_done(self, key: str) -> bool:
        """Return whether an earlier run has finished a step, or one around it."""
        return any(
            each in self._recalled or (each in self._known and _is_done(self._known[each]))
            for each in (*_above(key), key)
        )

    # -- keys

    def begin(self, key: str, kind: str) -> JsonObject | None:
        """Begin what a key stands for; return the state that an earlier run has left, or None.

        Raises:
            ValueError: this run has used the key before.
            RuntimeError: the key stood for something else in an earlier run.
        """
        if key in self._asked:
            raise ValueError(
                f"step {named(key)} comes twice: give steps of tasks that run side by side names"
                " of their own"
            )
        self._asked.add(key)
        memo = self._known.pop(key, None)
        if memo is None:
            self._open[key] = kind, {}
            return None
        if memo.kind != kind:
            raise RuntimeError(
                f"{named(key)} is a {kind} now and was a {memo.kind} in an earlier run: the code"
                " outside of steps must do the same in each run, or the agent get another version"
            )
        state = loads_object(memo.value)
        if "done" in state:
            self._recalled.add(key)
            self._note_inner(memo)
        else:
            self._open[key] = kind, state
        return state

    def change(self, key: str, index: int, **changes: JsonValue) -> None:
        """Remember more of something that is open.

        Raises:
            InternalError: it is too much.
        """
        kind, state = self._open[key]
        state = {**state, **changes}
        new = key not in self._sizes
        self._store(Memo(key, kind, index, dumps(state)))
        self._open[key] = kind, state
        if new:  # else each run could come to it, fail, and count as progress
            self.note_progress()

    def reset(self, key: str, index: int) -> None:
        """Let a later run begin again what has failed."""
        kind, _ = self._open.pop(key)
        self._store(Memo(key, kind, index, b"{}"))

    def finish(self, key: str, index: int, done: bytes, also: Mapping[str, JsonValue]) -> None:
        """Remember the result of something that is open, as JSON.

        Raises:
            InternalError: it is too much.
        """
        kind, _ = self._open[key]
        memo = Memo(key, kind, index, done_value(done, also))
        self._keep(memo)
        del self._open[key]
        self._note_inner(memo)

    def settle(self, key: str, index: int, value: bytes) -> None:
        """Remember the outcome of a question, whether or not this run has reached it.

        Raises:
            InternalError: it is too much.
        """
        if key in self._open:
            kind, _ = self._open[key]
            memo = Memo(key, kind, index, value)
            self._keep(memo)
            del self._open[key]
            self._note_inner(memo)
        else:
            # This is not progress: the run may still be a fruitless one.
            memo = Memo(key, self._known[key].kind, index, value)
            self._store(memo)
            self._known[key] = memo

    def begin_again(self, key: str) -> None:
        """Let a step whose function is called again find what is inside of it, as a later run."""
        for each in [asked for asked in self._asked if is_within(asked, key) and asked != key]:
            self._asked.remove(each)
            if each in self._inner:
                self._known[each] = self._inner.pop(each)
            elif each in self._open:
                kind, state = self._open.pop(each)
                if each in self._sizes:
                    self._known[each] = Memo(each, kind, 0, dumps(state))

    def _note_inner(self, memo: Memo) -> None:
        if _above(memo.key):
            self._inner[memo.key] = memo
        else:
            self._inner = {
                key: inner for key, inner in self._inner.items() if not is_within(key, memo.key)
            }

    # -- approvals

    def unreached_approvals(self) -> list[tuple[str, JsonObject]]:
        """Return keys and states of what earlier runs have asked people to approve."""
        return [(key, state) for key, state in self._approvals.items() if state]

    def has_approval(self, key: str) -> bool:
        """Return whether an earlier run has asked people to approve something under a key."""
        return bool(self._approvals.get(key))

    def reach_approval(self, key: str) -> JsonObject | None:
        """Return what an earlier run has asked people to approve under a key, once."""
        return self._approvals.pop(key, None) or None

    def keep_approval(self, key: str, index: int, state: JsonObject) -> None:
        """Remember what people are asked to approve, and what they have decided; {} forgets it.

        Raises:
            InternalError: it is too much.
        """
        self._store(Memo(key, APPROVAL, index, dumps(state)))
        if key in self._approvals:
            self._approvals[key] = state

    # -- the note

    def keep_note(self, index: int, value: bytes) -> None:
        """Store the job's note, in place of the one before.

        Raises:
            InternalError: it is too much.
        """
        self._store(Memo(NOTE_KEY, NOTE, index, value))

    def keep_result(self, index: int, value: Mapping[str, JsonLike], *which: str | int) -> None:
        """Store how the streamed result goes on in a later run; `which` tells the memos apart.

        Raises:
            InternalError: it is too much.
        """
        if self.durable:
            self._store(Memo(key_of(("", RESULT, *which)), RESULT, index, dumps(value)))

    def refuse_if_too_large(self, key: str, value: bytes) -> None:
        """Refuse a memo that exceeds the limits.

        Raises:
            InternalError: a limit is reached.
        """
        limits, metrics = self.core.limits, self.core.metrics
        if len(value) > limits.memo_bytes:
            helps = "keep it in a file, and return its path"
            helps = too_large("what is to be remembered", len(value), limits.memo_bytes, helps)
            raise metrics.refused(limit_hit("memo_bytes", limits.memo_bytes, what_helps=helps))
        size = self._size - self._sizes.get(key, 0) + len(key) + len(value)
        if size > limits.memos_bytes:
            raise metrics.refused(limit_hit("memos_bytes", limits.memos_bytes))

    def _keep(self, memo: Memo) -> None:
        self._store(memo)
        self.note_progress()

    def _store(self, memo: Memo) -> None:
        self.refuse_if_too_large(memo.key, memo.value)
        self._note_size(memo)
        if self.durable or memo.kind == NOTE:
            self._last = self.core.store.put(KeepMemo(self.job_id, memo))

    def _note_size(self, memo: Memo) -> None:
        size = memo_size(memo)
        self._size += size - self._sizes.get(memo.key, 0)
        self._sizes[memo.key] = size

    async def kept(self) -> None:
        """Wait until all that was to be remembered is stored."""
        if self._last is None:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            await self._last.committed()

    # -- runs

    def note_progress(self) -> None:
        """Note that this run has made progress: it does not count as fruitless."""
        if not self.progressed.is_set():
            self.progressed.set()
            self.fruitless_runs = 0
            if self.durable:
                self.core.store.put(KeepRun(self.job_id, self.run, 0))

    def next_run(self, *, called: bool) -> Group:
        """Store that the agent is about to be called again; without `called` it never was."""
        self.waits = False
        self.run += called
        self.fruitless_runs += 1
        return self.core.store.put(KeepRun(self.job_id, self.run, self.fruitless_runs))

    def suspend(self) -> None:
        """Store that this run was ended in order: it does not count as fruitless."""
        if self.fruitless_runs and not self.waits:
            self.core.store.put(KeepRun(self.job_id, self.run, self.fruitless_runs - 1))


def _above(key: str) -> list[str]:
    """Return the keys of the steps around a step, from the outermost on."""
    path = path_of(key)
    return [dumps(path[:end]).decode() for end in range(2, len(path), 2)]


def _is_done(memo: Memo) -> bool:
    return b'"done":' in memo.value


def done_value(done: bytes, also: Mapping[str, JsonValue]) -> bytes:
    """Return the value of a memo of something that is done: its result, as JSON, and more."""
    rest = dumps(dict(also))[1:-1]
    return b'{%b%b"done":%b}' % (rest, b"," if rest else b"", done)
