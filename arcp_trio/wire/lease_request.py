"""The `lease_request` of a submission, as it stands on the wire (§9.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Final, TypeAlias

Amount: TypeAlias = str | int | float | Decimal
"""An amount of money, as a program gives it."""

_BUDGET: Final = "cost.budget"


def decimal_text(amount: Amount) -> str:
    """Write an amount in decimal digits, without an exponent.

    Raises:
        ValueError: it is not a number.
    """
    try:
        return format(Decimal(str(amount)), "f")
    except InvalidOperation:
        raise ValueError(f"not an amount of money: {amount!r}") from None


def need_mapping(name: str, value: object, example: str) -> None:
    """Raise `TypeError` if an argument is neither a mapping nor None."""
    if value is not None and not isinstance(value, Mapping):
        raise TypeError(f"{name}: expected a dict such as {example}, not {value!r}")


def lease_request(
    lease: Mapping[str, Sequence[str]] | None, budget: Mapping[str, str] | None
) -> dict[str, list[str]]:
    """Join the patterns of a lease and the amounts of a budget, by currency, into one request.

    Raises:
        TypeError: the lease is not a mapping, or has a string where a list of patterns belongs.
        ValueError: lease and budget both grant a currency.
    """
    need_mapping("lease", lease, '{"tool.call": ["search.*"]}')
    request: dict[str, list[str]] = {}
    for capability, patterns in (lease or {}).items():
        if isinstance(patterns, str):  # else each of its characters would be a pattern
            raise TypeError(f"{capability}: expected a list of patterns, not a string")
        request[capability] = list(patterns)
    if budget is not None:
        granted = request.get(_BUDGET, [])
        # Amounts of one currency add up; a currency given in both ways is rather a mistake.
        for currency in {str(amount).partition(":")[0] for amount in granted} & budget.keys():
            raise ValueError(f"{currency} is in the budget, and in the lease's {_BUDGET}, too")
        amounts = [f"{currency}:{amount}" for currency, amount in budget.items()]
        request[_BUDGET] = [*granted, *amounts]
    return request
