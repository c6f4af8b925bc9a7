"""How an event gets into a job's journal: checked, encoded and counted in one step (§8)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from arcp_trio.runtime.job import costs
from arcp_trio.runtime.job.durable.places import Telling
from arcp_trio.runtime.job.result_chunks import ResultChunks
from arcp_trio.runtime.limits import limit_hit, too_large
from arcp_trio.wire import events
from arcp_trio.wire.errors import ArcpError, JobCancelled, clip
from arcp_trio.wire.event_bodies import ResultChunkBody
from arcp_trio.wire.events import InvalidEvent
from arcp_trio.wire.questions import APPROVAL, APPROVED, DECISION, QUESTION, RUNTIME_TOOLS
from arcp_trio.wire.rules import VENDOR
from arcp_trio.wire.timestamps import rfc3339

if TYPE_CHECKING:
    from arcp_trio.runtime.job.job import Job
    from arcp_trio.wire.json import JsonLike

MOST_OPEN_CALLS: Final = 10_000
"""Calls that one job is known to have begun and not ended, at most; they are ended in one step."""

_OF_THE_RUNTIME: Final = (APPROVAL, APPROVED, "credential_rotated")
"""Phases that clients act upon."""

EMITS_PER_CHECKPOINT: Final = 64
"""How many emits of a job one checkpoint is for; the others only look for cancellation."""


async def emit(
    job: Job, kind: str, body: Mapping[str, JsonLike], telling: Telling = Telling.ALWAYS
) -> None:
    """Add an agent's event to the journal in one step; then give way, or wait for the store.

    Raises:
        BudgetExhausted: it is a cost beyond the budget; it was added.
        InvalidEvent: it is wrong, or looks like one of the runtime's; nothing was added.
        ArcpError: it was not added.
    """
    if f"{kind}".startswith(f"{VENDOR}."):
        helps = "job.ask emits it" if kind == QUESTION else "only the runtime emits it"
        raise InvalidEvent(f"{clip(kind)}: {helps}")
    if not hasattr(body, "keys"):
        raise InvalidEvent(f"{clip(kind)}: expected an object @ $")
    for name in body:
        if f"{name}".startswith(VENDOR):
            raise InvalidEvent(f"{kind}: only the runtime sets {clip(name)} @ $")
    if kind == "status" and body.get("phase") in _OF_THE_RUNTIME:
        raise InvalidEvent(f"status: only the runtime tells of {body['phase']} @ $.phase")
    if kind == "tool_call":
        refuse_tool(body.get("tool"))
    if kind == "tool_result" and job.questions.waits(body.get("call_id")):
        raise InvalidEvent("tool_result: the call waits for the answer of a person @ $.call_id")
    if kind == "result_chunk" and job.memory.durable and telling is Telling.ALWAYS:
        raise InvalidEvent(f"{kind}: emit it outside of steps, or use job.stream_result() @ $")
    charged = add_event(job, kind, body, telling)
    error = None if charged is None else costs.overspent(job, charged)
    await give_way(job)
    if error is not None:
        raise error


def refuse_tool(tool: JsonLike) -> None:
    """Refuse the name of a tool under which the runtime tells what it does."""
    if isinstance(tool, str) and tool in RUNTIME_TOOLS:
        raise InvalidEvent(f"tool_call: only the runtime tells of calls of {tool} @ $.tool")


def add_event(
    job: Job,
    kind: str,
    body: Mapping[str, JsonLike],
    telling: Telling = Telling.ALWAYS,
    *,
    to_remember: bool = False,
) -> costs.Charge | None:
    """Add an event to the journal, and take what it says was spent off the budgets.

    An event that an earlier run of a durable job has emitted is skipped. A job that is suspended
    emits nothing but results `to_remember`.

    Raises:
        InvalidEvent: the body is not what its kind wants; nothing was added.
        ArcpError: the event is too large, or the job has ended.
    """
    body, payload = _as_told(job, kind, _with_decision(job, kind, body))
    if kind == "result_chunk" and not _take_chunk(job, body):
        return None
    if job.suspended and not to_remember:
        return None
    if telling is Telling.UNLESS_TOLD and job.memory.passes_over(payload):
        return None
    charged = costs.charge(job, body) if kind == "metric" else None
    _append(job, kind, body, payload, once=telling is not Telling.ALWAYS)
    if kind in ("tool_call", "tool_result"):
        _note_call(job, kind, body["call_id"])
    if kind == "metric" and costs.is_cost(body):
        costs.keep_spent(job)
    if kind != "result_chunk":
        job.last_event.note(kind, body, payload)
    if charged is not None:
        for each, metric in costs.remaining(job, charged):
            _append(each, "metric", metric, _encoded(each, "metric", metric))
    if kind == "metric" and (told := costs.almost_cost(job, body)) is not None:
        with suppress(ArcpError):  # frames may have to be smaller than the warning
            add_event(job, "log", {"level": "warn", "message": told})
    return charged


def _with_decision(job: Job, kind: str, body: Mapping[str, JsonLike]) -> Mapping[str, JsonLike]:
    """Return the result of a call with what people have decided on it; any other body as it is."""
    if kind != "tool_result" or not job.questions.decided:
        return body
    told = job.questions.decided.get(f"{body.get('call_id')}")
    return body if told is None else {**body, DECISION: told}


def _note_call(job: Job, kind: str, call_id: JsonLike) -> None:
    assert isinstance(call_id, str), "the body was checked"
    if kind == "tool_result":
        job.open_calls.discard(call_id)
        job.questions.decided.pop(call_id, None)
    elif len(job.open_calls) < MOST_OPEN_CALLS:
        job.open_calls.add(call_id)


def close_calls(job: Job) -> None:
    """End the calls that have no result, as the job is about to end (§8.2)."""
    if not job.open_calls:
        return
    error = JobCancelled("the job has ended before this call").payload()
    for call_id in sorted(job.open_calls):
        with suppress(ArcpError):  # an id may leave no room for the error
            add_event(job, "tool_result", {"call_id": call_id, "error": error})


def _append(
    job: Job, kind: str, body: Mapping[str, JsonLike], payload: bytes, *, once: bool = False
) -> None:
    feature = events.feature_of(kind, body)
    job.journal.append("job.event", payload, feature=feature, once=once)


def add_event_with_holes(job: Job, kind: str, body: Mapping[str, JsonLike]) -> None:
    """Add an event whose secrets are filled in as it is sent."""
    job.journal.append("job.event", _encoded(job, kind, body), holes=True)


def _as_told(
    job: Job, kind: str, body: Mapping[str, JsonLike]
) -> tuple[Mapping[str, JsonLike], bytes]:
    """Return the body that is told, and the event's payload."""
    payload = _encoded(job, kind, body)
    meant = costs.as_meant(body) if kind == "metric" else body
    return meant, payload if meant is body else _encoded(job, kind, meant)


def _encoded(job: Job, kind: str, body: Mapping[str, JsonLike]) -> bytes:
    payload = events.encode_event(kind, body, rfc3339(job.core.clock.now()))
    if len(payload) > job.most_payload_bytes:
        most, helps = job.core.limits.frame_bytes_out, "emit where it is, as an artifact_ref"
        helps = too_large(f"the event {kind}", len(payload), job.most_payload_bytes, helps)
        raise job.core.metrics.refused(limit_hit("frame_bytes_out", most, what_helps=helps))
    job.refuse_if_ended()
    return payload


def _take_chunk(job: Job, body: Mapping[str, JsonLike]) -> bool:
    """Count a chunk of the result; return whether it goes on the wire."""
    chunk = events.read_body("result_chunk", body)
    assert isinstance(chunk, ResultChunkBody)
    if job.chunks is None:
        job.chunks = ResultChunks(chunk.result_id)
    job.chunks.take(job, chunk)
    return job.spec.sends_chunks


async def give_way(job: Job, *, at_once: bool = False) -> None:
    """Wait until the journals are within their bounds and the store has room for more.

    If there is nothing to wait for, let other tasks run: now and then, or `at_once`.
    """
    job.emits += 1
    each: Job | None = job
    while each is not None:  # a cost adds to the journals of the ancestors, too
        if each.journal.over:
            with job.over.ends_waits():
                await each.journal.fit()
        each = each.parent
    if job.core.store.full:
        with job.over.ends_waits():
            await job.core.store.room(job.principal)
    elif at_once or job.emits % EMITS_PER_CHECKPOINT == 0:
        await trio.lowlevel.checkpoint()
    else:
        await trio.lowlevel.checkpoint_if_cancelled()
