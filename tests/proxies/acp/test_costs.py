"""What an agent spends is taken off its job's budget, once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from arcp_trio import JobFailed
from tests.proxies.acp.stage import begin, connected, told

pytestmark = pytest.mark.real_tcp

Events = list[tuple[str, Any]]


def spent(events: Events) -> list[tuple[str, str]]:
    """Return the costs among a job's events."""
    return [
        (str(body["value"]), body["unit"])
        for kind, body in events
        if kind == "metric" and body["name"] == "cost.inference"
    ]


async def test_a_sum_is_counted_by_its_increase() -> None:
    """Costs are told as sums of the session; each metric has the exact increase, none twice."""
    async with connected() as client:
        handle = await begin(
            client,
            *[["cost", amount] for amount in (0.1, 0.1, 0.1 + 0.2, 0.2, 0, 0.3, 1e-9, 2)],
            ["cost", 5, "EUR"],
            budget={"USD": 10, "EUR": 5},
        )
        await handle.result()
        events = await told(handle)
        assert spent(events) == [
            ("0.1", "USD"),
            ("0.2", "USD"),
            ("1.7", "USD"),
            ("5", "EUR"),
        ]
        left = [
            body["value"]
            for kind, body in events
            if kind == "metric" and body["name"] == "cost.budget.remaining"
        ]
        assert left[-2:] == [8, 0]


@pytest.mark.parametrize("amount", [-1, "1", None, True, 1e300, {}, "1e999"])
async def test_what_is_not_an_amount_costs_nothing(amount: Any) -> None:
    """An amount that is not a number, or cannot be counted, is passed over."""
    cost = {"amount": amount, "currency": "USD"}
    told_raw = {"sessionUpdate": "usage_update", "used": 1, "cost": cost}
    async with connected() as client:
        handle = await begin(client, ["updates", told_raw], ["cost", 1], budget={"USD": 10})
        await handle.result()
        events = await told(handle)
        assert spent(events) == [("1", "USD")]


async def test_an_agent_that_spends_on() -> None:
    """A cost that is told with the budget used up already stops the agent."""
    async with connected() as client:
        handle = await begin(
            client,
            ["cost", 1],
            ["cost", 3],
            ["say", "hears of it"],
            ["on_cancel", ["say", "last words"], ["cost", 4], ["end", "cancelled"]],
            budget={"USD": 1},
        )
        with pytest.raises(JobFailed) as caught:
            await handle.result()
        assert caught.value.code == "BUDGET_EXHAUSTED"
        events = await told(handle)
        assert spent(events) == [("1", "USD"), ("2", "USD"), ("1", "USD")]
        said = [body["data"] for kind, body in events if kind == "result_chunk"]
        assert "".join(said) == "hears of itlast words"


async def test_an_agent_that_spends_what_has_no_budget() -> None:
    """A cost in a currency without a budget stops the agent: nothing would bound it."""
    async with connected() as client:
        handle = await begin(client, ["cost", 1, "EUR"], ["wait"], budget={"USD": 1})
        with pytest.raises(JobFailed, match="the budget is in USD") as caught:
            await handle.result()
        assert caught.value.code == "BUDGET_EXHAUSTED"
        assert spent(await told(handle)) == [("1", "EUR")]


async def test_a_turn_that_ends_with_its_budget_used_up() -> None:
    """A turn whose last cost uses the budget up is a success."""
    async with connected() as client:
        handle = await begin(client, ["say", "done"], ["cost", 3], budget={"USD": 1})
        assert await handle.result() == "done"
        assert json.dumps(spent(await told(handle))) == '[["3", "USD"]]'
