"""What an agent reports as cost, and what that leaves of the budgets (§9.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from arcp_trio.wire.events import REMAINING, InvalidEvent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from arcp_trio.authority.budget import Budget
    from arcp_trio.runtime.job.job import Job
    from arcp_trio.wire.json import Json, JsonObject


@attrs.frozen
class Spent:
    """Budgets that have changed, in one currency."""

    currency: str
    budgets: list[Budget]


def charge(job: Job, metric: Mapping[str, Json]) -> Spent | None:
    """Count a metric against the job's budget and those above it; None if it is no cost to them.

    Raises:
        InvalidEvent: an amount that cannot be counted exactly.
    """
    name, currency = metric["name"], metric.get("unit")
    if currency is None or name == REMAINING or not name.startswith("cost."):
        return None
    try:
        budgets = job.authority.budget.charge(currency, metric["value"])
    except ValueError as error:
        raise InvalidEvent(f"metric: {error} @ $.value") from None
    return Spent(currency, budgets) if budgets else None


def changed(job: Job, spent: Spent) -> Iterator[tuple[Job, JsonObject]]:
    """Each job whose budget has changed, and the metric in which it is to say what it has left."""
    line: Job | None = job
    while line is not None:
        budget = line.authority.budget
        if budget in spent.budgets and not line.sealed:
            left = budget.remaining[spent.currency]
            yield line, {"name": REMAINING, "value": left, "unit": spent.currency}
        line = line.parent
