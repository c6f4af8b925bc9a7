"""The agents that a welcome tells of, while there come to be more."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from arcp_trio import JobContext, Json
from arcp_trio.testing import open_peers
from tests.protocol.support import make_runtime

CROWD = 100


async def test_welcomes_are_consistent_while_agents_are_registered(
    autojump_clock: MockClock,
) -> None:
    """A hundred connect meanwhile: each is told of some first agents, whole, all of which run."""

    async def which(job: JobContext) -> Json:
        return job.version

    async with make_runtime(sessions_per_principal=CROWD) as runtime, open_peers(runtime) as peers:
        told: list[int] = []

        async def register() -> None:
            for version in range(CROWD):
                for name in ("one", "other"):  # nobody comes in between
                    runtime.agent(name, version=str(version))(which)
                await trio.lowlevel.checkpoint()

        async def look() -> None:
            peer = await peers.connect()
            welcome = await peer.hello()
            agents = welcome["payload"]["capabilities"]["agents"]
            new = {each["name"]: each for each in agents if each["name"] in {"one", "other"}}
            if new:
                count = len(new["one"]["versions"])
                told.append(count)
                for agent in new.values():
                    assert agent["versions"] == [str(version) for version in range(count)]
                    job = await peer.submit(f"{agent['name']}@{count - 1}")
                    end = await peer.until_terminal(job["job_id"])
                    assert end["payload"]["result"] == str(count - 1)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(register)
            for _ in range(CROWD):
                nursery.start_soon(look)
                await trio.lowlevel.checkpoint()
        assert len(set(told)) > 5
