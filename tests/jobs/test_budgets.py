"""Budgets are counted exactly and checked before each operation (§9.6)."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import ArcpError, InvalidEvent, JobContext, Runtime
from arcp_trio.testing import Peer
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.json import Json
from tests.jobs import doer
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
        ("cost.x", "EUR"),
        ("cost.x", "usd"),
        ("cost.x", None),
    ],
)
async def test_what_is_not_counted(
    peer: Peer, name: str, unit: str | None, autojump_clock: MockClock
) -> None:
    """Metrics that are not costs, and other currencies, are events that change no counter."""
    end, bodies = await do(
        peer,
        ["metric", name, 0.9, unit],
        ["left"],
        ["tool", "t"],
        lease_request={"tool.call": ["*"], "cost.budget": ["USD:1"]},
    )
    assert end["result"] == ["done", {"USD": "1"}, "done"]
    assert [body["name"] for body in bodies if "name" in body] == [name]


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
    "amount", ["USD", "USD:", ":5", "USD:-1", "USD:1e3", "usd 5", "USD:1,5", "USD:.5", "USD:NaN"]
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


# -- budgets of parents and children


@pytest.mark.spec("9.6-4", "9.6-7", "9.6-9")
@pytest.mark.parametrize("budget", [None, {"USD": "0.75"}], ids=str)
async def test_a_childs_spending_is_its_ancestors_too(
    peer: Peer, budget: Json, autojump_clock: MockClock
) -> None:
    """Each job with the currency in its budget reports what it has left, the spender first."""
    leaf: Json = {
        "agent": "doer",
        "input": [["metric", "cost.x", 0.5, "USD"], ["metric", "cost.x", 7, "EUR"]],
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
