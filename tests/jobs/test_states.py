"""The states of a job: which may follow which."""

from __future__ import annotations

from typing import Any, Final

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import JobContext
from arcp_trio.runtime.job.journal import Journal
from arcp_trio.runtime.job.state import JobState
from arcp_trio.store.queue import Group
from arcp_trio.testing import open_peer
from tests.inside import job_of
from tests.stage import make_runtime

LEGAL: Final = {
    "drafted": "accepted lost",
    "accepted": "running ending suspended lost",
    "running": "interrupted ending suspended lost",
    "interrupted": "running suspended lost",
    "ending": "ended lost",
    "ended": "",
    "suspended": "lost",
    "lost": "",
}


@pytest.mark.parametrize("state", JobState)
@pytest.mark.parametrize("other", JobState)
def test_only_some_states_may_follow_a_state(state: JobState, other: JobState) -> None:
    """A job takes each state that may follow its own, and no other one."""
    if other.value in LEGAL[state.value].split():
        assert state.then(other) is other
    else:
        with pytest.raises(RuntimeError, match=f"is {state.value} cannot be {other.value} next"):
            state.then(other)


async def test_a_job_keeps_its_state_if_another_one_may_not_follow(
    autojump_clock: MockClock,
) -> None:
    """A job moves from its draft to its end, and neither back nor on."""
    seen: list[JobState] = []
    async with make_runtime() as runtime, open_peer(runtime) as peer:

        @runtime.agent("looker")
        async def looker(context: JobContext) -> None:
            job = job_of(context)
            seen.append(job.state)
            for state in JobState:
                if state.value not in LEGAL["running"].split():
                    with pytest.raises(RuntimeError):
                        job.move_to(state)
            seen.append(job.state)

        await peer.hello()
        job = await peer.submit("looker")
        terminal = await peer.until_terminal(job["job_id"])
        assert terminal["type"] == "job.result"
    assert seen == [JobState.RUNNING, JobState.RUNNING]


@pytest.mark.logs_error("job")
@pytest.mark.parametrize("times", [1, 2])
async def test_a_defect_in_a_job_ends_that_job(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """The runtime and other jobs go on, and the job has an end if it can have one."""
    finish, left = Journal.finish, times

    def fail(journal: Journal, *args: Any, **kwargs: Any) -> Group:
        nonlocal left
        if left:
            left -= 1
            raise RuntimeError("a defect")
        return finish(journal, *args, **kwargs)

    async with make_runtime() as runtime, open_peer(runtime) as peer:

        @runtime.agent("quick")
        async def quick(_: JobContext) -> str:
            return "done"

        await peer.hello()
        monkeypatch.setattr(Journal, "finish", fail)
        await peer.submit("quick")
        await wait_all_tasks_blocked()
        monkeypatch.setattr(Journal, "finish", finish)
        assert not runtime._lifetime.jobs.live
        job = await peer.submit("quick")
        terminal = await peer.until_terminal(job["job_id"])
        assert terminal["payload"]["result"] == "done"
