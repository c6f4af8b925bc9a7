"""What there is to spend (§9.6), exactly as a frame says it: a float would not be that."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

import msgspec


class _Payload(msgspec.Struct):
    budget: dict[str, object] | None = None


class _Frame(msgspec.Struct):
    payload: _Payload


_read = msgspec.json.Decoder(_Frame, float_hook=Decimal).decode


def amounts_in(frame: str | bytes) -> dict[str, Decimal]:
    """Read the budget of a frame that has been read before: amounts by currency.

    Of some runtimes they are texts as in a lease, `USD:5.00`. What is no amount is left out.
    """
    try:
        budget = _read(frame).payload.budget or {}
    except (msgspec.DecodeError, InvalidOperation):
        # It is said twice, once as something else; or is nearer to nothing than a decimal can be.
        return {}
    found = {currency: _amount(said) for currency, said in budget.items()}
    return {currency: amount for currency, amount in found.items() if amount is not None}


def _amount(said: object) -> Decimal | None:
    if isinstance(said, bool) or not isinstance(said, str | int | Decimal):
        return None
    try:
        amount = Decimal(said.rpartition(":")[2] if isinstance(said, str) else said)
    except InvalidOperation:
        return None
    return amount if amount.is_finite() else None
