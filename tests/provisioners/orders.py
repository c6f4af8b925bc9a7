"""Orders for credentials, and provisioners for them."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from decimal import Decimal

from arcp_trio import CredentialOrder, Issued
from arcp_trio.provisioners.litellm import LiteLlmProvisioner
from tests.provisioners.gateway import MASTER_KEY, Gateway

MODELS = ("gpt-4o", "openai/gpt-4o", "openai/eu/gpt-4o", "tier-fast/mini", "tier-slow/big")


def provisioner_of(gateway: Gateway, master_key: str = MASTER_KEY) -> LiteLlmProvisioner:
    """Return a provisioner for the gateway."""
    return LiteLlmProvisioner(gateway.url, master_key, models=MODELS)


def an_order(
    order_id: str = "cred_1",
    *,
    models: Sequence[str] | None = ("tier-fast/*",),
    budget: Mapping[str, Decimal] | None = None,
    seconds_left: float | None = None,
) -> CredentialOrder:
    """Return an order for a job with this lease."""
    return CredentialOrder(
        id=order_id,
        job_id="job_1",
        principal="ada",
        agent="echo",
        trace_id="0af7651916cd43dd8448eb211c80319c",
        lease={} if models is None else {"model.use": models},
        budget=budget or {},
        expires_at=None if seconds_left is None else "2026-05-13T23:42:00Z",
        seconds_left=seconds_left,
    )


async def issue(provisioner: LiteLlmProvisioner, order: CredentialOrder) -> Issued:
    """Issue an order that must give one credential."""
    [issued] = await provisioner.issue(order)
    return issued


def shown_with_locals(error: BaseException) -> str:
    """Return a traceback with the variables of each frame, except the test's own."""
    frames = traceback.TracebackException.from_exception(error, capture_locals=True)
    del frames.stack[0]
    assert frames.stack
    return "".join(frames.format())
