"""What the parts of one runtime share."""

from __future__ import annotations

import math

import attrs
import trio

from arcp_trio.runtime.access import Authenticator, Policy, WrongTokens
from arcp_trio.runtime.clock import Clock
from arcp_trio.runtime.limits import Limits
from arcp_trio.runtime.metrics import Metrics
from arcp_trio.runtime.tracing import Tracer
from arcp_trio.store.interface import Store


@attrs.define(eq=False, kw_only=True)
class Core:
    """Settings, the store, and what all parts count on: it knows none of them."""

    name: str
    version: str
    authenticate: Authenticator
    operators: frozenset[str]
    """Principals that may cancel any job."""
    store: Store
    limits: Limits
    policy: Policy
    clock: Clock
    tracer: Tracer
    wrong_tokens: WrongTokens = attrs.field(factory=WrongTokens)
    metrics: Metrics = attrs.field(factory=Metrics)
    taken_over: trio.Event = attrs.field(factory=trio.Event)
    """What another runtime has left in the store is seen to: sessions may be opened."""
    closing: bool = False
    """Shutdown has begun: no new connection, session or job."""
    farewells_end: float = math.inf
    """On Trio's clock: no farewell goes on beyond it."""
