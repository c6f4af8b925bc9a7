"""What the parts of one runtime share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import attrs
import trio

from arcp_trio.runtime.auth import Authenticator
from arcp_trio.runtime.clock import Clock
from arcp_trio.runtime.connection.pace import WrongTokens
from arcp_trio.runtime.job.agents import Agents
from arcp_trio.runtime.limits import Limits
from arcp_trio.runtime.metrics import Metrics
from arcp_trio.runtime.policy import Policy
from arcp_trio.runtime.session.unsent import UnsentBytes
from arcp_trio.runtime.tracing import Tracer
from arcp_trio.store.interface import Store

if TYPE_CHECKING:
    from arcp_trio.runtime.credentials.provisioner import Provisioner
    from arcp_trio.runtime.credentials.revocation import Revoker
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.session.sessions import Sessions


@attrs.define(eq=False, kw_only=True)
class Core:
    """Settings, the store, and the tables of what is alive."""

    name: str
    version: str
    authenticate: Authenticator
    operators: frozenset[str]
    """Principals that may cancel any job."""
    agents: Agents
    store: Store
    limits: Limits
    policy: Policy
    clock: Clock
    provisioner: Provisioner | None
    tracer: Tracer
    jobs: Jobs = attrs.field(init=False)
    sessions: Sessions = attrs.field(init=False)
    revoker: Revoker = attrs.field(init=False)
    tail_bytes: UnsentBytes = attrs.field(
        init=False,
        default=attrs.Factory(
            lambda core: UnsentBytes(core.limits.tail_bytes_total), takes_self=True
        ),
    )
    wrong_tokens: WrongTokens = attrs.field(factory=WrongTokens)
    metrics: Metrics = attrs.field(factory=Metrics)
    taken_over: trio.Event = attrs.field(factory=trio.Event)
    """What another runtime has left in the store is seen to: sessions may be opened."""
    closing: bool = False
    """Shutdown has begun: no new connection, session or job."""
    farewells_end: float = math.inf
    """On Trio's clock: no farewell goes on beyond it."""

    @property
    def provides(self) -> bool:
        """Whether jobs can get credentials: their revocation must be guaranteed (§14)."""
        return self.provisioner is not None and self.store.durable
