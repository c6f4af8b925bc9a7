"""Steps, sleeps and tool calls on the job's side: what is remembered of them, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from arcp_trio.runtime.job.durable.memory import done_value
from arcp_trio.runtime.job.events import refuse_tool
from arcp_trio.runtime.job.tools import OpenCall
from arcp_trio.wire.errors import ArcpError
from arcp_trio.wire.events import InvalidEvent
from arcp_trio.wire.ids import new_id

if TYPE_CHECKING:
    from arcp_trio.runtime.job.job import Job
    from arcp_trio.wire.json import JsonLike, JsonObject, JsonValue

STEP: Final = "step"
CALL: Final = "tool call"
SLEEP: Final = "sleep"
CHILD: Final = "delegation"
"""Kinds of memos."""

LOOK_SECONDS: Final = 60.0
"""The time between two looks of a sleeping job at the wall clock."""


async def begin(job: Job, key: str, kind: str) -> JsonObject | None:
    """Begin what a key stands for; return the state that an earlier run has left, or None."""
    await trio.lowlevel.checkpoint_if_cancelled()
    job.refuse_if_suspended()
    job.refuse_if_ending()
    return job.memory.begin(key, kind)


def finish(job: Job, key: str, result: bytes) -> None:
    """Remember a step's result, with no checkpoint: the function has returned.

    Raises:
        ArcpError: the job's end is decided, or the result is too large.
    """
    job.refuse_if_ending()
    job.memory.finish(key, job.journal.length, result, {})


def fail(job: Job, key: str, failed: int, pause: float) -> float:
    """Remember that a call of a step's function has failed; return when it is to be tried again."""
    again_at = job.core.clock.now() + pause
    if not job.suspended:
        job.refuse_if_ending()
        job.memory.change(key, job.journal.length, failed=failed, again_at=again_at)
        job.memory.begin_again(key)
    return again_at


async def pause(job: Job, until: float, most: float) -> None:
    """Sleep until a time of day, for `most` seconds at most: clocks are set back.

    Trio's clock stands still while the machine sleeps, so the wall clock is looked at meanwhile.
    """
    latest = trio.current_time() + most
    seconds = min(until - job.core.clock.now(), most)
    if seconds > 0:
        job.memory.note_progress()
    else:
        await trio.lowlevel.checkpoint()
    while seconds > 0:
        await trio.sleep(min(seconds, LOOK_SECONDS))
        seconds = min(until - job.core.clock.now(), latest - trio.current_time())


async def sleep(job: Job, key: str, seconds: float | None, until: float | None) -> bool:
    """Sleep for a time or until one; return whether an earlier run had begun to."""
    known = await begin(job, key, SLEEP)
    now = job.core.clock.now()
    if known is None or "until" not in known:
        most = seconds if seconds is not None else max(0.0, (until or 0) - now)
        known_before, ends = False, now + most
        job.memory.change(key, job.journal.length, until=ends, most=most)
    else:
        known_before, ends, most = True, seconds_of(known["until"]), seconds_of(known["most"])
    await pause(job, ends, most)
    return known_before


def seconds_of(value: JsonValue) -> float:
    """Return a number of a state that was read back."""
    assert isinstance(value, int | float)
    return float(value)


# -- tool calls


async def begin_call(
    job: Job, key: str, tool: str, args: JsonLike
) -> tuple[JsonObject, OpenCall | None]:
    """Begin a tool call, unless an earlier run has finished it; the caller has it checked.

    A call that was interrupted goes on under the id that it had; its `tool_call` is not said again.

    Returns:
        What an earlier run has left, with the call's id; and the call, unless it was finished.
    """
    refuse_tool(tool)
    state = await begin(job, key, CALL) or {}
    if "done" in state:
        return state, None
    if "call_id" in state:
        call = OpenCall(job, str(state["call_id"]))
        call.go_on(tool)
    else:
        call = OpenCall(job, new_id("call_"))
        call.announce(tool, args)
        job.memory.change(key, job.journal.length, call_id=call.id)
    return {**state, "call_id": call.id}, call


def finish_call(job: Job, key: str, call: OpenCall, result: JsonLike, encoded: bytes) -> None:
    """Emit a tool's result and remember it, in one write and with no checkpoint.

    Raises:
        ArcpError: the job's end is decided, or the result is too large.
    """
    job.refuse_if_ending()
    also = {"call_id": call.id}
    try:
        job.memory.refuse_if_too_large(key, done_value(encoded, also))
        call.finish(result, to_remember=True)
    except (InvalidEvent, ArcpError) as unfit:
        fail_call(job, key, call, unfit)
        raise
    job.memory.finish(key, job.journal.length, encoded, also)


def fail_call(job: Job, key: str, call: OpenCall, error: BaseException) -> None:
    """Emit a tool's error, with no checkpoint; a later run makes another call."""
    if job.suspended:
        call.span.end({})
    else:
        call.fail(error)
        if job.outcome is None:
            job.memory.reset(key, job.journal.length)
