"""A conversation with a coding agent has one turn at a time, whichever nodes its jobs run at."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from arcp_trio import acp_agent
from arcp_trio.testing import Peer
from arcp_trio.testing.frames import Frame
from tests.cluster.side_by_side import nodes_over
from tests.proxies.acp.stage import command, steps

pytestmark = pytest.mark.real_tcp


async def turn(peer: Peer, *each: list[str], session: str | None = None) -> str:
    """Submit a job whose agent does some steps, and return its id."""
    given: Frame = {"prompt": steps(*each)}
    if session is not None:
        given["session"] = session
    job = await peer.submit("scripted", given)
    job_id: str = job["job_id"]
    return job_id


async def test_two_nodes_cannot_take_the_same_turn(database: str, tmp_path: Path) -> None:
    """While a job at one node has it, one at another is refused; afterwards it is not."""
    options = {"store": str(tmp_path / "sessions")}
    words = command(capabilities={"sessionCapabilities": {"resume": {}}}, **options)
    with trio.fail_after(100):
        async with nodes_over(database) as (here, there):
            for node in (here, there):
                node.runtime.agent("scripted")(acp_agent(words, sandbox="off", data=tmp_path))
            first, second = await here.welcomed(), await there.welcomed()
            root = await turn(first, ["say", "a"])
            await first.until_terminal(root)
            busy = await turn(first, ["say", "b"], ["wait"], session=root)
            while (await first.expect("job.event"))["payload"]["kind"] != "result_chunk":
                pass
            for session in (root, busy):
                job_id = await turn(second, ["say", "c"], session=session)
                end = (await second.until_terminal(job_id))["payload"]
                assert (end["code"], end["retryable"]) == ("INTERNAL_ERROR", True)
                assert busy in end["message"]
            await first.send("job.cancel", {"reason": "enough"}, job_id=busy)
            await first.until_terminal(busy)
            last = await turn(second, ["history"], session=busy)
            end = (await second.until_terminal(last))["payload"]
            assert end["final_status"] == "success"
