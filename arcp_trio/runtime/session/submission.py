"""From `job.submit` to its answer: `job.accepted`, or the refusal (§7.1, §7.2)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

import attrs
import trio

from arcp_trio.runtime.job.acceptance import accepted_tail
from arcp_trio.runtime.notices import refusal, store_trouble
from arcp_trio.runtime.session.claims import Claim, ConnectionOver
from arcp_trio.runtime.session.judge import Decision, Judge
from arcp_trio.runtime.session.outbox import Answer, Promise, Repeat
from arcp_trio.runtime.session.watch import Watch
from arcp_trio.store.errors import Fenced, StoreError
from arcp_trio.wire.errors import ArcpError, InternalError
from arcp_trio.wire.features import Feature
from arcp_trio.wire.json import loads_exact
from arcp_trio.wire.messages import Submit

if TYPE_CHECKING:
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.session.clerk import Request
    from arcp_trio.runtime.session.line import Place
    from arcp_trio.runtime.session.session import Session
    from arcp_trio.store.shared import UntoldJob

log = logging.getLogger(__name__)


@attrs.define(eq=False, kw_only=True)
class Submission:
    """A `job.submit` of one session, until it is answered."""

    session: Session
    request: Request
    submit: Submit
    claim: Claim | None
    """Its claim on its key, if it has one."""

    @property
    def wants_credentials(self) -> bool:
        """Whether the job is to have credentials, if its lease needs any (§9.8)."""
        return Feature.PROVISIONED_CREDENTIALS in self.session.features

    @property
    def may_wait(self) -> bool:
        """Whether deciding it may wait: for the store, credentials, or a look at a large input."""
        return self.claim is not None or self.wants_credentials or self.submit.is_large


class Submissions:
    """Has submits decided and answered; one that may wait has a task, and holds up no command."""

    def __init__(self, core: Core, jobs: Jobs, nursery: trio.Nursery) -> None:
        self._core = core
        self._jobs = jobs
        self._nursery = nursery
        self._judge = Judge(core, jobs)

    async def begin(self, session: Session, request: Request, submit: Submit) -> None:
        """Take the submit's place in line and claim its key, at once; decide it, here or later."""
        first_in_line = session.line.is_free
        key = submit.idempotency_key
        submission = Submission(
            session=session,
            request=request,
            submit=submit,
            claim=None if key is None else self._judge.claims.claim(session.principal, key),
        )
        place = session.line.take_place()
        if first_in_line and not submission.may_wait:
            await self._answer(submission, place)
        else:
            answer = partial(self._answer, submission, place)
            self._start(session, request.size, answer, f"submit {request.id}")

    def _start(
        self, session: Session, size: int, work: Callable[[], Awaitable[None]], name: str
    ) -> None:
        """Do work in a task; until its end `size` bytes count as received."""
        session.hold()
        session.inbox.begun(size)
        self._nursery.start_soon(self._do, session, size, work, name=name)

    async def _do(self, session: Session, size: int, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        finally:
            session.inbox.done(size)
            session.release()

    async def _answer(self, submission: Submission, place: Place) -> None:
        session = submission.session
        with place:
            decision = await self._decision(submission)
            await place.turn()
            if decision is None:
                pass  # there is nobody left to answer
            elif isinstance(decision, ArcpError):
                self._refuse(submission, decision)
            elif await self._is_repeated(session, decision):
                attachment = submission.request.attachment
                session.tell(Repeat(attachment, decision.tail, decision.watch))
            else:
                self._promise(submission, decision)

    async def _is_repeated(self, session: Session, decision: Decision) -> bool:
        """Return whether the session submitted the job before, by now."""
        job_id = decision.watch.job_id
        if decision.new is not None or decision.again or session.submitted(job_id):
            return decision.new is None
        try:
            row = await session.reads.job(job_id)
        except (StoreError, Fenced):
            return False
        return row is not None and session.id in row.submitters

    async def _decision(self, submission: Submission) -> Decision | ArcpError | None:
        try:
            return await self._judge.decide(submission)
        except (ConnectionOver, Fenced):
            return None
        except ArcpError as error:
            return error
        except StoreError as error:
            log.warning("submit failed", extra=_facts(submission) | {"error": str(error)})
            return store_trouble(self._core.store)
        except Exception:
            log.exception("submit failed", extra=_facts(submission))
            return InternalError("the submit could not be processed")

    def _refuse(self, submission: Submission, error: ArcpError) -> None:
        request = submission.request
        self._core.metrics.refused(error)
        refused = {"code": error.code, "error": error.message}
        log.info("submit refused", extra=_facts(submission) | refused)
        submission.session.tell(Answer(request.attachment, refusal(error, request_id=request.id)))

    def _promise(self, submission: Submission, decision: Decision) -> None:
        """Promise, then watch, then start: nothing of a job comes before its acceptance.

        The promise is sent once the acceptance is stored, which is before it in the store's queue.
        """
        session, watch = submission.session, decision.watch
        session.stop_observing(watch.job_id)  # from here on it has the job's events as a submitter
        if submission.claim is not None:
            session.acceptance_begun(watch.job_id)
        session.tell(Promise(decision.tail, watch))
        watch.join_journal()
        if decision.new is not None:
            self._jobs.start(decision.new.job, decision.new.run)

    def promise_untold(self, session: Session, jobs: Iterable[UntoldJob]) -> None:
        """Promise a client the jobs that were accepted before its session came here."""
        for job in jobs:
            watch = Watch(session, job.job_id, self._jobs.journal(job.job_id))
            session.acceptance_begun(job.job_id)
            tail = accepted_tail(loads_exact(job.accepted), job.request_id)
            session.tell(Promise(tail, watch))
            watch.join_journal()

    def promise_again(self, session: Session, failed: Session) -> None:
        """Promise a client what its session was to promise when its task failed."""
        for job_id, promise in failed.promises.items():
            if job_id in session.watches or promise.watch is None:
                continue  # it was stored, and is replayed
            watch = Watch(session, job_id, self._jobs.journal(job_id), promise.watch.cursor)
            if job_id in failed.accepting:
                session.acceptance_begun(job_id)
            session.tell(Promise(promise.tail, watch))
            watch.join_journal()

    # -- other requests that keep the order of the answers

    def in_turn(self, session: Session, act: Callable[[], None]) -> None:
        """Call `act`, which must not fail, once every submit before is answered."""
        place = session.line.take_place()

        async def act_in_turn() -> None:
            with place:
                await place.turn()
                act()

        self._start(session, 0, act_in_turn, "in turn")

    def keep_place(self, session: Session, size: int, ask: Callable[[], Awaitable[None]]) -> None:
        """Have submits, and requests `in_turn`, wait until `ask` has returned.

        What is asked has `size` bytes, which count as received until then.
        """
        place = session.line.take_place()
        session.asks += 1

        async def ask_in_place() -> None:
            with place:
                try:
                    await ask()
                finally:
                    session.asks -= 1
                await place.turn()

        self._start(session, size, ask_in_place, "ask another node")


def _facts(submission: Submission) -> dict[str, object]:
    named = {"agent": submission.submit.agent, "request_id": submission.request.id}
    return submission.session.facts | named
