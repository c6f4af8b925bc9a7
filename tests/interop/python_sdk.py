"""A session of the vendor's Python SDK client, as a program that prints what it saw as JSON.

This is a program of its own because the SDK runs on asyncio and gives warnings.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from arcp import (
    ARCPError,
    ClientInfo,
    LeaseConstraints,
    ListJobsFilter,
    SessionResume,
    TransportClosed,
    WebSocketTransport,
)
from arcp.client import ARCPClient, AutoAckOptions

SECONDS = 10.0


def tell(folder: str, what: str) -> None:
    """Tell an agent of `slow_agents` that it may go on."""
    Path(folder, what).touch()


def new_client(token: str) -> ARCPClient:
    """Return a client that acknowledges by itself, as is its default."""
    return ARCPClient(
        client=ClientInfo(name="vendor", version="1.1.3"),
        token=token,
        auto_ack=AutoAckOptions(every_n=1, interval_sec=0.05),
    )


async def events(handle: Any) -> list[dict[str, Any]]:
    """Return all events of a job."""
    return [event async for event in handle.events()]


async def outcome(handle: Any) -> dict[str, Any]:
    """Return how a job ended, as this client reports it."""
    try:
        payload = await asyncio.wait_for(handle.done, SECONDS)
    except ARCPError as error:
        return {"raised": error.code}
    return {"status": payload.final_status, "result": payload.result}


async def report(handle: Any) -> dict[str, Any]:
    """Return a streamed result, joined by this client."""
    whole = await asyncio.wait_for(handle.collect_chunks(), SECONDS)
    payload = await asyncio.wait_for(handle.done, SECONDS)
    return {
        "status": payload.final_status,
        "size": payload.result_size,
        "pages": whole.count(b"Page "),
        "joined": len(whole) == payload.result_size,
    }


async def told_slowly(client: Any) -> dict[str, Any]:
    """Return the chunks of a result whose agent waits after each until it has come."""
    came: list[tuple[str, bool]] = []
    with tempfile.TemporaryDirectory() as folder:
        handle = await client.submit(agent="teller", input=folder)
        async for chunk in handle.chunks():
            tell(folder, str(len(came)))
            came.append((chunk["data"], chunk["more"]))
        payload = await asyncio.wait_for(handle.done, SECONDS)
    return {"chunks": came, "size": payload.result_size}


async def refusal(call: Any) -> str:
    """Return the code with which a call is refused."""
    try:
        await asyncio.wait_for(call, SECONDS)
    except ARCPError as error:
        return str(error.code)
    return "not refused"


async def dropped(handle: Any) -> bool:
    """Return whether this client reports that the job's handle went down with its connection."""
    try:
        await handle.done
    except TransportClosed:
        return True
    return False


def stop_acknowledging(client: Any) -> None:
    """End the client's acknowledging task, which fails if it runs while the connection closes.

    Its warning on stderr would depend on milliseconds.
    """
    client._auto_ack_task.cancel()


async def leave(client: Any) -> None:
    """Close the session."""
    stop_acknowledging(client)
    await client.close()


async def drop(client: Any) -> None:
    """Lose the connection; the client has no public way to do that."""
    stop_acknowledging(client)
    await client._transport.close()


async def shop(client: Any) -> dict[str, Any]:
    """Submit with a lease and a budget, and spend until a cost is refused."""
    job = await client.submit(
        agent="shopper",
        input={"price": 0.3},
        lease_request={"tool.call": ["shop.*"], "cost.budget": ["USD:1.00"]},
        lease_constraints=LeaseConstraints(expires_at="2099-12-31T23:59:59Z"),
    )
    told = await asyncio.wait_for(events(job), SECONDS)
    left = [e["body"]["value"] for e in told if e["body"].get("name") == "cost.budget.remaining"]
    return {"budget": job.budget, "lease": job.lease, "left": left, "end": await outcome(job)}


async def teams(client: Any) -> list[Any]:
    """Submit jobs that delegate, each followed at once by another submit."""
    seen: list[Any] = []
    for n in range(10):
        team = await client.submit(
            agent="team", input=[n, n], lease_request={"agent.delegate": ["echo"]}
        )
        echo = await client.submit(agent="echo", input=f"not of the team {n}")
        seen += [(await outcome(team))["result"], (await outcome(echo))["result"]]
    return seen


async def observe(client: Any, job_id: str, folder: str | None = None) -> dict[str, Any]:
    """Subscribe to a job with its history, tell it in its folder that it may go on, and read on."""
    observed = await client.subscribe(job_id, history=True)
    if folder is not None:
        tell(folder, "seen")
    steps = [event["body"]["current"] for event in await events(observed.handle)]
    return {"steps": steps, "end": await outcome(observed.handle)}


async def watch(url: str, token: str, client: Any) -> dict[str, Any]:
    """List jobs of another session; follow one that runs and one that has ended."""
    viewer = new_client(token)
    await viewer.connect(await WebSocketTransport.connect(url))
    with tempfile.TemporaryDirectory() as folder:
        running = await client.submit(agent="stroller", input=folder)
        await anext(running.events())
        only = ListJobsFilter(status=("running",), agent="stroller")
        listed = await viewer.list_jobs(filter=only)
        seen: dict[str, Any] = {"listed": [job.job_id == running.job_id for job in listed.jobs]}
        observing = observe(viewer, running.job_id, folder)
        seen["running"] = await asyncio.wait_for(observing, SECONDS)
    seen["over"] = await asyncio.wait_for(observe(viewer, running.job_id), SECONDS)
    other = new_client(token)
    await other.connect(await WebSocketTransport.connect(url))
    seen["over, elsewhere"] = await asyncio.wait_for(observe(other, running.job_id), SECONDS)
    first = await other.list_jobs(limit=1)
    second = await other.list_jobs(limit=1, cursor=first.next_cursor)
    seen["pages"] = [job.agent for page in (first, second) for job in page.jobs]
    seen["unknown"] = await refusal(other.subscribe("job_nobody"))
    await leave(viewer)
    await leave(other)
    return seen


async def session(url: str, token: str) -> dict[str, Any]:
    """Submit, spend, watch, assemble, list, subscribe, cancel, be refused, resume and leave."""
    client = new_client(token)
    welcome = await client.connect(await WebSocketTransport.connect(url))
    seen: dict[str, Any] = {"features": sorted(client.negotiated_features)}

    echo = await client.submit(agent="echo", input={"text": "é漢😀"})
    seen["echo"] = await outcome(echo)
    chatty = await client.submit(agent="chatty", input={"n": 500, "size": 100})
    logs = asyncio.create_task(events(chatty))
    seen["chatty"] = await outcome(chatty)
    seen["chatty_events"] = len(await asyncio.wait_for(logs, SECONDS))

    seen["shop"] = await shop(client)
    seen["watch"] = await watch(url, token, client)
    seen["teams"] = await teams(client)
    seen["report"] = await report(await client.submit(agent="report", input={"size": 1_000_000}))

    seen["teller"] = await told_slowly(client)

    sleeper = await client.submit(agent="sleeper", input={"seconds": 60})
    await client.cancel_job(sleeper.job_id, reason="enough")
    seen["cancelled"] = await outcome(sleeper)
    await client.cancel_job(sleeper.job_id, reason="again")
    slow = await client.submit(agent="sleeper", input={"seconds": 60}, max_runtime_sec=1)
    seen["timed_out"] = await outcome(slow)
    seen["refused"] = await refusal(client.submit(agent="nobody"))

    before = client.latest_event_seq
    running = await client.submit(agent="countdown", input={"n": 5, "delay": 0.1})
    await asyncio.sleep(0.15)
    await drop(client)
    seen["dropped"] = await dropped(running)
    again = new_client(token)
    await again.resume(
        await WebSocketTransport.connect(url),
        resume=SessionResume(
            session_id=welcome.session_id,
            resume_token=welcome.resume_token,
            last_event_seq=client.latest_event_seq,
        ),
    )
    seen["resumed_session"] = again.session_id == welcome.session_id
    # The five steps of the countdown, and its end.
    while again.latest_event_seq < before + 6:  # noqa: ASYNC110 - it has no event for this
        await asyncio.sleep(0.01)
    last = await again.submit(agent="echo", input="after the resume")
    seen["after_resume"] = await outcome(last)
    await leave(again)
    return seen


if __name__ == "__main__":
    json.dump(asyncio.run(asyncio.wait_for(session(*sys.argv[1:]), 30)), sys.stdout)
