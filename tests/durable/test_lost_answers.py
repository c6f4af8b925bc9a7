"""A submit whose answer was lost with the process, and whose job has ended when it is repeated."""

from __future__ import annotations

from itertools import count

import trio
from trio.testing import MockClock

from arcp_trio import Agents, JobContext
from tests.durable.mortal import MortalStore
from tests.durable.stage import Life


async def test_its_client_is_told_everything(autojump_clock: MockClock) -> None:
    """The session that submitted it gets all events of the job, and the chunks of its result."""
    agents = Agents()

    @agents.agent("agent", durable=True)
    async def agent(job: JobContext) -> None:
        await job.log("begin")
        async with job.stream_result() as out:
            await out.write("text")

    submit = {"agent": "agent", "idempotency_key": "k"}
    for dies_at in count(3):
        life: Life | None = None
        store = MortalStore(dies_at)
        with trio.CancelScope() as scope:
            store.die = scope.cancel
            async with Life.begin(agents, store) as life:
                await life.peer.send("job.submit", submit)
                await trio.sleep(5)
        if store.left is None:
            break
        async with Life.begin(agents, store.left, before=life) as second:
            await trio.sleep(5)
            accepted = await second.peer.submit("agent", idempotency_key="k")
            end = await second.peer.until_terminal(accepted["job_id"])
            told = second.told(accepted["job_id"])
        assert told.count("begin") == 1
        chunks = [e["payload"]["body"] for e in second.events(accepted["job_id"])]
        assert end["payload"]["result_id"] in [chunk.get("result_id") for chunk in chunks]
    assert dies_at > 5
