"""What the tests of stopping `serve` share: agents that end in different ways, and helpers."""

from __future__ import annotations

import pytest
from websockets.exceptions import ConnectionClosed

from tests.cli.clients import Commands
from tests.cli.processes import Peer, Serve, Starter

ASK = "--lease=tool.call=human.ask"

AGENTS = """
import os, signal, sys, threading, time
import arcp_trio, trio

agents = arcp_trio.Agents()

@agents.agent("polite")
async def polite(job):
    print("at work", file=sys.stderr)
    while not os.path.exists("may-finish"):
        await trio.sleep(0.01)
    return "finished"

@agents.agent("asking")
async def asking(job):
    return await job.ask("Publish?", options=["yes", "no"])

@agents.agent("lasting", durable=True)
async def lasting(job):
    return await job.ask("Publish?", options=["yes", "no"])

@agents.agent("telling")
async def telling(job):
    for number in range(1000):
        await job.log(str(number))
    print("at work", file=sys.stderr)
    await trio.sleep_forever()

@agents.agent("clinging")
async def clinging(job):
    print("at work", file=sys.stderr)
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()

@agents.agent("sitting")
async def sitting(job):
    print("at work", file=sys.stderr)
    await trio.to_thread.run_sync(time.sleep, 60)

@agents.agent("blocking")
async def blocking(job):
    before = signal.getsignal(signal.SIGTERM)
    print("at work", file=sys.stderr)
    while signal.getsignal(signal.SIGTERM) is before:
        time.sleep(0.01)
    print("signalled", file=sys.stderr)
    time.sleep(60)

@agents.agent("straggling")
async def straggling(job):
    threading.Thread(target=time.sleep, args=(60,)).start()
    print("at work", file=sys.stderr)
"""


def serve_mine(start: Starter, *arguments: str) -> Serve:
    """Serve the agents above to alice, and to an auditor who may watch her jobs."""
    tokens = ("--token=alice=x", "--token=auditor=y", "--observer=auditor")
    return start("serve", "--port=0", *tokens, "--agents=my_agents", "--demo-agents", *arguments)


def closed_with(session: Peer) -> int | None:
    """Return the code with which the connection is closed, before any other frame."""
    with pytest.raises(ConnectionClosed) as caught:
        session.receive()
    assert caught.value.rcvd is not None
    return caught.value.rcvd.code


def at_work(here: Commands, *agents: str) -> None:
    """Submit a job of each agent, and wait until all of those that ask people do so."""
    for agent in agents:
        here.detached(agent, ASK)
    asks = sum(agent in ("asking", "lasting") for agent in agents)
    while len(here.run("jobs", "--waiting", "--json").objects) < asks:
        pass
