"""Budgets are counted exactly and checked before each operation (§9.6)."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from decimal import Decimal

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import (
    ArcpError,
    BudgetExhausted,
    InvalidEvent,
    InvalidRequest,
    JobContext,
    Retry,
    Runtime,
    StaticTokens,
    Workers,
)
from arcp_trio.testing import Peer, open_peer
from arcp_trio.testing.frames import Frame
from arcp_trio.testing.peer import TEST_TOKEN
from arcp_trio.wire.json import Json
from tests.jobs import doer, spending
from tests.jobs.doer import do
from tests.reading import until_end

EXHAUSTED = "BUDGET_EXHAUSTED"
LEFT = "cost.budget.remaining"


def left(bodies: list[Frame]) -> list[Json]:
    """Return the amounts that the events say are left, in order."""
    return [body["value"] for body in bodies if body.get("name") == LEFT]


# -- counting


@pytest.mark.spec("9.6-1", "9.6-2", "9.6-3", "9.6-4", "9.6-9")
async def test_a_cost_is_taken_off_its_currency(peer: Peer, autojump_clock: MockClock) -> None:
    """Each currency has its own counter, and each cost is followed by what is left of it."""
    end, bodies = await do(
        peer,
        ["metric", "cost.search", 0.4, "USD"],
        ["metric", "cost.inference", 250, "credits"],
        ["metric", "cost.search", 0.1, "USD"],
        ["left"],
        lease_request={"cost.budget": ["USD:1.00", "credits:1000"]},
    )
    assert [(body["name"], body["value"], body["unit"]) for body in bodies] == [
        ("cost.search", 0.4, "USD"),
        (LEFT, 0.6, "USD"),
        ("cost.inference", 250, "credits"),
        (LEFT, 750, "credits"),
        ("cost.search", 0.1, "USD"),
        (LEFT, 0.5, "USD"),
    ]
    assert end["result"][-1] == {"USD": "0.50", "credits": "750"}


async def test_a_metric_that_seems_to_be_a_cost_is_warned_of(
    peer: Peer, autojump_clock: MockClock
) -> None:
    """The first metric that is named almost as a cost is told not to count; others are not."""
    steps: list[list[Json]] = [
        ["metric", "costly.rows", 7, "USD"],
        ["metric", "cost", 0.4, "USD"],
        ["metric", "costs.x", 0.4, "USD"],
        ["metric", "Cost_x", 0.4],
        ["left"],
    ]
    end, bodies = await do(peer, *steps, lease_request={"cost.budget": ["USD:1.00"]})
    assert end["result"][-1] == {"USD": "1.00"}
    assert [body.get("name", body.get("level")) for body in bodies] == [
        *("costly.rows", "cost", "warn", "costs.x", "Cost_x")
    ]
    assert bodies[2]["message"] == (
        "the metric 'cost' takes nothing off the budget: name costs cost.SOMETHING, with a unit,"
        " such as USD"
    )
    _, bodies = await do(peer, *steps)
    assert len(bodies) == 4


@pytest.mark.parametrize("name", ["costs.x", "cost_x", "cost-x", "Cost.x", "costs"])
async def test_names_that_seem_to_be_costs(
    peer: Peer, name: str, autojump_clock: MockClock
) -> None:
    """Each way to miss the name of a cost is warned of."""
    _, bodies = await do(
        peer, ["metric", name, 1], lease_request={"cost.budget": ["credits:5", "USD:1"]}
    )
    assert [body.get("level") for body in bodies] == [None, "warn"]
    assert f"{name!r}" in bodies[1]["message"]
    assert bodies[1]["message"].endswith("such as credits")


@pytest.mark.spec("9.6-4", "9.6-7")
@pytest.mark.parametrize("how", ["metric", "decimal"])
async def test_ten_dimes_are_a_dollar(peer: Peer, how: str, autojump_clock: MockClock) -> None:
    """Sums are exact, for floats and for decimals."""
    dime: Json = 0.1 if how == "metric" else "0.1"
    steps: list[list[Json]] = [[how, "cost.x", dime, "USD"]] * 10
    lease = {"tool.call": ["*"], "cost.budget": ["USD:1.00"]}
    end, bodies = await do(
        peer, *steps[:9], ["tool", "t"], steps[9], ["left"], ["tool", "t"], lease_request=lease
    )
    assert end["result"] == ["done"] * 11 + [{"USD": "0.00"}, EXHAUSTED]
    assert left(bodies) == [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0]


@pytest.mark.spec("9.6-4")
async def test_what_stands_on_the_wire_is_the_amount(
    peer: Peer, runtime: Runtime, autojump_clock: MockClock
) -> None:
    """The wire shows 0.3 for 0.1 + 0.2, and all digits of a decimal that a float cannot hold."""

    @runtime.agent("exact")
    async def exact(job: JobContext) -> Json:
        await job.metric("cost.a", 0.1, unit="USD")
        await job.metric("cost.b", Decimal("0.2"), unit="USD")
        with pytest.raises(BudgetExhausted):
            await job.metric("cost.c", Decimal("0.1234567890123456789"), unit="USD")
        return str(job.budget["USD"])

    await peer.send(
        "job.submit", {"agent": "exact", "lease_request": {"cost.budget": ["USD:0.30"]}}
    )
    text = ""
    while '"job.result"' not in text:
        frame = await peer.transport.receive()
        assert isinstance(frame, str)
        text += frame
    assert '"value":0.1234567890123456789' in text
    assert '"value":-0.1234567890123456789' in text
    assert '"result":"-0.1234567890123456789"' in text


@pytest.mark.spec("9.6-4")
async def test_amounts_have_no_noise(
    peer: Peer, runtime: Runtime, autojump_clock: MockClock
) -> None:
    """A cost that was calculated with floats is told and counted as it is meant, to the cent."""

    @runtime.agent("model")
    async def model(job: JobContext) -> Json:
        await job.metric("cost.model", 1_200 * 0.00001, unit="USD")
        await job.metric("cost.model", 0.1 + 0.2, unit="USD")
        await job.metric("cost.model", 1.5e-13, unit="USD")
        await job.metric("cost.model", 12_345_678_901_234.56, unit="EUR")
        await job.metric("x", 0.1 + 0.2, unit="USD")
        return {currency: str(left) for currency, left in job.budget.items()}

    lease = {"cost.budget": ["USD:1", "EUR:12345678901235"]}
    job = await peer.submit("model", lease_request=lease)
    end, bodies = await doer.whole(peer, job["job_id"])
    told = [body["value"] for body in bodies if body["name"] == "cost.model"]
    assert told == [0.012, 0.3, 1.5e-13, 12_345_678_901_234.56]
    assert end["result"] == {"USD": "0.68799999999985", "EUR": "0.44"}
    assert bodies[-1]["value"] == 0.1 + 0.2


@pytest.mark.spec("9.6-4")
async def test_a_hundred_tasks_spend_a_dollar(
    peer: Peer, runtime: Runtime, autojump_clock: MockClock
) -> None:
    """However an agent's tasks are scheduled, the counter ends at 0 and never goes up."""

    @runtime.agent("crowd")
    async def crowd(job: JobContext) -> Json:
        async def pay() -> None:
            await trio.lowlevel.checkpoint()
            await job.metric("cost.x", 0.01, unit="USD")

        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(pay)
        return str(job.budget["USD"])

    accepted = await peer.submit("crowd", lease_request={"cost.budget": ["USD:1.00"]})
    end, bodies = await doer.whole(peer, accepted["job_id"])
    assert end["result"] == "0.00"
    assert left(bodies) == [round(1 - n / 100, 2) for n in range(1, 101)]


# -- what is not a cost


@pytest.mark.spec("9.6-5")
@pytest.mark.parametrize(
    "value", ["-1", "-0.000001", "NaN", "Infinity", "1e400", '"0.1"', "true", "null", "[1]"]
)
async def test_what_is_no_amount_changes_nothing(
    peer: Peer, runtime: Runtime, value: str, autojump_clock: MockClock
) -> None:
    """A cost that is not an amount is refused to the agent, and no event of it is sent."""

    @runtime.agent("wrong")
    async def wrong(job: JobContext) -> Json:
        with pytest.raises(InvalidEvent):
            await job.metric("cost.x", json.loads(value), unit="USD")
        with pytest.raises(InvalidEvent):
            await job.emit("metric", {"name": "cost.x", "value": json.loads(value), "unit": "USD"})
        return str(job.budget["USD"])

    accepted = await peer.submit("wrong", lease_request={"cost.budget": ["USD:1.00"]})
    end, bodies = await doer.whole(peer, accepted["job_id"])
    assert end["result"] == "1.00"
    assert bodies == []


@pytest.mark.spec("9.6-5")
@pytest.mark.parametrize("amount", ["1e18", "-1e18", "1e-41", "NaN", "Infinity"])
async def test_a_decimal_out_of_bounds_changes_nothing(
    peer: Peer, amount: str, autojump_clock: MockClock
) -> None:
    """An amount that cannot be counted exactly is refused rather than rounded."""
    end, bodies = await do(
        peer,
        ["decimal", "cost.x", amount, "USD"],
        ["left"],
        lease_request={"cost.budget": ["USD:1"]},
    )
    assert end["result"] == ["InvalidEvent", {"USD": "1"}]
    assert bodies == []


@pytest.mark.spec("9.6-3")
@pytest.mark.parametrize(
    ("name", "unit"),
    [
        (LEFT, "USD"),
        ("latency", "USD"),
        ("costs.x", "USD"),
        ("cost", "USD"),
        ("latency", None),
    ],
)
async def test_what_is_not_counted(
    peer: Peer, name: str, unit: str | None, autojump_clock: MockClock
) -> None:
    """Metrics that are not costs are events that change no counter."""
    end, bodies = await do(
        peer,
        ["metric", name, 0.9, unit],
        ["left"],
        ["tool", "t"],
        lease_request={"tool.call": ["*"], "cost.budget": ["USD:1"]},
    )
    assert end["result"] == ["done", {"USD": "1"}, "done"]
    assert [body["name"] for body in bodies if "name" in body] == [name]


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        ("EUR", "a cost in 'EUR', and the budget is in USD: the job needs one in that unit, too"),
        ("usd", "a cost in 'usd', and the budget is in USD: did you mean USD?"),
        (None, "a cost without a unit, and the budget is in USD: give the metric its unit"),
    ],
)
async def test_a_budget_bounds_every_cost(
    peer: Peer, unit: str | None, words: str, autojump_clock: MockClock
) -> None:
    """A cost that no counter of the budget takes is told, and an error; the next one, too."""
    steps: list[list[Json]] = [["metric", "cost.x", 0.9, unit]] * 5
    end, bodies = await do(peer, *steps, lease_request={"cost.budget": ["USD:1"]})
    assert (end["code"], end["message"]) == (EXHAUSTED, words)
    assert [body["name"] for body in bodies] == ["cost.x"] * 3


async def test_without_a_budget_all_units_are_free(peer: Peer, autojump_clock: MockClock) -> None:
    """A job without a budget may spend in any currency, and in none."""
    end, _ = await do(peer, *[["metric", "cost.x", 1, unit] for unit in ("EUR", "usd", None)])
    assert end["result"] == ["done"] * 3


@pytest.mark.spec("9.6-9")
async def test_what_is_left_is_told_once_for_each_change(
    peer: Peer, autojump_clock: MockClock
) -> None:
    """A cost of zero sends no remaining amount, even after the budget was used up."""
    pay: list[Json] = ["metric", "cost.x", 1, "USD"]
    free: list[Json] = ["metric", "cost.x", 0, "USD"]
    end, bodies = await do(
        peer, pay, *[free] * 500, pay, *[free] * 500, lease_request={"cost.budget": ["USD:1"]}
    )
    assert end["final_status"] == "success"
    assert left(bodies) == [0, -1]


async def test_a_metric_that_is_refused_for_its_size_is_no_cost(
    peer: Peer, runtime: Runtime, autojump_clock: MockClock
) -> None:
    """A cost whose event is too large to be sent is not counted."""

    @runtime.agent("verbose")
    async def verbose(job: JobContext) -> Json:
        with pytest.raises(ArcpError):
            await job.metric("cost.x", 1, unit="USD", dimensions={"why": "x" * 2**20})
        return str(job.budget["USD"])

    accepted = await peer.submit("verbose", lease_request={"cost.budget": ["USD:1"]})
    end, bodies = await doer.whole(peer, accepted["job_id"])
    assert (end["result"], bodies) == ("1", [])


# -- enforcement


@pytest.mark.spec("9.6-6", "9.6-7", "9.6-8")
@pytest.mark.parametrize(
    "step",
    [
        ["tool", "t"],
        ["authorize", "fs.read", "/a"],
        ["open", "/a", "w"],
        ["authorize", "net.fetch", "https://h/"],
        ["authorize", "model.use", "m"],
        ["delegate", {"agent": "doer", "input": []}],
        ["tool", "not.granted"],
        ["authorize", "x-vendor.acme.y", "not granted"],
    ],
    ids=str,
)
@pytest.mark.parametrize("budget", [["USD:1"], ["EUR:1", "USD:1"], ["USD:0.00"]], ids=str)
async def test_nothing_is_free_once_the_money_is_gone(
    peer: Peer, step: list[Json], budget: list[str], autojump_clock: MockClock
) -> None:
    """One counter at or below zero refuses every operation, before its pattern is checked.

    The job decides how to go on, and may still succeed.
    """
    lease: dict[str, Json] = {
        "fs.read": ["/**"],
        "fs.write": ["/**"],
        "net.fetch": ["https://**"],
        "tool.call": ["t"],
        "agent.delegate": ["*"],
        "model.use": ["*"],
        "cost.budget": budget,
    }
    spend: list[list[Json]] = [] if budget == ["USD:0.00"] else [["metric", "cost.x", 5.0, "USD"]]
    end, bodies = await do(peer, *spend, step, ["log", "on"], lease_request=lease)
    assert end["result"] == ["done"] * len(spend) + [EXHAUSTED, "done"]
    if spend:
        assert left(bodies) == [-4]
        assert bodies[0]["value"] == 5.0
    errors = [body["error"] for body in bodies if "error" in body]
    assert [(e["code"], e["retryable"]) for e in errors] == (
        [(EXHAUSTED, False)] if step[0] in ("tool", "delegate") else []
    )


@pytest.mark.real_tcp
@pytest.mark.parametrize("process", ["", "-process"])
@pytest.mark.parametrize("where", ["trio", "thread", "asyncio"])
async def test_work_ends_with_the_money(where: str, process: str) -> None:
    """The next step, or a cost more, is an error; who goes on spending is ended.

    Wherever the agent runs, the job ends as BUDGET_EXHAUSTED.
    """
    left_at_the_end = {"steps": {0}, "metrics": {-1}, "emits": {-1}, "swallowing": {-3, -4, -5}}
    with trio.fail_after(60):
        runtime = Runtime(auth=StaticTokens({TEST_TOKEN: "alice"}), workers=Workers(count=1))
        runtime.add(spending.agents)
        async with runtime, open_peer(runtime) as peer:
            await peer.hello()
            for way, amounts in left_at_the_end.items():
                lease = {"cost.budget": ["USD:2"]}
                job = await peer.submit(where + process, way, lease_request=lease)
                end, bodies = await doer.whole(peer, job["job_id"])
                assert end["code"] == EXHAUSTED, way
                assert end["message"] == "USD budget exhausted"
                assert left(bodies)[-1] in amounts, way


@pytest.mark.spec("9.6-7")
async def test_what_still_works_without_money(
    peer: Peer, runtime: Runtime, autojump_clock: MockClock
) -> None:
    """Words, an open tool call, and the result: an agent can end in order, and succeed."""

    @runtime.agent("orderly")
    async def orderly(job: JobContext) -> None:
        async with job.stream_result() as out:
            async with job.tool_call("t") as call:
                await job.metric("cost.x", 2, unit="USD")
                call.result = "bought"
            with pytest.raises(BudgetExhausted):
                await job.step("more", trio.sleep, 0)
            with pytest.raises(BudgetExhausted):
                await job.call_tool("t", trio.sleep, seconds=0)
            with pytest.raises(BudgetExhausted):
                await job.ask("More?")
            await job.log("the money is gone")
            await job.metric("latency", 3, unit="s")
            await job.metric("cost.cached", 0, unit="USD")
            await job.keep({"got": 1})
            await out.write("what there is")

    lease = {"tool.call": ["*"], "cost.budget": ["USD:2"]}
    job = await peer.submit("orderly", lease_request=lease)
    end, bodies = await doer.whole(peer, job["job_id"])
    assert end["final_status"] == "success"
    assert [body["result"] for body in bodies if "result" in body] == ["bought"]
    assert "".join(body.get("data", "") for body in bodies) == "what there is"


async def test_a_step_is_not_tried_again_without_money(
    peer: Peer, runtime: Runtime, autojump_clock: MockClock
) -> None:
    """Neither a failure after the last dollar nor a cost beyond it leads to another call."""
    calls: list[str] = []

    @runtime.agent("again")
    async def again(job: JobContext) -> None:
        async def work(what: str, cost: float) -> None:
            calls.append(what)
            await job.metric("cost.x", cost, unit="USD")
            raise ConnectionError

        retry = Retry(on=(Exception,))
        with pytest.raises(BudgetExhausted):
            await job.step("the last", work, "the last", 1, retry=retry)
        with pytest.raises(BudgetExhausted):
            await job.step("beyond", work, "beyond", 1, retry=retry)

    job = await peer.submit("again", lease_request={"cost.budget": ["USD:1"]})
    end, _ = await doer.whole(peer, job["job_id"])
    assert end["final_status"] == "success"
    assert calls == ["the last"]


async def test_an_agent_that_tries_for_ever_holds_up_nobody(
    peer: Peer, runtime: Runtime, autojump_clock: MockClock
) -> None:
    """A refused step lets others run: the job can be cancelled."""

    @runtime.agent("trying")
    async def trying(job: JobContext) -> None:
        while True:
            with suppress(BudgetExhausted):
                await job.step("more", trio.sleep, 0)

    job = await peer.submit("trying", lease_request={"cost.budget": ["USD:0"]})
    await peer.send("job.cancel", {"job_id": job["job_id"]})
    end, _ = await doer.whole(peer, job["job_id"])
    assert end["code"] == "CANCELLED"


@pytest.mark.spec("9.6-6")
async def test_an_operation_does_not_spend(peer: Peer, autojump_clock: MockClock) -> None:
    """Neither an allowed nor a refused operation takes anything off the budget."""
    end, _ = await do(
        peer,
        ["tool", "t"],
        ["tool", "u"],
        ["delegate", {"agent": "doer", "input": [], "budget": {"USD": 2}}],
        ["left"],
        lease_request={"tool.call": ["t"], "agent.delegate": ["*"], "cost.budget": ["USD:1"]},
    )
    refusals = ["done", "PERMISSION_DENIED", "LEASE_SUBSET_VIOLATION"]
    assert end["result"] == [*refusals, {"USD": "1"}]


@pytest.mark.spec("9.6-4")
async def test_no_client_can_spend_or_earn(peer: Peer, autojump_clock: MockClock) -> None:
    """A client that sends cost events is refused, and the budget does not change."""
    accepted = await peer.submit(
        "doer", [["sleep", 10], ["left"]], lease_request={"cost.budget": ["USD:1"]}
    )
    metric = {"kind": "metric", "body": {"name": "cost.x", "value": 1, "unit": "USD"}}
    await peer.send("job.event", metric, job_id=accepted["job_id"])
    refusal = await peer.expect("session.error")
    assert refusal["payload"]["code"] == "INVALID_REQUEST"
    end, _ = await doer.whole(peer, accepted["job_id"])
    assert end["result"][-1] == {"USD": "1"}


# -- how a budget is asked for


@pytest.mark.spec("9.6-1")
@pytest.mark.parametrize(
    "amount",
    ["USD", "USD:", ":5", "USD:-1", "USD:1e3", "usd 5", "USD:1,5", "USD:.5", "USD:NaN", "usd:5"],
)
async def test_a_malformed_amount_is_refused(
    peer: Peer, amount: str, autojump_clock: MockClock
) -> None:
    """A malformed budget is refused and never becomes an unbounded job."""
    with pytest.raises(ArcpError) as refusal:
        await peer.submit("doer", [], lease_request={"cost.budget": [amount]})
    assert refusal.value.code == "INVALID_REQUEST"


@pytest.mark.spec("9.6-2")
async def test_amounts_of_one_currency_are_one_counter(
    peer: Peer, autojump_clock: MockClock
) -> None:
    """Several amounts of one currency are added, in the acceptance and in the counter."""
    accepted = await peer.submit(
        "doer", [["left"]], lease_request={"cost.budget": ["USD:1", "USD:2.50"]}
    )
    assert accepted["budget"] == {"USD": 3.5}
    assert accepted["lease"] == {"cost.budget": ["USD:3.50"]}
    end, _ = await doer.whole(peer, accepted["job_id"])
    assert end["result"] == [{"USD": "3.50"}]


@pytest.mark.spec("9.6-1")
@pytest.mark.parametrize("currency", ["usd", "Usd", "eUR"])
async def test_a_currency_is_written_in_capitals(
    peer: Peer, currency: str, autojump_clock: MockClock
) -> None:
    """A budget in `usd` would bound no cost in `USD`: it is refused, delegated or submitted."""
    words = f"{currency}:2: did you mean {currency.upper()}?"
    with pytest.raises(InvalidRequest, match=re.escape(words)):
        await peer.submit("doer", [], lease_request={"cost.budget": [f"{currency}:2"]})
    child: Json = {"agent": "doer", "input": [], "budget": {currency: 2}}
    end, bodies = await do(
        peer,
        ["delegate", child],
        lease_request={"agent.delegate": ["*"], "cost.budget": ["USD:2", "credits:2"]},
    )
    assert end["result"] == ["INVALID_REQUEST"]
    (error,) = [body["error"] for body in bodies if "error" in body]
    assert words in error["message"]


# -- budgets of parents and children


@pytest.mark.spec("9.6-4", "9.6-7", "9.6-9")
@pytest.mark.parametrize("budget", [None, {"USD": "0.75"}], ids=str)
async def test_a_childs_spending_is_its_ancestors_too(
    peer: Peer, budget: Json, autojump_clock: MockClock
) -> None:
    """Each job with the currency in its budget reports what it has left, the spender first."""
    leaf: Json = {
        "agent": "doer",
        "input": [["metric", "cost.x", 0.5, "USD"], ["metric", "x", 7, "EUR"]],
    }
    middle: Json = {
        "agent": "doer",
        "input": [["delegate", leaf], ["left"]],
        "lease": {"agent.delegate": ["*"]},
        "budget": budget,
    }
    accepted = await peer.submit(
        "doer",
        [["delegate", middle], ["left"]],
        lease_request={"agent.delegate": ["*"], "cost.budget": ["USD:1"]},
    )
    frames = await until_end(peer, accepted["job_id"])
    parent, *others = [frame for frame in frames if frame["type"] == "job.accepted"]
    line = [accepted["job_id"], parent["job_id"], others[0]["job_id"]]
    told = [
        (line.index(frame["job_id"]), body["value"])
        for frame in frames
        if (body := frame["payload"].get("body", {})).get("name") == LEFT
    ]
    if budget is None:
        assert told == [(0, 0.5)]
    else:
        assert told == [(1, 0.25), (0, 0.5)]
    middle_left = {} if budget is None else {"USD": "0.25"}
    assert frames[-1]["payload"]["result"] == [[["done", "done"], middle_left], {"USD": "0.5"}]


@pytest.mark.spec("9.6-7")
async def test_a_child_without_a_budget_stops_with_its_parents(
    peer: Peer, autojump_clock: MockClock
) -> None:
    """A child without a budget is refused operations when an ancestor's budget is used up."""
    child: Json = {
        "agent": "doer",
        "input": [["tool", "t"], ["metric", "cost.x", 1, "USD"], ["tool", "t"]],
        "lease": {"tool.call": ["t"]},
    }
    end, _ = await do(
        peer,
        ["delegate", child],
        ["tool", "t"],
        lease_request={"tool.call": ["t"], "agent.delegate": ["*"], "cost.budget": ["USD:1"]},
    )
    assert end["result"] == [["done", "done", EXHAUSTED], EXHAUSTED]
