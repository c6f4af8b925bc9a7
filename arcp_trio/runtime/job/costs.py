"""Costs that an agent reports, and what they leave of the budgets (§9.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from arcp_trio.store.shared_writes import Spend
from arcp_trio.store.writes import KeepSpent
from arcp_trio.wire.event_bodies import Number
from arcp_trio.wire.events import REMAINING, InvalidEvent
from arcp_trio.wire.json import dumps

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from arcp_trio.authority.budget import Budget
    from arcp_trio.runtime.job.job import Job
    from arcp_trio.wire.json import JsonLike, JsonObject


@attrs.frozen
class Charge:
    """A cost that was taken off budgets."""

    currency: str
    budgets: list[Budget]
    """The budgets that have changed."""


def is_cost(metric: Mapping[str, JsonLike]) -> bool:
    """Return whether a metric tells of something that was spent."""
    name = metric["name"]
    return isinstance(name, str) and name.startswith("cost.") and name != REMAINING


def charge(job: Job, metric: Mapping[str, JsonLike]) -> Charge | None:
    """Take a metric off the budgets of a job and its ancestors; None if it costs them nothing.

    Raises:
        InvalidEvent: an amount that cannot be counted exactly.
    """
    currency, value = metric.get("unit"), metric["value"]
    if not is_cost(metric) or not isinstance(currency, str) or not isinstance(value, Number):
        return None  # a metric without a unit costs nothing
    try:
        budgets = job.authority.budget.charge(currency, value)
    except ValueError as error:
        raise InvalidEvent(f"metric: {error} @ $.value") from None
    return Charge(currency, budgets) if budgets else None


def spent(job: Job) -> bytes:
    """Return what a job and its children have spent, by currency, as JSON with decimal strings."""
    amounts = job.authority.budget.spent
    return dumps({currency: f"{amount:f}" for currency, amount in amounts.items()})


def keep_spent(job: Job) -> None:
    """Store what a job and those above it have spent together with the event that tells of it.

    Durable jobs need it after a restart, and other nodes list it.
    """
    store = job.core.store
    each: Job | None = job
    while each is not None:
        if each.authority.budget.spent_anything:
            if each.memory.durable:
                store.put(KeepSpent(each.id, spent(each)))
            if store.shared is not None:
                store.put(Spend(each.id, budget_left(each), spent(each)))
        each = each.parent


def budget_left(job: Job) -> bytes | None:
    """Return what is left of a job's budget, by currency, as JSON; None without a budget."""
    left = job.authority.budget.remaining
    return dumps(left) if left else None


def remaining(job: Job, charged: Charge) -> Iterator[tuple[Job, JsonObject]]:
    """Return each job whose budget has changed, and the metric that says what is left of it."""
    each: Job | None = job
    while each is not None:
        budget = each.authority.budget
        if budget in charged.budgets and not each.ended:
            left = budget.remaining[charged.currency]
            yield each, {"name": REMAINING, "value": left, "unit": charged.currency}
        each = each.parent
