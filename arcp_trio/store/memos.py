"""What a store keeps of durable jobs, to call their agents again, and of notes, as values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from arcp_trio.wire.envelope import payload_of
from arcp_trio.wire.events import digest

if TYPE_CHECKING:
    from arcp_trio.store.records import Entry


NOTE: Final = "note"
"""The kind of the memo that any job may have: its note, for later jobs."""
NOTE_KEY: Final = '["",1]'
"""The key of a job's note. No step has it, as a step's name has at least one character."""
RESULT: Final = "result"
"""The kind of the memos that say how a streamed result goes on in a later run."""


APPROVAL: Final = "approval"
"""The kind of the memos of what people were asked to approve. No step has their keys either."""


class Memo(msgspec.Struct, frozen=True):
    """What a job remembers under one key, such as a step's result.

    It has a place in the job's journal, but takes no index there: no session is sent it.
    """

    key: str
    kind: str
    """What the key stands for: a step, a sleep, a question, the note, the streamed result."""
    index: int
    """Index of the journal's next entry when the key was remembered first."""
    value: bytes
    """As JSON."""


def memo_size(memo: Memo) -> int:
    """Return how many bytes a memo takes, about."""
    return len(memo.key) + len(memo.value)


def digests(entries: Iterable[Entry]) -> list[tuple[int, bytes]]:
    """Return indexes and digests of those entries that a later run says no more."""
    return [(e.index, digest(payload_of(e.tail))) for e in entries if e.once]


class Durability(msgspec.Struct, frozen=True, kw_only=True):
    """What it takes to call the agent of a durable job again; gone once the job has ended."""

    input: bytes
    """As JSON."""
    max_runtime: float | None = None
    sends_chunks: bool = False
    knows_questions: bool = False
    wants_credentials: bool = False
    forget: bool = False
    run: int = 0
    """How often the agent was called."""
    fruitless_runs: int = 0
    """How many runs in a row, this one included, have come to no memo and to no wait."""
    spent: bytes | None = None
    """What the job and those below it have spent, by currency, as JSON."""


class JournalExtent(msgspec.Struct, frozen=True):
    """What of a journal is kept."""

    first: int
    """Index of the oldest entry."""
    size: int
    """Bytes of tails, about."""
