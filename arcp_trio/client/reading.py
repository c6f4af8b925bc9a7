"""Reads what runtimes send, leniently: a value of the wrong type counts as absent."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import TypeVar

import msgspec

from arcp_trio.client.errors import ProtocolError
from arcp_trio.wire.envelope import Envelope
from arcp_trio.wire.errors import InvalidRequest
from arcp_trio.wire.messages import TO_CLIENT, decode_payload

T = TypeVar("T")


def read_payload(frame: Envelope, cls: type[T]) -> T | ProtocolError:
    """Read a frame's payload; return the error if it is invalid.

    The error belongs to the one call or job that the frame is about. It does not end the session.
    """
    try:
        body = decode_payload(frame, TO_CLIENT)
    except InvalidRequest as error:
        return ProtocolError(f"the runtime sent an invalid {frame.type}: {error}")
    assert isinstance(body, cls)
    return body


# -- amounts (§9.6)


class _Payload(msgspec.Struct):
    budget: dict[str, object] | None = None


class _WithBudget(msgspec.Struct):
    payload: _Payload


_decode_exactly = msgspec.json.Decoder(_WithBudget, float_hook=Decimal).decode


def budget_in(frame: str | bytes) -> dict[str, Decimal]:
    """Read the budget of a valid frame: exact amounts by currency, which floats would not be.

    Some runtimes write an amount as a lease does, `"USD:5.00"`. Invalid amounts are left out.
    """
    try:
        budget = _decode_exactly(frame).payload.budget or {}
    except (msgspec.DecodeError, InvalidOperation):
        # A second `budget` that is not an object, or an exponent that a Decimal cannot have.
        return {}
    found = {currency: _amount(value) for currency, value in budget.items()}
    return {currency: amount for currency, amount in found.items() if amount is not None}


def _amount(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        return None
    try:
        amount = Decimal(value.rpartition(":")[2] if isinstance(value, str) else value)
    except InvalidOperation:
        return None
    return amount if amount.is_finite() else None
