"""Delegation: a job gives work, and a part of its lease, to another agent (§10)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from arcp_trio.authority.grants import DELEGATE
from arcp_trio.authority.lease import Lease
from arcp_trio.authority.narrowing import narrowed
from arcp_trio.runtime.job.acceptance import accept
from arcp_trio.runtime.job.approvals import decided_alone
from arcp_trio.runtime.job.durable import steps
from arcp_trio.runtime.job.durable.keys import key_of
from arcp_trio.runtime.job.events import add_event, give_way
from arcp_trio.runtime.job.granting import decided_lease
from arcp_trio.runtime.job.spec import JobSpec
from arcp_trio.runtime.job.stored_results import stored_result
from arcp_trio.runtime.limits import limit_hit
from arcp_trio.store.records import Status
from arcp_trio.wire.agent_ref import parse_agent_ref
from arcp_trio.wire.errors import (
    ApprovalNeeded,
    ArcpError,
    InternalError,
    InvalidRequest,
    JobCancelled,
    JobFailed,
    JobTimedOut,
    clip,
    error_from_payload,
)
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.json import JsonLike, JsonValue, dumps, loads
from arcp_trio.wire.lease_request import Amount, decimal_text, lease_request, need_mapping
from arcp_trio.wire.timestamps import rfc3339

if TYPE_CHECKING:
    from arcp_trio.authority.approvals import Approval
    from arcp_trio.runtime.job.agent import Agent
    from arcp_trio.runtime.job.job import Job

log = logging.getLogger(__name__)

_FAILURES: Final[Mapping[Status, type[ArcpError]]] = {
    Status.CANCELLED: JobCancelled,
    Status.TIMED_OUT: JobTimedOut,
}


async def result_of(parent: Job, child_id: str) -> JsonValue | bytes:
    """Wait for the end of a child and return what its agent returned, or streamed.

    Raises:
        JobFailed, JobCancelled, JobTimedOut: the child did not succeed.
        InternalError: what it streamed is no longer stored.
    """
    child = parent.children.remembered(child_id) or parent.jobs.live.get(child_id)
    if child is None:
        return await stored_result(parent.core, child_id, _failure)
    if child.outcome is None:
        parent.memory.note_progress()
    await child.over.wait()
    outcome = child.outcome
    if outcome is None:
        await trio.sleep_forever()  # it is suspended, and so is its parent
    assert outcome is not None
    if outcome.error is not None:
        raise _failure(outcome.status, outcome.error)
    if child.chunks is not None:
        return await child.chunks.whole(child)
    return loads(outcome.result)


def _failure(status: Status, error: ArcpError) -> ArcpError:
    """Return the error of a child as its parent gets it."""
    return _FAILURES.get(status, JobFailed)(
        error.message, details=error.details, retryable=error.retryable, code=error.code
    )


async def delegate(
    parent: Job,
    agent: str,
    input: JsonLike,  # noqa: A002 - its name on the wire
    *,
    lease: Mapping[str, Sequence[str]] | None,
    budget: Mapping[str, Amount] | None,
    expires_in: float | None,
    max_runtime: float | None,
    key: str,
) -> str:
    """Emit `delegate`, then accept the child, or emit why it is refused; return the child's id.

    A durable job remembers the child under `key`: a later run gets the same.
    """
    need_mapping("budget", budget, '{"USD": "5.00"}')
    parent.refuse_if_suspended()
    delegate_id = new_id("del_")
    if not parent.memory.durable:
        key = key_of((delegate_id, 1))  # nothing is stored, so that a name may come twice
    state = parent.memory.begin(key, steps.CHILD) or {}
    if "done" in state:
        return str(state["done"])
    delegate_id = str(state.get("delegate_id", delegate_id))
    amounts = {
        # Text is taken as it is: reading the lease refuses what is not an amount.
        currency: amount if isinstance(amount, str) else decimal_text(amount)
        for currency, amount in (budget or {}).items()
    }
    request = lease_request(lease, None if budget is None else amounts)
    expires_at = None
    if expires_in is not None:
        expires_at = rfc3339(parent.core.clock.now() + expires_in)
    body: dict[str, JsonLike] = {
        "delegate_id": delegate_id,
        "agent": agent,
        "input": input,
        "lease_request": request,
        "lease_constraints": None if expires_at is None else {"expires_at": expires_at},
    }
    if "delegate_id" not in state:
        add_event(parent, "delegate", body)
        parent.memory.change(key, parent.journal.length, delegate_id=delegate_id)
    try:
        await give_way(parent)
        approvals = await _approvals(parent, agent, body, f"approval {key}")
        spec = _spec(parent, delegate_id, agent, input, request, expires_at, max_runtime, approvals)
        new = await accept(parent.jobs, spec)
        # An entry of the parent's journal: its client learns of the child after the `delegate`
        # event, even if it was away, or is another session that came with the same key later.
        parent.journal.accept_child(new.job.id, new.tail)
        parent.memory.finish(key, parent.journal.length, dumps(new.job.id), {})
        parent.jobs.start(new.job, new.run)
    except ArcpError as error:
        # An agent that does not catch it ends its job with an error that names the delegation.
        raise _refuse(parent, delegate_id, agent, error, key) from error
    except BaseException as error:
        _refuse(parent, delegate_id, agent, error, key)
        raise
    parent.children.remember(new.job)
    return new.job.id


def _refuse(parent: Job, delegate_id: str, agent: str, error: BaseException, key: str) -> ArcpError:
    """Emit to whom a delegation is refused, and why; return the same as an error.

    There is no checkpoint, as the task may be cancelled.
    """
    refusal = parent.core.metrics.refused(_told(agent, error))
    refused = {"wanted": agent, "code": refusal.code, "error": refusal.message}
    log.info("delegation refused", extra=parent.facts | refused)
    if not parent.ended:
        add_event(parent, "tool_result", {"call_id": delegate_id, "error": refusal.payload()})
        if not parent.suspended and parent.outcome is None:
            parent.memory.reset(key, parent.journal.length)
    return refusal


def _told(agent: str, error: BaseException) -> ArcpError:
    """Return the error that the client reads of a failed delegation."""
    if isinstance(error, ArcpError):
        told = error.payload()
    elif isinstance(error, Exception):
        told = InternalError("the runtime has a fault").payload()
    else:
        told = JobCancelled("it was given up").payload()
    told["message"] = f"delegation refused: agent {clip(agent)}: {told['message']}"
    return error_from_payload(told)


async def _approvals(
    parent: Job, agent: str, body: Mapping[str, JsonLike], key: str
) -> Sequence[Approval]:
    """Return what people have decided on a delegation, if the lease wants them to be asked.

    What was decided here by an earlier run counts first, as for tool calls.
    """
    parent.refuse_if_ending()
    asked = parent.memory.has_approval(key)
    try:
        ref = _authorized(parent, agent, ()).ref
    except ApprovalNeeded as needed:
        asked, ref = True, needed.details["target"]
    if not asked:
        return ()
    shown = {name: each for name, each in body.items() if name != "delegate_id" and each}
    return [await decided_alone(parent, DELEGATE, ref, shown, key)]


def _authorized(parent: Job, agent: str, approvals: Sequence[Approval]) -> Agent:
    """Return the agent of this name, if the parent's lease allows to delegate to it.

    Raises:
        ArcpError: the lease does not allow it; or else there is no such agent.
    """
    parse_agent_ref(agent)
    try:
        found = parent.jobs.agents.resolve(agent)
    except ArcpError:
        with suppress(ApprovalNeeded):
            parent.authorize(DELEGATE, agent)
        raise
    parent.authorize(DELEGATE, found.ref, approvals=approvals)
    return found


def _spec(
    parent: Job,
    delegate_id: str,
    agent: str,
    input: JsonLike,  # noqa: A002
    request: Mapping[str, Sequence[str]],
    expires_at: str | None,
    max_runtime: float | None,
    approvals: Sequence[Approval],
) -> JobSpec:
    """Return what the child is to be, within what its parent has (§10).

    Raises:
        ArcpError: the parent may not delegate this.
    """
    core = parent.core
    parent.refuse_if_ending()
    found = _authorized(parent, agent, approvals)
    data = dumps(input)
    found.check_input(data, "$.input")
    asked = Lease.read(request, expires_at, now=core.clock.now())
    spec = JobSpec(
        agent=found,
        input=data,
        lease=_lease(parent, found, asked),
        max_runtime=None if max_runtime is None else _positive(max_runtime),
        principal=parent.principal,
        session_id=parent.spec.session_id,
        trace=parent.trace_id,
        sends_chunks=parent.spec.sends_chunks,
        knows_questions=parent.spec.knows_questions,
        wants_credentials=parent.wallet is not None,
        parent=parent,
        delegate_id=delegate_id,
    )
    limits = core.limits
    if _depth(parent) >= limits.delegation_depth:
        raise limit_hit("delegation_depth", limits.delegation_depth)
    if len(parent.children) >= limits.children_per_job:
        helps = "try again when a child has ended"
        raise limit_hit("children_per_job", limits.children_per_job, what_helps=helps)
    return spec


def _lease(parent: Job, agent: Agent, asked: Lease) -> Lease:
    """Return the lease of a child, within its parent's and as the policy decides."""
    above, any_model = parent.authority, parent.core.policy.any_model
    available = above.budget.available()
    lease = narrowed(asked, above.lease, available, any_model=any_model)
    decided = decided_lease(parent.core, parent.principal, agent, lease)
    if decided is lease:
        return lease
    return narrowed(decided, above.lease, available, any_model=any_model)


def _depth(job: Job) -> int:
    """Return how many jobs are above this one."""
    return 0 if job.parent is None else _depth(job.parent) + 1


def _positive(seconds: float) -> float:
    seconds = float(seconds)
    if not seconds > 0:  # refuses nan, too
        raise InvalidRequest("expected a number of seconds above 0 @ max_runtime")
    return seconds
