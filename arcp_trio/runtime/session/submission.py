"""From `job.submit` to `job.accepted`, or to the refusal (§7.1, §7.2)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import trio

from arcp_trio.runtime.notices import refusal
from arcp_trio.runtime.session.judge import Accepted, Judge, Request, wants_credentials
from arcp_trio.runtime.session.outbox import Answer, Promise
from arcp_trio.wire.errors import ArcpError, InternalError
from arcp_trio.wire.messages import Submit

if TYPE_CHECKING:
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.session.attachment import Attachment
    from arcp_trio.runtime.session.session import Session

log = logging.getLogger(__name__)


class _Place:
    """A place in a session's line: acceptances and refusals leave in the order of their submits.

    Other vendors' clients match answers by order (§7.1 has no correlation id).
    """

    def __init__(self, session: Session) -> None:
        session.outbox.answer_due()
        self._session = session
        self._before = session.last_place
        self._done = session.last_place = trio.Event()

    async def turn(self) -> None:
        """Wait until everyone before has left."""
        if self._before is not None:
            await self._before.wait()

    def leave(self) -> None:
        """Let the next one have its turn."""
        self._done.set()
        self._session.outbox.answer_given()


class Submissions:
    """Decides on submits, each in a task of its own: a slow one holds up no other command."""

    def __init__(self, core: Core, jobs: Jobs, nursery: trio.Nursery) -> None:
        self._core = core
        self._jobs = jobs
        self._nursery = nursery
        self._judge = Judge(core, jobs)

    def begin(
        self,
        session: Session,
        attachment: Attachment,
        request_id: str,
        trace: str | None,
        submit: Submit,
        size: int,
    ) -> None:
        """Take the submit's place in line and its key, at once; what takes time is for a task."""
        first_in_line = session.last_place is None or session.last_place.is_set()
        request = Request(
            session=session,
            attachment=attachment,
            id=request_id,
            trace=trace,
            submit=submit,
            size=size,
            claim=self._judge.claim(session.principal, submit.idempotency_key),
        )
        place = _Place(session)
        alone = submit.idempotency_key is None and not wants_credentials(session)
        if alone and first_in_line:
            self._accept_at_once(request, place)
        else:
            session.hold()
            session.inbox.begun(size)
            self._nursery.start_soon(self._process, request, place, name=f"submit {request_id}")

    def _accept_at_once(self, request: Request, place: _Place) -> None:
        """What needs no look into the store, no credentials and no turn needs no task either.

        The promise stands before anything of the job, and behind its acceptance in the store's
        queue: so it is sent once both are stored. The job starts when the acceptance is.
        """
        session = request.session
        try:
            accepted, group = self._judge.accept(request, self._judge.draft(request))
        except ArcpError as error:
            self._refuse(request, error)
        else:
            assert accepted.new is not None
            self._promise(session, accepted)
            group.then(partial(self._jobs.start, accepted.new))
        finally:
            place.leave()

    def in_turn(self, session: Session, act: Callable[[], None]) -> None:
        """Have something happen once every submit before it is answered; it must not fail."""
        session.hold()
        self._nursery.start_soon(self._act_in_turn, session, _Place(session), act, name="in turn")

    async def _act_in_turn(self, session: Session, place: _Place, act: Callable[[], None]) -> None:
        try:
            await place.turn()
            act()
        finally:
            place.leave()
            session.release()

    async def _process(self, request: Request, place: _Place) -> None:
        session = request.session
        try:
            verdict = await self._verdict(request)
            await place.turn()
            if isinstance(verdict, ArcpError):
                self._refuse(request, verdict)
            else:
                self._release(request, verdict)
        finally:
            place.leave()
            session.inbox.done(request.size)
            session.release()

    async def _verdict(self, request: Request) -> Accepted | ArcpError:
        try:
            return await self._judge.decide(request)
        except ArcpError as error:
            return error
        except Exception:
            log.exception("submit failed", extra=_facts(request))
            return InternalError("the submit could not be processed")

    # -- the answer

    def _refuse(self, request: Request, error: ArcpError) -> None:
        self._core.metrics.refused(error)
        refused = {"code": error.code, "error": error.message}
        log.info("submit refused", extra=_facts(request) | refused)
        tail = refusal(error, request_id=request.id)
        request.session.tell(Answer(request.attachment, tail))

    def _release(self, request: Request, verdict: Accepted) -> None:
        """Promise, then watch, then start: nothing of a job can precede its acceptance."""
        session = request.session
        if verdict.watch is None:
            # Said again, for this session to match it; what is logged is the first.
            session.tell(Answer(request.attachment, verdict.tail))
            return
        self._promise(session, verdict)
        if verdict.new is not None:
            self._jobs.start(verdict.new)

    def _promise(self, session: Session, verdict: Accepted) -> None:
        watch = verdict.watch
        if watch is not None:
            session.stop_observing(watch.job_id)  # it gets the job's events as a submitter now
        session.tell(Promise(verdict.tail, watch))
        if watch is not None and watch.job is not None:
            watch.job.journal.watches[session.id] = watch


def _facts(request: Request) -> dict[str, object]:
    return request.session.facts | {"agent": request.submit.agent, "request_id": request.id}
