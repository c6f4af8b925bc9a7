"""Agents ask from wherever they run: in the loop, in threads, under asyncio, in processes."""

from __future__ import annotations

import pytest
import trio

from arcp_trio import Runtime, Workers
from arcp_trio.testing import open_peer
from arcp_trio.wire.features import CLIENT_FEATURES
from tests.questions.anywhere import agents
from tests.questions.support import MAY_ASK, answer, next_question
from tests.stage import TOKENS

pytestmark = pytest.mark.real_tcp


@pytest.mark.parametrize("process", ["", "-process"])
@pytest.mark.parametrize("where", ["trio", "thread", "asyncio"])
async def test_an_agent_asks_where_it_runs(where: str, process: str) -> None:
    """The answer comes back as it was given, and a time-out as `Unanswered`."""
    with trio.fail_after(60):
        runtime = Runtime(auth=TOKENS, workers=Workers(count=1))
        runtime.add(agents)
        async with runtime, open_peer(runtime) as peer:
            await peer.hello(features=CLIENT_FEATURES)
            job = await peer.submit(where + process, lease_request=MAY_ASK)
            await answer(peer, await next_question(peer, job["job_id"]), "yes")
            end = await peer.until_terminal(job["job_id"])
            assert end["payload"]["result"] == ["yes", "TIMEOUT"]


@pytest.mark.parametrize("process", ["", "-process"])
@pytest.mark.parametrize("where", ["trio", "thread", "asyncio"])
async def test_a_cancel_ends_the_wait_where_it_is(where: str, process: str) -> None:
    """A job that is cancelled while it asks ends at once, wherever its agent waits."""
    with trio.fail_after(60):
        runtime = Runtime(auth=TOKENS, workers=Workers(count=1))
        runtime.add(agents)
        async with runtime, open_peer(runtime) as peer:
            await peer.hello(features=CLIENT_FEATURES)
            job = await peer.submit(where + process, lease_request=MAY_ASK)
            await next_question(peer, job["job_id"])
            await peer.send("job.cancel", {"job_id": job["job_id"]})
            end = await peer.until_terminal(job["job_id"])
            assert end["payload"]["final_status"] == "cancelled"
            bodies = [each["payload"]["body"] for each in peer.seen if each["type"] == "job.event"]
            assert bodies[-1]["error"]["code"] == "CANCELLED"
