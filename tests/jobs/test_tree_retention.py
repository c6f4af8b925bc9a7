"""A session that is away is owed a child's events as long as its parent's (§6.3, §10)."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import Limits
from arcp_trio.testing import Peer, open_peers
from arcp_trio.testing.frames import Frame
from tests.jobs.test_trees import LEASE, agents, born, ends, talk
from tests.reading import until_end
from tests.stage import make_runtime


async def until_first_line(peer: Peer) -> list[Frame]:
    """What comes up to what the first child says first; nothing is on its way behind that."""
    frames: list[Frame] = []
    while set(talk(frames)) != {"before 0", "0a"}:
        frames.append(await peer.receive())
    return frames


@pytest.mark.parametrize(
    "limits", [Limits(finished_job_seconds=0), Limits(finished_jobs=0)], ids=str
)
async def test_a_childs_events_are_kept_for_who_is_owed_its_parents(
    limits: Limits, autojump_clock: MockClock
) -> None:
    """However short jobs are retained: who submitted the root gets the whole tree, in order."""
    async with make_runtime(limits=limits) as runtime, open_peers(runtime) as peers:
        runtime.add(agents)
        first = await peers.connect()
        await first.hello()
        root = (await first.submit("fan", 2, lease_request=LEASE))["job_id"]
        seen = await until_first_line(first)
        await first.drop()
        await trio.sleep(60)
        second = await peers.connect()
        await second.hello(resume=first.resume_from())
        frames = seen + await until_end(second, root)
    assert len(talk(frames)) == 8
    assert ends(frames) == [*born(frames), root]
