"""A program's side of a session with a runtime: what it can ask for, and what it can know."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import trio

from arcp_trio.client.calls import (
    CODE_SECONDS,
    NO_REASON,
    BudgetRequest,
    LeaseRequest,
    WantedEvents,
    cancel_call,
    list_call,
    stop_call,
    submit_call,
    subscribe_call,
    token_call,
)
from arcp_trio.client.handles import JobHandle, ObservedJob
from arcp_trio.client.lifecycle import Lifecycle
from arcp_trio.client.listing import JobInfo, JobIterator
from arcp_trio.client.question_handling import QuestionHandler
from arcp_trio.client.session import ClientSession
from arcp_trio.wire.features import Feature
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.json import Json, JsonLike
from arcp_trio.wire.messages import AgentInfo, JobListing


class Client:
    """A session with a runtime, over one connection after another. `connect` makes one."""

    def __init__(
        self, session: ClientSession, lifecycle: Lifecycle, now: Callable[[], float]
    ) -> None:
        self._session = session
        self._lifecycle = lifecycle
        self._now = now

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self._session.id

    @property
    def features(self) -> frozenset[str]:
        """The features in effect: those that both sides have (§6.2)."""
        return self._session.greeting.features

    @property
    def agents(self) -> tuple[AgentInfo, ...]:
        """The agents of the runtime, with their versions if the runtime tells them."""
        return self._session.greeting.agents

    @property
    def input_schemas(self) -> Mapping[str, Json]:
        """What the inputs of agents must be, by `name@version`, in JSON Schema.

        Only agents that say so, at a runtime of this project, are in it.
        """
        return self._session.greeting.input_schemas

    @property
    def connected(self) -> bool:
        """Whether the client has a connection now. Without one, calls wait for the next."""
        return self._session.connection is not None

    @property
    def next_attempt(self) -> float | None:
        """When the client tries to connect again, on Trio's clock; None unless it waits to."""
        return self._session.connection_states.next_attempt

    def connection_states(self) -> AsyncIterator[bool]:
        """Iterate over whether there is a connection: the current state, then each change.

        Every loss after which the client tries to reconnect comes as False, and every return as
        True, also to a slow reader. The iteration ends with the session.
        """
        return self._session.connection_states.listen()

    async def close(self) -> None:
        """Close the session, as leaving the block does. A second call does nothing.

        Events that have arrived are handled first. From then on calls raise `ConnectionLost`.
        """
        await self._lifecycle.leave()

    async def wait_closed(self) -> None:
        """Wait until the session has ended.

        Raises:
            ConnectionFailed, ResumeWindowExpired: the session was lost, rather than closed.
        """
        await self._lifecycle.wait_ended()

    async def submit(
        self,
        agent: str,
        input: Json = None,  # noqa: A002 - its name on the wire
        *,
        lease: LeaseRequest | None = None,
        budget: BudgetRequest | None = None,
        expires_in: float | None = None,
        idempotency_key: str | None = None,
        max_runtime: int | None = None,
        trace_id: str | None = None,
        forget: bool = False,
        contained: bool = False,
    ) -> JobHandle:
        """Submit a job (§7.1).

        A submission that is pending when the connection is lost is repeated under its idempotency
        key, so it starts one job.

        Args:
            agent: `name` or `name@version`.
            input: any JSON.
            lease: what the job may do: patterns by capability.
            budget: what the job may spend: amounts by currency.
            expires_in: after how many seconds the lease expires.
            idempotency_key: by default a fresh one.
            max_runtime: after how many seconds the job ends, `timed_out`.
            trace_id: 32 hexadecimal digits; by default fresh ones (§11).
            forget: have the job leave listings at its end, as a measurement or a probe
                may; only the runtime of this project does so, without a lease, and if the job has
                reported no cost.
            contained: have the job end as PERMISSION_DENIED, before its agent does anything, unless
                the operating system holds the agent to the lease. A runtime that knows this repeats
                it in the handle's `lease_constraints`.

        Cancellation: the job may have been submitted.

        Raises:
            ValueError, TypeError: the input is not JSON, or another argument is invalid.
            ArcpError: the class of the refusal's code.
            ConnectionFailed, ResumeWindowExpired: the session was lost; whether the job was
                submitted is not known.
        """
        if expires_in is not None and expires_in <= 0:
            raise ValueError("expires_in must be in the future")
        key = new_id("key_") if idempotency_key is None else idempotency_key
        call = submit_call(
            agent,
            input,
            lease=lease,
            budget=budget,
            expires_at=None if expires_in is None else self._now() + expires_in,
            idempotency_key=key,
            max_runtime=max_runtime,
            trace_id=trace_id or secrets.token_hex(16),
            forget=forget,
            contained=contained,
        )
        view, accepted = await self._session.call(call)
        view.doubtful = idempotency_key is not None
        view.stream.about = {"agent": accepted.agent or agent, "idempotency_key": key}
        return JobHandle(self._session, view, accepted, idempotency_key=key)

    async def subscribe(
        self, job_id: str, *, history: bool = False, from_event_seq: int | None = None
    ) -> ObservedJob:
        """Observe a job (§7.6), whether it was submitted in another session or in this one.

        Args:
            job_id: the job's id.
            history: whether to get the job's earlier events, too, as far as the runtime keeps them.
            from_event_seq: get only those after this number of the session that submitted the job.

        Raises:
            JobNotFound: there is no such job, or the client may not observe it.
            ArcpError: the class of the refusal's code.
        """
        self._session.require(Feature.SUBSCRIBE)
        call = subscribe_call(job_id, WantedEvents(history, from_event_seq))
        self._session.jobs.expect(job_id)
        try:
            view, subscribed = await self._session.call(call)
        except trio.Cancelled:
            if call.reply.value is not None:
                call.reply.value[0].end()
            self._session.unsubscribe(job_id)
            raise
        view.stream.about = {"agent": subscribed.agent, **view.stream.about}
        return ObservedJob(self._session, view, subscribed)

    async def cancel(self, job_id: str, reason: str = NO_REASON) -> None:
        """Ask for the end of a job that was submitted in another session (§7.4).

        Returns when the runtime has agreed to it. For a job of this session there is
        `JobHandle.cancel`.

        Raises:
            ArcpError: the class of the refusal's code; `InvalidRequest` if the job has ended.
        """
        await self._session.call(cancel_call(job_id, reason))

    async def stop(self, job_id: str, reason: str | None = None) -> None:
        """Stop a job of the client's own principal, whichever session submitted it.

        An operator may stop any job. Returns when the runtime has agreed to it; the job's end says
        who has stopped it, and the reason if there is one. Where the runtime does not offer this,
        the client asks it to cancel the job (`cancel`).

        Raises:
            ArcpError: the class of the refusal's code; `InvalidRequest` if the job has ended.
        """
        if Feature.STOP in self.features:
            await self._session.call(stop_call(job_id, reason))
        else:
            await self.cancel(job_id, reason or NO_REASON)

    async def token_for(self, seconds: float, *, job_id: str | None = None) -> str:
        """Return a token for web pages and links, with which one can look at jobs for a short time.

        It opens sessions that list and subscribe, and can do nothing else. The runtime stores it
        nowhere, so it cannot be taken back.

        Args:
            seconds: how long it is good for, at most a day.
            job_id: the one job that can be looked at; by default all of the client's principal.

        Raises:
            InvalidRequest: the runtime makes no such tokens, or not for so long.
            JobNotFound: there is no such job, or the client may not observe it.
        """
        self._session.require(Feature.TOKENS)
        made = await self._session.call(token_call(seconds, job_id=job_id))
        return made.token

    async def code_for(self, token: str) -> str:
        """Return a code that is good once, for a minute, in place of a bearer token of the client.

        It is for links to the console: a command line and a browser's history keep what they see.
        A client that opens a session with the code is told the token.

        Raises:
            InvalidRequest: the runtime makes no such codes.
            InternalError: too many codes are open.
        """
        self._session.require(Feature.TOKENS)
        made = await self._session.call(token_call(CODE_SECONDS, replaces=token))
        return made.token

    def on_question(self, handler: QuestionHandler) -> QuestionHandler:
        """Have `handler` called with each question of the session's jobs; also a decorator.

        Each call is a task of its own, and is cancelled once its question is answered or over. An
        exception that a handler raises ends the block of `connect`. Another handler takes the place
        of the one before.

        Raises:
            InvalidRequest: the runtime has no questions.
        """
        self._session.require(Feature.QUESTIONS)
        self._session.question_handling.handle_with(handler, self._session.jobs.open_questions())
        return handler

    def jobs(
        self,
        *,
        status: Sequence[str] | None = None,
        agent: str | None = None,
        created_after: str | None = None,
        created_before: str | None = None,
    ) -> AsyncIterator[JobInfo]:
        """Iterate over the jobs that the client may observe, newest first (§6.6).

        Raises:
            ArcpError: while iterating, the class of the refusal's code.
        """
        self._session.require(Feature.LIST_JOBS)
        statuses = None if status is None else list(status)
        created = {"created_after": created_after, "created_before": created_before}
        filters: dict[str, JsonLike] = {"status": statuses, "agent": agent, **created}

        async def page(cursor: str | None) -> JobListing:
            return await self._session.call(list_call(filters, cursor))

        return JobIterator(self._session, page)
