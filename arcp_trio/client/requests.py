"""What a program asks for, as it stands on the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import TypeAlias

from arcp_trio.wire.json import Json, JsonLike
from arcp_trio.wire.lease_request import lease_request
from arcp_trio.wire.timestamps import rfc3339

Amount: TypeAlias = str | int | float | Decimal
Lease: TypeAlias = Mapping[str, Sequence[str]]
Budget: TypeAlias = Mapping[str, Amount]


def submit_payload(
    agent: str,
    input: Json,  # noqa: A002 - the name it has on the wire
    *,
    lease: Lease | None,
    budget: Budget | None,
    expires_at: float | None,
    idempotency_key: str,
    max_runtime: int | None,
) -> dict[str, JsonLike]:
    """Make the payload of a `job.submit` (§7.1)."""
    payload: dict[str, JsonLike] = {
        "agent": agent,
        "input": input,
        "idempotency_key": idempotency_key,
    }
    amounts = {currency: _plain(amount) for currency, amount in (budget or {}).items()}
    if request := lease_request(lease, amounts or None):
        payload["lease_request"] = request
    if expires_at is not None:
        payload["lease_constraints"] = {"expires_at": rfc3339(expires_at)}
    if max_runtime is not None:
        payload["max_runtime_sec"] = max_runtime
    return payload


def _plain(amount: Amount) -> str:
    """Write an amount without an exponent; `ValueError` if it is none."""
    try:
        return format(Decimal(str(amount)), "f")
    except InvalidOperation:
        raise ValueError(f"not an amount of money: {amount!r}") from None


def listing_payload(
    *,
    status: Sequence[str] | None,
    agent: str | None,
    created_after: str | None,
    created_before: str | None,
) -> dict[str, JsonLike]:
    """Make the payload of a `session.list_jobs` (§6.6); some runtimes mind nulls."""
    wanted = {
        "status": None if status is None else list(status),
        "agent": agent,
        "created_after": created_after,
        "created_before": created_before,
    }
    given = {name: value for name, value in wanted.items() if value is not None}
    return {"filter": given} if given else {}
