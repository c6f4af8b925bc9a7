"""What the contexts of all kinds of agents have in common: what an agent may know of its job."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING

import msgspec

from arcp_trio.runtime.credentials.credential import Credential
from arcp_trio.runtime.job.desk import Desk
from arcp_trio.runtime.job.durable.keys import key_of
from arcp_trio.runtime.job.durable.places import TaskPlace, here
from arcp_trio.runtime.limits import Limits
from arcp_trio.wire.json import Json, JsonLike, JsonText, JsonValue

if TYPE_CHECKING:
    from arcp_trio.runtime.job.job import Job
    from arcp_trio.runtime.job.link import Link


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent may know of its job, and what does not change while the agent runs."""

    id: str
    agent: str
    version: str
    input: bytes
    """As JSON."""
    principal: str
    trace_id: str
    parent_id: str | None
    lease: Mapping[str, JsonLike]
    expires_at: str | None
    durable: bool = False
    run: int = 1
    """Which call of the agent this is."""


def facts_for_agent(job: Job) -> JobFacts:
    """Return what the agent of a job may know of it."""
    return JobFacts(
        id=job.id,
        agent=job.agent.name,
        version=job.agent.version,
        input=job.input,
        principal=job.principal,
        trace_id=job.trace_id,
        parent_id=None if job.parent is None else job.parent.id,
        lease=job.authority.lease.wire(),
        expires_at=job.authority.lease.expires_at,
        durable=job.memory.durable,
        run=job.memory.run,
    )


class JobView:
    """The part of a context that is the same wherever the agent runs, and waits for nothing."""

    def __init__(self, link: Link, facts: JobFacts, deadline: float | None = None) -> None:
        self._link = link
        self._facts = facts
        self._deadline = deadline
        self._input: tuple[JsonValue] | None = None
        self._limits: Limits | None = None

    @property
    def id(self) -> str:
        """The job's id."""
        return self._facts.id

    @property
    def agent(self) -> str:
        """The agent's name."""
        return self._facts.agent

    @property
    def version(self) -> str:
        """The agent's version, resolved at submission and fixed since (§7.5)."""
        return self._facts.version

    @property
    def input(self) -> Json:
        """The input that the client submitted, or the delegating job gave."""
        # Decoded when it is first read: as objects it may take ten times the room.
        if self._input is None:
            self._input = (JsonText(self._facts.input).value,)
        return self._input[0]

    @property
    def run(self) -> int:
        """Which call of the agent this is: 1, and one more after each restart of a durable job."""
        return self._facts.run

    @property
    def principal(self) -> str:
        """The principal that submitted the job."""
        return self._facts.principal

    @property
    def trace_id(self) -> str:
        """The W3C trace id that the job belongs to, 32 hex digits (§11)."""
        return self._facts.trace_id

    @property
    def parent_id(self) -> str | None:
        """The id of the job that delegated to this one; None if none did (§10)."""
        return self._facts.parent_id

    @property
    def lease(self) -> Mapping[str, Json]:
        """The job's lease, as in its acceptance (§9)."""
        return copy.deepcopy(self._facts.lease)

    @property
    def expires_at(self) -> str | None:
        """The end of the lease, as in the acceptance; None if there is no end (§9.5)."""
        return self._facts.expires_at

    @property
    def budget(self) -> Mapping[str, Decimal]:
        """The rest of the job's own budget, by currency; empty without a budget (§9.6)."""
        return self._link.ask(Desk.budget)

    @property
    def deadline(self) -> float | None:
        """The end of `max_runtime_sec` on the clock of the agent's loop; None without a limit.

        The clock is `trio.current_time` under Trio, and `time.monotonic` elsewhere.
        """
        return self._deadline

    @property
    def grace(self) -> float:
        """How many seconds the agent has to stop in, once the job is to end.

        Fewer while the runtime shuts down.
        """
        return self._link.ask(Desk.grace)

    @property
    def sends_chunks(self) -> bool:
        """Whether a streamed result is sent in chunks; if not, it is sent whole, in one frame."""
        return self._link.ask(Desk.sends_chunks)

    @property
    def limits(self) -> Limits:
        """The runtime's limits."""
        if self._limits is None:
            self._limits = Limits(**self._link.ask(Desk.limits))  # type: ignore[arg-type]
        return self._limits

    @property
    def credentials(self) -> list[Credential]:
        """The job's provisioned credentials as they are now; none once the job is ending (§9.8)."""
        return self._link.ask(Desk.credentials)

    def authorize(self, capability: str, target: str) -> None:
        """Return if the lease allows an operation (§9.3). Do it at once: that may change.

        Nobody is asked: see `authorize_or_ask`.

        Raises:
            LeaseExpired, BudgetExhausted, PermissionDenied: the lease does not allow it.
        """
        self._link.ask(Desk.authorize, capability, target)

    # -- where the agent is

    def _place(self) -> TaskPlace:
        return here(self._link.task())

    def _key(self, name: str) -> str | None:
        """Return the key of what is done next under a name; None if nothing is remembered."""
        return key_of(self._place().count(name)) if self._facts.durable else None
