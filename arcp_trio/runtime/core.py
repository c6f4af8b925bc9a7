"""Settings and services that all parts of one runtime share."""

from __future__ import annotations

import math
from collections.abc import Mapping

import attrs
import trio

from arcp_trio.reserved import Reserved
from arcp_trio.rounds import Rounds
from arcp_trio.runtime.access import Authentication, Policy, WrongTokens
from arcp_trio.runtime.clock import Clock
from arcp_trio.runtime.ledger import Ledger
from arcp_trio.runtime.limits import Limits
from arcp_trio.runtime.metrics import Metrics
from arcp_trio.runtime.one_time_codes import OneTimeCodes
from arcp_trio.runtime.tracing import Tracer
from arcp_trio.runtime.usage import Usages
from arcp_trio.runtime.views import ViewTokens
from arcp_trio.runtime.workload import Workloads
from arcp_trio.store.interface import Store


@attrs.define(eq=False, kw_only=True)
class Core:
    """What every room of the runtime may use; it knows none of their classes."""

    name: str
    version: str
    authentication: Authentication
    operators: frozenset[str]
    """Principals that may cancel any job."""
    store: Store
    limits: Limits
    policy: Policy
    reserved: Reserved
    """What no lease opens."""
    clock: Clock
    tracer: Tracer
    view_tokens: ViewTokens
    codes: OneTimeCodes = attrs.field(factory=OneTimeCodes)
    wrong_tokens: WrongTokens = attrs.field(factory=WrongTokens)
    metrics: Metrics = attrs.field(factory=Metrics)
    ledger: Ledger = attrs.field(
        init=False, default=attrs.Factory(lambda core: Ledger(core.limits), takes_self=True)
    )
    usages: Usages = attrs.field(
        init=False, default=attrs.Factory(lambda core: Usages(core.limits), takes_self=True)
    )
    long_steps: Rounds = attrs.field(factory=lambda: Rounds(rests=True))
    """The turns of work that holds the loop for milliseconds: what is large is read and written."""
    workloads: Workloads = attrs.field(factory=Workloads)
    node_names: Mapping[int, str] = attrs.field(factory=dict[int, str])
    """By number, as of this node's last sign of life; empty if the store is not shared."""
    taken_over: trio.Event = attrs.field(factory=trio.Event)
    """Set once what an earlier runtime left is taken over: sessions may be opened."""
    closing: bool = False
    """Shutdown has begun: no new connection, session or job."""
    farewells_end: float = math.inf
    """On Trio's clock: every farewell is over by then."""
