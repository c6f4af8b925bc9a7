"""Notes: what a job keeps for later jobs of its principal; and names that one of them holds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import trio

from arcp_trio.store.memos import NOTE_KEY
from arcp_trio.store.shared_writes import ClaimKey, DropClaim
from arcp_trio.wire.json import MAX_DEPTH, JsonLike, JsonValue, dumps, loads
from arcp_trio.wire.rules import VENDOR

if TYPE_CHECKING:
    from arcp_trio.runtime.job.job import Job

NOTE_BYTES: Final = 64 * 1024
"""How large a note is at most, as JSON."""


def note_of(value: JsonLike) -> str:
    """Return a note as JSON.

    Raises:
        TypeError: it is not JSON.
        ValueError: it is too large.
    """
    try:
        text = dumps(value, max_depth=MAX_DEPTH - 1)  # it stands in a list of arguments
    except ValueError as error:
        raise TypeError(f"a note is JSON: {error}") from error
    if len(text) > NOTE_BYTES:
        raise ValueError(f"a note has at most {NOTE_BYTES} bytes, not {len(text)}")
    return text.decode()


async def keep(job: Job, note: str) -> None:
    """Store a job's note, in place of the one before, and return when that is done.

    Raises:
        ArcpError: the job has ended, or what it remembers is too large.
    """
    await trio.lowlevel.checkpoint_if_cancelled()
    job.refuse_if_suspended()
    job.refuse_if_ended()
    job.memory.keep_note(job.journal.length, note.encode())
    with job.over.ends_waits():
        await job.memory.kept()


async def kept(job: Job, job_id: str) -> JsonValue:
    """Return the note of a job of the same principal; None if there is no such job or note."""
    reads = job.core.store.for_principal(job.principal)
    if await reads.owner(job_id) != job.principal:
        return None
    memo = await reads.memo(job_id, NOTE_KEY)
    return None if memo is None else loads(memo.value)


async def hold(job: Job, name: str) -> str | None:
    """Hold a name for a job, so that no job at another node does; return the one that has it.

    The hold ends with `release`, or with this node. Without other nodes, nothing is held.
    """
    shared = job.core.store.shared
    if shared is None:
        return None
    key = _key_of(name)
    claim = ClaimKey(job.principal, key, b"", job.id, math.inf)
    claimed = job.core.store.put(claim)
    try:
        await claimed.committed()
        if job.id not in claimed.refused:
            return None
        return await shared.claimant(job.principal, key) or "a job that has just ended"
    except BaseException:
        release(job, name)  # the claim may still be stored
        raise


def release(job: Job, name: str) -> None:
    """Hold a name no longer."""
    if job.core.store.shared is not None:
        job.core.store.put(DropClaim(job.principal, _key_of(name), job.id))


def _key_of(name: str) -> str:
    """Return the key that stands for a name among those of jobs."""
    return f"{VENDOR} {name}"
