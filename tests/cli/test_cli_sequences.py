"""The specification's sequences of §13 on leases, against the real server, frame by frame."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import Peer, peer, starter

pytestmark = pytest.mark.real_tcp

AGENTS = """
import trio
from arcp_trio import Agents, BudgetExhausted, LeaseExpired

agents = Agents()

@agents.agent("web-research")
async def research(job):
    for tool, cost, amount in (("search.web", "search", 0.42), ("fetch.url", "fetch", 0.70)):
        async with job.tool_call(tool) as call:
            call.result = {}
        await job.metric(f"cost.{cost}", amount, unit="USD")
    try:
        async with job.tool_call("fetch.url"):
            raise AssertionError("never reached")
    except BudgetExhausted:
        return "partial"

@agents.agent("indexer")
async def indexer(job):
    await job.progress(42000, total=100000, units="files")
    with trio.CancelScope(shield=True):  # the job ends with its lease
        await trio.sleep(job.input)
        try:
            async with job.tool_call("index.write"):
                raise AssertionError("never reached")
        except LeaseExpired:
            await job.log("unwinding")
    return "never said"
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """Have one session with one runtime, for all tests of the file."""
    folder: Path = tmp_path_factory.mktemp("sequences")
    (folder / "sequences.py").write_text(AGENTS)
    with starter(folder) as start:
        served = start("serve", "--port", "0", "--token", "alice=x", "--agents", "sequences")
        with peer(served.url(), "x") as connected:
            yield connected


def told(frame: dict[str, Any]) -> tuple[object, ...]:
    """Return what the sequence diagrams show of a frame."""
    payload = frame["payload"]
    body = payload.get("body", {})
    shown = ("tool", "name", "value", "unit", "current", "phase")
    error = body.get("error", payload)
    return (
        payload.get("kind", frame["type"]),
        *(body[name] for name in shown if name in body),
        *(error[name] for name in ("code", "retryable", "final_status") if name in error),
    )


@pytest.mark.spec("9.6-3", "9.6-4", "9.6-5")
def test_budget_enforcement(session: Peer) -> None:
    """Each cost is followed by what is left, also below zero; then the next call is refused."""
    lease = {"tool.call": ["search.*", "fetch.*"], "cost.budget": ["USD:1.00"]}
    accepted = session.submit("web-research", lease_request=lease)
    assert accepted["payload"]["budget"] == {"USD": 1.00}
    assert accepted["payload"]["lease"] == lease
    frames = session.until_terminal()
    assert [told(frame) for frame in frames] == [
        ("tool_call", "search.web"),
        ("tool_result",),
        ("metric", "cost.search", 0.42, "USD"),
        ("metric", "cost.budget.remaining", 0.58, "USD"),
        ("tool_call", "fetch.url"),
        ("tool_result",),
        ("metric", "cost.fetch", 0.7, "USD"),
        ("metric", "cost.budget.remaining", -0.12, "USD"),
        ("tool_call", "fetch.url"),
        ("tool_result", "BUDGET_EXHAUSTED", False),
        ("job.result", "success"),
    ]
    assert frames[-2]["payload"]["body"]["error"]["message"] == "USD budget exhausted"


@pytest.mark.spec("9.5-4", "9.5-5", "9.5-6")
def test_lease_expiration(session: Peer) -> None:
    """The first operation after the lease's end is refused, and the job ends with that error."""
    end = (datetime.now(UTC) + timedelta(seconds=3)).isoformat().replace("+00:00", "Z")
    accepted = session.submit(
        "indexer",
        3.5,
        lease_request={"tool.call": ["index.*"]},
        lease_constraints={"expires_at": end},
    )
    assert accepted["payload"]["lease_constraints"] == {"expires_at": end}
    assert [told(frame) for frame in session.until_terminal()] == [
        ("progress", 42000),
        ("tool_call", "index.write"),
        ("tool_result", "LEASE_EXPIRED", False),
        ("log",),
        ("job.error", "LEASE_EXPIRED", False, "error"),
    ]
