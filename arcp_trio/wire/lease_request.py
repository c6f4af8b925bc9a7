"""What a job asks to be allowed, as it stands on the wire (§9.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

_BUDGET: Final = "cost.budget"


def lease_request(
    lease: Mapping[str, Sequence[str]] | None, budget: Mapping[str, str] | None
) -> dict[str, list[str]]:
    """Put the patterns of a lease and the amounts of a budget, by currency, into one request.

    Raises:
        TypeError: a string stands where a list of patterns belongs.
        ValueError: lease and budget both grant a currency.
    """
    request: dict[str, list[str]] = {}
    for capability, patterns in (lease or {}).items():
        if isinstance(patterns, str):  # a sequence of its characters, each a pattern
            raise TypeError(f"{capability}: expected a list of patterns, not a string")
        request[capability] = list(patterns)
    if budget is not None:
        granted = request.get(_BUDGET, [])
        # Amounts of one currency add up: what is said in two ways is hardly meant twice.
        for currency in {str(amount).partition(":")[0] for amount in granted} & budget.keys():
            raise ValueError(f"{currency} is in the budget, and in the lease's {_BUDGET}, too")
        amounts = [f"{currency}:{amount}" for currency, amount in budget.items()]
        request[_BUDGET] = [*granted, *amounts]
    return request
