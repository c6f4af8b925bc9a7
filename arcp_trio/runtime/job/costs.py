"""Costs that an agent reports, and what they leave of the budgets (§9.6)."""

from __future__ import annotations

import logging
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import attrs
import trio

from arcp_trio.authority.budget import without_noise
from arcp_trio.runtime.job import outcome
from arcp_trio.store.shared_writes import Spend
from arcp_trio.store.writes import KeepSpent
from arcp_trio.wire.errors import BudgetExhausted, clip
from arcp_trio.wire.event_bodies import Number
from arcp_trio.wire.events import REMAINING, InvalidEvent
from arcp_trio.wire.json import dumps

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from arcp_trio.authority.budget import Budget
    from arcp_trio.runtime.job.job import Job
    from arcp_trio.wire.json import JsonLike, JsonObject

log = logging.getLogger(__name__)

MOST_OVER: Final = 3
"""The costs beyond its budget that a job may report; with the last of them it is ended.

An agent may have begun several things before it could know that the money is gone.
"""

_ALMOST: Final = re.compile(r"costs?(?![a-z])", re.IGNORECASE)
"""The beginning of a name that is meant as that of a cost."""


@attrs.frozen
class Charge:
    """A cost, which was taken off budgets."""

    currency: str
    budgets: list[Budget]
    """The budgets that have changed."""
    objection: str | None
    """Why it should not have been spent."""


def is_cost(metric: Mapping[str, JsonLike]) -> bool:
    """Return whether a metric tells of something that was spent."""
    name = metric["name"]
    return isinstance(name, str) and name.startswith("cost.") and name != REMAINING


def almost_cost(job: Job, metric: Mapping[str, JsonLike]) -> str | None:
    """Return what to tell of a metric that seems to be meant as a cost, the first time.

    Beside a budget, money would be spent that nobody counts.
    """
    name = metric["name"]
    assert isinstance(name, str), "the body was checked"
    if not _ALMOST.match(name) or name.startswith("cost.") or job.almost_cost_told:
        return None
    units = job.authority.budget.bounds
    if not units:
        return None
    job.almost_cost_told = True
    return (
        f"the metric {clip(name)!r} takes nothing off the budget: name costs cost.SOMETHING, with a"
        f" unit, such as {next(iter(units))}"
    )


def as_meant(metric: Mapping[str, JsonLike]) -> Mapping[str, JsonLike]:
    """Return a metric as it is told and counted: a cost without the noise of floats."""
    value = metric["value"]
    if not is_cost(metric) or not isinstance(value, float):
        return metric
    given = Decimal(repr(float(value)))
    meant = without_noise(given)
    return metric if meant is given else {**metric, "value": meant}


def charge(job: Job, metric: Mapping[str, JsonLike]) -> Charge | None:
    """Take a metric off the budgets of a job and its ancestors; None if it costs nothing.

    Raises:
        InvalidEvent: an amount that cannot be counted exactly.
    """
    currency, value = metric.get("unit"), metric["value"]
    if not is_cost(metric) or not isinstance(value, Number) or not value:
        return None
    unit = currency if isinstance(currency, str) else None
    budget = job.authority.budget
    objection = budget.objection(unit)
    if objection is not None and job.costs_over >= MOST_OVER:
        raise BudgetExhausted(objection)  # the job is being ended for it already
    try:
        budgets = budget.charge(unit or "", value)
    except ValueError as error:
        raise InvalidEvent(f"metric: {error} @ $.value") from None
    return Charge(unit or "", budgets, objection)


def overspent(job: Job, charged: Charge) -> BudgetExhausted | None:
    """Return the error for a cost beyond the budget; end a job that spends on and on.

    The cost counts, and is told: the money is gone.
    """
    if charged.objection is None:
        return None
    error = BudgetExhausted(charged.objection)
    job.costs_over += 1
    if job.costs_over == MOST_OVER:
        log.warning("job goes on spending beyond its budget", extra=job.facts)
        job.end(outcome.failed(error))
    return error


async def refuse_if_exhausted(job: Job) -> None:
    """Return if there is money for more work.

    Raises:
        BudgetExhausted: the budget is used up.
    """
    currency = job.authority.budget.exhausted()
    if currency is not None:
        await trio.lowlevel.checkpoint()  # the agent may try again at once, for ever
        raise BudgetExhausted(f"{currency} budget exhausted")


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
