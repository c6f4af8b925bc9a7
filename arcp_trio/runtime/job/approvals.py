"""Approvals: how a job asks people for leave to do what its lease allows on that condition.

An approval is a question, whose tool call is the one that waits for it. Its decision is told by the
result of that call, and nothing of it outlasts the run of the agent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import attrs
import trio

from arcp_trio.authority.approvals import Approval
from arcp_trio.authority.targets import forms
from arcp_trio.runtime.job.events import add_event
from arcp_trio.runtime.job.fitting import fitted
from arcp_trio.runtime.job.questions import ANSWER_PATH, OpenQuestion
from arcp_trio.runtime.job.refusing import refuse_if_ending, refuse_if_suspended
from arcp_trio.wire.errors import ApprovalNeeded, InvalidRequest, PermissionDenied, Unanswered, clip
from arcp_trio.wire.json import JsonLike, JsonObject, dumps, loads, object_in
from arcp_trio.wire.payloads import read
from arcp_trio.wire.questions import ALLOW, APPROVAL, DENY, QuestionBody, Shown
from arcp_trio.wire.timestamps import rfc3339

if TYPE_CHECKING:
    from arcp_trio.runtime.job.commands import AnswerTo
    from arcp_trio.runtime.job.job import Job

_NAMED: Final = 3
"""The targets that a prompt names; `targets` has all."""
_MOST_TARGET: Final = 1_000
"""Characters of a target, at most: nobody reads a longer one to its end."""
MOST_ARGS_BYTES: Final = 32 * 1024
"""How much a question shows of the arguments of its call."""
_HOWEVER: Final = {
    "fs.write": ", with any content",
    "net.fetch": ", also by what the agent does by itself",
    "tool.call": ", with any arguments",
}
"""What the scope `job` leaves open, by capability."""


@attrs.define(eq=False, kw_only=True)
class OpenApproval(OpenQuestion):
    """An approval that waits for somebody's decision."""

    capability: str
    targets: Sequence[str]
    approval: Approval | None = None

    def announce(self) -> None:
        """Tell everybody that the job waits, and those who know questions what for."""
        add_event(self.job, "status", {"phase": APPROVAL, "message": self.body.prompt})
        super().announce()

    def settle(self, said: AnswerTo) -> None:
        """Take a decision.

        Raises:
            InvalidRequest: it is neither of the options; the question stays open.
        """
        if said.answer not in (ALLOW, DENY):
            raise InvalidRequest(f"expected {ALLOW!r} or {DENY!r} @ {ANSWER_PATH}")
        self.approval = Approval(
            capability=self.capability,
            targets=self.targets,
            allowed=said.answer == ALLOW,
            by=said.by,
            reason=said.reason,
        )
        if said.scope == "job":
            self.job.authority.approvals.append(self.approval)
        self.answered.set()

    async def decision(self) -> JsonObject:
        """Wait for the decision; return what is to be told of it if the operation is allowed now.

        Raises:
            PermissionDenied: somebody has denied it.
            Unanswered: nobody has decided in time.
            ArcpError: the operation is no longer allowed for another reason.
        """
        try:
            await self.wait()
        finally:
            self.job.questions.close(self)
        approval = self.approval
        if approval is None:
            raise Unanswered(
                f"nobody has decided on {self.capability} in time",
                details={"decision": DENY, "by": "timeout"},
            )
        if not approval.allowed:
            words = f"{clip(repr(approval.by))} has denied {self.capability}"
            raise PermissionDenied(words, details=approval.told())
        for target in self.targets:
            self.job.authorize(self.capability, target, approval=approval)
        return {**approval.told()}


def ask_approval(
    job: Job,
    call_id: str,
    tool: str,
    args: JsonLike,
    capability: str,
    targets: Sequence[str],
    shown: Mapping[str, JsonLike] | None = None,
) -> OpenApproval:
    """Ask people for leave to do something, in one step.

    Raises:
        PermissionDenied: the lease does not allow it, whatever people say; or the client that
            submitted the job knows no questions.
        ArcpError: the job is ending, or asks too much at once.
    """
    refuse_if_suspended(job)
    refuse_if_ending(job)
    for target in targets:
        with suppress(ApprovalNeeded):
            job.authorize(capability, target)
    if not job.knows_questions:
        raise PermissionDenied(
            f"{capability} needs the approval of a person, and the client that submitted the job"
            " cannot ask anybody: it has not negotiated x-vendor.arcp-trio.questions"
        )
    named = [forms(capability, each)[0] for each in targets]
    if any(len(each) > _MOST_TARGET for each in named):
        raise PermissionDenied(
            f"{capability} needs the approval of a person, who can be shown no target of more than"
            f" {_MOST_TARGET:,} characters"
        )
    seconds = job.core.limits.approval_seconds
    cut = fitted(loads(dumps(args)), MOST_ARGS_BYTES)
    truncated = cut.truncated or object_in(cut.value).get("truncated") is True
    body = QuestionBody(
        question_id=call_id,
        prompt=_prompt(capability, named),
        options=[ALLOW, DENY],
        expires_at=rfc3339(job.core.clock.now() + seconds),
        kind=APPROVAL,
        capability=capability,
        targets=named,
        tool=tool,
        args=cut.value,
        shown=None if shown is None else read(Shown, object_in(loads(dumps(shown))), root="shown"),
        for_job=f"{capability} of {', '.join(named)}{_HOWEVER.get(capability, '')}",
        truncated=truncated or None,
    )
    question = OpenApproval(
        job=job,
        body=body,
        deadline=trio.current_time() + seconds,
        capability=capability,
        targets=targets,
    )
    job.questions.ask(question)
    return question


def _prompt(capability: str, targets: Sequence[str]) -> str:
    named = ", ".join(targets[:_NAMED])
    more = f" and {len(targets) - _NAMED} more" if len(targets) > _NAMED else ""
    return f"Allow {capability} of {named}{more}?"
