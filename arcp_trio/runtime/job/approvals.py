"""Approvals: how a job asks people for leave to do what its lease allows on that condition.

An approval is a question, whose tool call is the one that waits for it. A durable job remembers
what it has asked for and what was decided, as it does with questions: nobody is asked again for
what a restart has interrupted. The proxies, whose jobs are not durable, ask by `ask_approval`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import attrs
import trio

from arcp_trio.authority import urls
from arcp_trio.authority.approvals import Approval
from arcp_trio.authority.patterns import URLS
from arcp_trio.authority.targets import forms
from arcp_trio.runtime.job.events import add_event
from arcp_trio.runtime.job.fitting import fitted
from arcp_trio.runtime.job.questions import ANSWER_PATH, OpenQuestion, deadline_of
from arcp_trio.runtime.job.tools import OpenCall
from arcp_trio.wire.errors import ApprovalNeeded, InvalidRequest, PermissionDenied, Unanswered, clip
from arcp_trio.wire.ids import new_id, token_digest
from arcp_trio.wire.json import JsonLike, JsonObject, dumps, loads, object_in
from arcp_trio.wire.payloads import read, to_json
from arcp_trio.wire.questions import ALLOW, APPROVAL, APPROVED, DENY, QuestionBody, Shown
from arcp_trio.wire.timestamps import rfc3339

if TYPE_CHECKING:
    from arcp_trio.runtime.job.commands import AnswerTo
    from arcp_trio.runtime.job.job import Job

_NAMED: Final = 3
"""The targets that a prompt names; `targets` has all."""
_MOST_TARGET: Final = 1_000
"""Characters of a target, at most: nobody reads a longer one to its end."""
_NOBODY: Final = "timeout"
"""The name that stands for nobody: there was no decision in time."""
MOST_ARGS_BYTES: Final = 32 * 1024
"""How much a question shows of the arguments of its call."""
_HOWEVER: Final = {
    "agent.delegate": ", with any input",
    "fs.write": ", with any content",
    "net.fetch": ", also by what the agent does by itself",
    "tool.call": ", with any arguments",
}
"""What the scope `job` leaves open, by capability."""


def _for_job(capability: str, named: Sequence[str]) -> str:
    """Return what a yes for the whole job allows, in words."""
    words = f"{capability} of {', '.join(named)}{_HOWEVER.get(capability, '')}"
    if capability != URLS:
        return words
    # A sandbox lets HTTPS through by host and port: it sees no paths.
    sites = dict.fromkeys(urls.parse(each).site for each in named if each.startswith("https:"))
    return f"{words}: then all of {', '.join(sites)}" if sites else words


@attrs.define(eq=False, kw_only=True)
class OpenApproval(OpenQuestion):
    """An approval that waits for somebody's decision, or has one."""

    capability: str
    targets: Sequence[str]
    key: str | None = None
    """The key under which a durable job remembers it."""
    call: OpenCall | None = None
    """The call that does nothing but wait for it."""
    is_told: bool = False
    """A yes is told at once by a status, as the call's own result comes later."""
    asked_for: str
    """The digest of what was asked for, with all of its arguments."""
    approval: Approval | None = None

    @property
    def subject(self) -> str:
        """What is asked for, with all of its arguments."""
        return self.asked_for

    @classmethod
    def remembered(cls, job: Job, key: str, state: JsonObject) -> OpenApproval:
        """Return what an earlier run has asked for, with the decision if there is one."""
        body = read(QuestionBody, object_in(state["question"]))
        approval = cls(
            job=job,
            body=body,
            deadline=deadline_of(job, body),
            capability=body.capability or "",
            targets=body.targets or (),
            key=key,
            call=OpenCall(job, body.question_id) if state["alone"] else None,
            is_told=not state["alone"],
            asked_for=str(state["asked_for"]),
        )
        if "decision" in state:
            approval._take(state)
            if not state["alone"]:
                approval._note_for_result()
        return approval

    def announce(self) -> None:
        """Tell everybody that the job waits, and those who know questions what for."""
        if self.call is not None:
            self.call.announce(self.body.tool or "", self.body.args)
        add_event(self.job, "status", {"phase": APPROVAL, "message": self.body.prompt})
        super().announce()

    def settle(self, said: AnswerTo) -> None:
        """Take a decision.

        Raises:
            InvalidRequest: it is neither of the options; the question stays open.
            InternalError: its reason is too long; the question stays open.
        """
        if said.answer not in (ALLOW, DENY):
            raise InvalidRequest(f"expected {ALLOW!r} or {DENY!r} @ {ANSWER_PATH}")
        decided: JsonObject = {"decision": said.answer, "by": said.by}
        if said.reason is not None:
            decided["reason"] = said.reason
        if said.scope is not None:
            decided["scope"] = said.scope
        self._remember(decided)
        self._take(decided)
        assert self.approval is not None
        self._note_for_result()
        if self.call is not None:
            self.call.finish(self.approval.told(), to_remember=True)
        elif self.is_told and self.approval.allowed:
            words = f"{said.by} has allowed {self.capability} of {self.targets[0]}"
            told: JsonObject = {**self.approval.told()}
            ids: JsonObject = {"call_id": self.body.question_id, "result": told}
            body: JsonObject = {"phase": APPROVED, "message": words, **ids}
            add_event(self.job, "status", body, to_remember=True)

    def _take(self, decided: Mapping[str, JsonLike]) -> None:
        """Have the decision, which was made now or in an earlier run."""
        self.answered.set()
        by, reason = str(decided["by"]), decided.get("reason")
        if by == _NOBODY:
            return
        self.approval = Approval(
            capability=self.capability,
            targets=self.targets,
            allowed=decided["decision"] == ALLOW,
            by=by,
            reason=None if reason is None else str(reason),
        )
        if decided.get("scope") == "job":
            self.job.authority.approvals.append(self.approval)

    def _remember(self, decided: JsonObject | None) -> None:
        """Remember the approval, with the decision if there is one; None: forget it."""
        if self.key is not None:
            state: JsonObject = {}
            if decided is not None:
                asked = to_json(self.body)
                alone = self.call is not None
                state = {"question": asked, "asked_for": self.asked_for, "alone": alone, **decided}
            self.job.memory.keep_approval(self.key, self.job.journal.length, state)

    def ask(self) -> None:
        """Ask, and remember that: from here on it can be decided.

        Raises:
            InternalError: too much is asked at once.
        """
        self.job.questions.ask(self)
        self._remember({})  # not larger than a question may be

    async def decision(self) -> JsonObject:
        """Wait for the decision; return what is to be told of it if the operation is allowed now.

        Raises:
            PermissionDenied: somebody has denied it.
            Unanswered: nobody has decided in time.
            ArcpError: the operation is no longer allowed for another reason.
        """
        job = self.job
        try:
            job.memory.note_progress()
            await self.wait()
        except BaseException as error:
            if not (self.answered.is_set() or job.suspended):
                self.give_up(error)
            raise
        finally:
            if not job.suspended:
                job.questions.close(self)
        if not (self.answered.is_set() or job.suspended):
            self._time_out()
        if self.key is not None:
            with job.over.ends_waits():
                await job.memory.kept()
        approval = self.approval
        if approval is None:
            raise self._unanswered()
        if not approval.allowed:
            words = f"{clip(repr(approval.by))} has denied {self.capability}"
            raise PermissionDenied(words, details=approval.told())
        for target in self.targets:
            job.authorize(self.capability, target, approvals=[approval])
        return {**approval.told()}

    def give_up(self, error: BaseException) -> None:
        """Ask no longer."""
        self.job.questions.close(self)
        if self.call is not None and not self.answered.is_set():
            self.call.fail(error)
        if self.job.outcome is None:
            self._remember(None)

    def _note_for_result(self) -> None:
        """Have the result of the call say what was decided, in a field that no agent can set."""
        approval, late = self.approval, {"decision": DENY, "by": _NOBODY}
        told: JsonObject = {**(late if approval is None else approval.told())}
        self.job.questions.decided[self.body.question_id] = told

    def _time_out(self) -> None:
        self._note_for_result()
        if self.call is not None:
            self.call.fail(self._unanswered())
        if self.job.outcome is None:
            self._remember({"decision": DENY, "by": _NOBODY})

    def _unanswered(self) -> Unanswered:
        return Unanswered(
            f"nobody has decided on {self.capability} in time",
            details={"decision": DENY, "by": _NOBODY},
        )


def ask_approval(
    job: Job,
    call_id: str,
    tool: str,
    args: JsonLike,
    capability: str,
    targets: Sequence[str],
    shown: Mapping[str, JsonLike] | None = None,
    *,
    key: str | None = None,
    call: OpenCall | None = None,
    is_told: bool = False,
) -> OpenApproval:
    """Ask people for leave to do something, in one step.

    Args:
        key: where a durable job does it. An earlier run may have asked for the same there: then
            nobody is asked, and what is returned may be decided.
        call: the call that does nothing but wait for the decision, if there is one.
        is_told: a decision to allow it is told at once, as the call's result does not tell of it.

    Raises:
        PermissionDenied: the lease does not allow it, whatever people say; or the client that
            submitted the job knows no questions.
        ArcpError: the job is ending, or asks too much at once.
    """
    job.refuse_if_suspended()
    job.refuse_if_ending()
    for target in targets:
        with suppress(ApprovalNeeded):
            job.authorize(capability, target)
    if not job.spec.knows_questions:
        raise PermissionDenied(
            f"{capability} needs the approval of a person, and the client that submitted the job"
            " cannot ask anybody: it has not negotiated x-vendor.arcp-trio.questions"
        )
    named = list(dict.fromkeys(forms(capability, each)[0] for each in targets))
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
        for_job=_for_job(capability, named),
        truncated=truncated or None,
    )
    asked_for = token_digest(dumps([capability, named, tool, args]).decode()).hex()
    before = None if key is None else _asked_before(job, key, asked_for)
    if before is not None:
        before.targets = targets
        return before
    question = OpenApproval(
        job=job,
        body=body,
        deadline=trio.current_time() + seconds,
        capability=capability,
        targets=targets,
        key=key,
        call=call,
        is_told=is_told,
        asked_for=asked_for,
    )
    question.ask()
    return question


def _asked_before(job: Job, key: str, asked_for: str) -> OpenApproval | None:
    """Return what an earlier run has asked for at this place, if it was the same."""
    state = job.memory.reach_approval(key)
    if state is None:
        return None
    approval = OpenApproval.remembered(job, key, state)
    if job.questions.is_asked(approval.body.question_id):
        question = job.questions.asked_before(approval.body.question_id)
        assert isinstance(question, OpenApproval), "the id is that of an approval"
        approval = question
    if approval.asked_for != asked_for:  # a yes to something else counts for nothing
        approval.give_up(Unanswered("the agent asks for something else now"))
        return None
    return approval


async def decided_alone(
    job: Job, capability: str, target: str, args: JsonLike, key: str | None
) -> Approval:
    """Ask people for leave in a tool call that does nothing else, and wait for the decision.

    Raises:
        ArcpError: as `ask_approval` and `OpenApproval.decision` do.
    """
    call = OpenCall(job, new_id("call_"))
    kept = key if job.memory.durable else None
    question = ask_approval(
        job, call.id, capability, args, capability, [target], key=kept, call=call
    )
    await question.decision()
    assert question.approval is not None, "somebody has allowed it"
    return question.approval


def reopen_approvals(job: Job) -> None:
    """Reopen what earlier runs have asked for, and have what was decided for the whole job."""
    for key, state in job.memory.unreached_approvals():
        approval = OpenApproval.remembered(job, key, state)
        if "decision" not in state:
            job.questions.reopen(approval)


def _prompt(capability: str, targets: Sequence[str]) -> str:
    named = ", ".join(targets[:_NAMED])
    more = f" and {len(targets) - _NAMED} more" if len(targets) > _NAMED else ""
    return f"Allow {capability} of {named}{more}?"
