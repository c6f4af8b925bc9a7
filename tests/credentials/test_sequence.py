"""The sequence of §13.7, frame by frame: a job that calls a gateway with a virtual key."""

from __future__ import annotations

from decimal import Decimal

import pytest
from trio.testing import MockClock

from arcp_trio import JobContext, Json
from arcp_trio.testing import open_peer
from tests.credentials.runtimes import as_told, providing_runtime
from tests.credentials.upstream import ENDPOINT, Upstream


@pytest.mark.spec("9.8.2-1", "9.8.2-4", "9.8.3-1", "9.8.3-2", "9.8.3-3")
async def test_a_provisioned_credential(autojump_clock: MockClock) -> None:
    """The frames are those of §13.7: acceptance with credential, cost, remainder, result."""
    upstream = Upstream()
    runtime = providing_runtime(upstream)
    used: list[str] = []

    @runtime.agent("research-summarizer")
    async def research_summarizer(job: JobContext) -> Json:
        """Call the gateway, and report the cost."""
        (credential,) = job.credentials
        assert credential.endpoint == ENDPOINT
        assert credential.value in upstream.live_values
        used.append(credential.value)
        await job.metric("cost.inference", Decimal("0.83"), unit="USD")
        return {"summary": "short"}

    lease = {"tool.call": ["fetch.*"], "cost.budget": ["USD:2.00"], "model.use": ["tier-fast/*"]}
    async with runtime, open_peer(runtime) as peer:
        await peer.hello()
        submit = {"agent": "research-summarizer", "lease_request": lease}
        request = await peer.send("job.submit", submit)
        frames = [await peer.receive() for _ in range(4)]
    accepted, cost, remaining, result = frames
    assert [frame["type"] for frame in frames] == [
        "job.accepted",
        "job.event",
        "job.event",
        "job.result",
    ]
    payload = accepted["payload"]
    assert payload["request_id"] == request
    assert payload["budget"] == {"USD": 2.0}
    (credential,) = payload["credentials"]
    assert credential == as_told(credential["id"], upstream.keys["vk_1"].value)
    assert used == [credential["value"]]
    body = cost["payload"]["body"]
    assert (body["name"], body["value"], body["unit"]) == ("cost.inference", 0.83, "USD")
    body = remaining["payload"]["body"]
    assert (body["name"], body["value"]) == ("cost.budget.remaining", 1.17)
    assert [frame.get("event_seq") for frame in frames] == [None, 1, 2, 3]
    assert result["payload"]["final_status"] == "success"
    order = upstream.keys["vk_1"].order
    assert order.budget == {"USD": Decimal("2.00")}
    assert list(order.lease["model.use"]) == ["tier-fast/*"]
    assert [(call, about) for _, call, about in upstream.calls] == [
        ("issue", order.id),
        ("revoke", "vk_1"),
    ]
