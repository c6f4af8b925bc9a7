"""Agents in worker processes. In real time."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest
import trio

from arcp_trio import Agents, BlockingContext, Runtime, StaticTokens, Workers
from arcp_trio.runtime.limits import MIB
from arcp_trio.runtime.workers.messages import WorkerFrame, packed
from arcp_trio.runtime.workers.wire import FRAMES_A_TURN, Wire
from arcp_trio.testing import Peer, open_peer
from arcp_trio.testing.peer import TEST_TOKEN
from arcp_trio.wire.json import Json
from tests.jobs import outside
from tests.processes import gone
from tests.workers import agents_in_processes
from tests.workers.support import COUNT, GRACE, PATIENT, end_of, open_with_workers, run


@pytest.mark.parametrize("agent", ["blocking", "awaiting"])
async def test_a_context_has_the_same_calls_everywhere(
    peer: Peer, agent: str, tmp_path: Path
) -> None:
    """Every call does what it does in the runtime's own process."""
    job = await peer.submit(agent, str(tmp_path), lease_request=outside.lease(tmp_path))
    end = await end_of(peer, job)
    assert end.get("result") == outside.RESULT, end
    events = [frame["payload"]["kind"] for frame in peer.recorder.events(job["job_id"])]
    assert events == outside.KINDS


async def test_also_on_trios_loop(peer: Peer, tmp_path: Path) -> None:
    """An `async def` runs on a Trio loop of the worker's own."""
    end = await run(peer, "on-trio", str(tmp_path), lease_request=outside.lease(tmp_path))
    assert end.get("result") == ["written\n", "to the child", "1.00"], end


@pytest.mark.parametrize("agent", ["blocking-stream", "asyncio-stream"])
async def test_a_result_is_streamed(peer: Peer, agent: str) -> None:
    """A streamed result is whole."""
    job = await peer.submit(agent)
    await end_of(peer, job)
    events = [frame["payload"] for frame in peer.recorder.events(job["job_id"])]
    assert "".join(each["body"]["data"] for each in events) == "part 0\npart 1\npart 2\n"


@pytest.mark.parametrize(
    ("agent", "calls"), [("forgetful", ["log", "step"]), ("forgetful-on-trio", ["log"])]
)
async def test_a_forgotten_await_is_told(peer: Peer, agent: str, calls: list[str]) -> None:
    """The job says which calls its agent has not awaited."""
    job = await peer.submit(agent)
    await end_of(peer, job)
    said = [frame["payload"]["body"]["message"] for frame in peer.recorder.events(job["job_id"])]
    assert [words.partition(" without")[0].partition(".")[2] for words in said] == calls


async def test_a_worker_is_confined(peer: Peer) -> None:
    """A worker has the environment that it was given, its own group, and no way to more rights."""
    found = (await run(peer, "about"))["result"]
    assert set(found["environment"]) - {"LC_CTYPE"} == {"GIVEN"}
    assert found["no_new_privs"] == "1"
    assert found["core"] == 0
    assert found["group"] == found["pid"]
    assert found["descriptors"] < 12


async def test_the_authority_stays_with_the_runtime(peer: Peer) -> None:
    """What the lease does not allow is refused in the worker as it is elsewhere."""
    job = await peer.submit("refused")
    assert (await end_of(peer, job))["code"] == "PERMISSION_DENIED"
    bodies = [frame["payload"]["body"] for frame in peer.recorder.events(job["job_id"])]
    assert bodies[0]["message"] == "refused: PERMISSION_DENIED"
    assert bodies[2]["error"]["code"] == "PERMISSION_DENIED"


@pytest.mark.logs_error("agent failed")
async def test_what_an_agent_raises_ends_its_job_only(peer: Peer) -> None:
    """An error for the client reaches it; the text of any other stays in the log."""
    assert (await run(peer, "failing", input_=True))["message"] == "told"
    end = await run(peer, "failing", input_=False)
    assert (end["code"], end["message"]) == (
        "INTERNAL_ERROR",
        "the agent failed; the runtime's log says why",
    )


@pytest.mark.logs_error("agent failed")
async def test_the_missing_word_is_named(peer: Peer) -> None:
    """An agent that calls asyncio on Trio's loop is told what to say."""
    assert 'loop="asyncio"' in (await run(peer, "wrong-loop"))["message"]


@pytest.mark.parametrize("agent", ["talker", "asyncio-sleeper", "trio-sleeper"])
async def test_a_cancel_reaches_the_agent(agent: str, tmp_path: Path) -> None:
    """Each kind is cancelled in its own way, and cleans up."""
    async with open_with_workers(1, PATIENT) as peer:
        job = await peer.submit(agent, str(tmp_path / "clean"))
        await peer.expect("job.event")
        await peer.send("job.cancel", {"job_id": job["job_id"]})
        assert (await end_of(peer, job))["code"] == "CANCELLED"
        while not (tmp_path / "clean").exists():  # noqa: ASYNC110 - another process makes it
            await trio.sleep(0.01)


async def test_a_worker_that_does_not_answer_is_ended(peer: Peer) -> None:
    """With its job's time limit and grace the worker is killed, and its children with it."""
    await run(peer, "about")  # so that a worker is warm: the time limit is for the agent alone
    job = await peer.submit("stuck", max_runtime_sec=3)
    event = await peer.expect("job.event")
    processes = [int(pid) for pid in event["payload"]["body"]["message"].split()]
    began = time.monotonic()
    assert (await end_of(peer, job))["code"] == "TIMEOUT"
    assert time.monotonic() - began < 3 + GRACE + 10
    await gone(processes)
    assert (await run(peer, "about"))["final_status"] == "success"


@pytest.mark.logs_error("worker lost")
async def test_a_worker_that_dies_ends_its_job_once(peer: Peer) -> None:
    """The job has one clear end, and another worker takes the next job."""
    for _ in range(COUNT + 1):
        end = await run(peer, "dying")
        assert (end["code"], end["message"]) == ("INTERNAL_ERROR", "the agent's process ended")
    assert (await run(peer, "about"))["final_status"] == "success"


@pytest.mark.logs_error("worker lost")
@pytest.mark.parametrize("byte", [0, 255])
async def test_a_worker_that_sends_no_frames_is_ended(peer: Peer, byte: int) -> None:
    """Whatever a worker sends, it ends its own job only, at once."""
    began = time.monotonic()
    end = await run(peer, "babbling", byte)
    assert (end["code"], end["message"]) == ("INTERNAL_ERROR", "the agent's process ended")
    assert time.monotonic() - began < 10
    assert (await run(peer, "about"))["final_status"] == "success"


@pytest.mark.parametrize("size", [2_000_000, 5_000_000])
async def test_a_call_that_is_too_large_is_refused(peer: Peer, size: int) -> None:
    """The agent is told the bound, and goes on: in the worker, or by the runtime."""
    job = await peer.submit("loud", size)
    said = (await end_of(peer, job))["result"]
    assert ("frame_bytes_out" if size < 4 * MIB else f"at most {4 * MIB} bytes") in said
    bodies = [frame["payload"]["body"] for frame in peer.recorder.events(job["job_id"])]
    assert [body["message"] for body in bodies] == ["calm"]


IN_THE_RUNTIME = pytest.mark.logs_error("agent returned too much")


@pytest.mark.parametrize("size", [pytest.param(2_000_000, marks=IN_THE_RUNTIME), 50_000_000])
async def test_a_result_that_is_too_large(peer: Peer, size: int) -> None:
    """The error has its size, and says how a result of that size is told."""
    end = await run(peer, "heavy", size)
    assert end["code"] == "INTERNAL_ERROR"
    assert f"the result is {size + 2:,} bytes as JSON" in end["message"]
    assert end["message"].endswith("write it with job.stream_result()")


async def test_frames_of_a_worker_are_looked_at_a_few_at_a_time() -> None:
    """However many frames one read brings, others have their turns in between."""
    count, turns = 3_000, 0
    near, far = socket.socketpair()
    done = trio.Event()
    with far:
        far.sendall(packed(WorkerFrame("drop")) * count)
        wire = Wire(trio.socket.from_stdlib_socket(near))

        async def receive() -> None:
            for _ in range(count):
                assert (await wire.receive(100)).kind == "drop"
            done.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            while not done.is_set():
                await trio.lowlevel.checkpoint()
                turns += 1
        wire.close()
    assert turns >= count // FRAMES_A_TURN


async def test_workers_are_recycled(peer: Peer) -> None:
    """A worker does a few jobs, one after the other, and is then replaced."""
    jobs = [(await run(peer, "about"))["result"]["pid"] for _ in range(12)]
    assert 4 <= len(set(jobs)) <= 12
    assert max(jobs.count(each) for each in set(jobs)) == 3


async def test_what_an_agent_leaves_running_acts_for_no_other_job(peer: Peer) -> None:
    """A worker in which a thread was left running is ended; its calls are not carried out."""
    left = {(await run(peer, "leaving"))["result"] for _ in range(COUNT)}
    for _ in range(2 * COUNT):
        job = await peer.submit("about")
        assert (await end_of(peer, job))["result"]["pid"] not in left
        assert peer.recorder.events(job["job_id"]) == []


async def test_principals_take_turns(runtime: Runtime, peer: Peer) -> None:
    """A principal with many jobs that wait does not keep another one's waiting."""
    many = [await peer.submit("busy", 0.2) for _ in range(10)]
    async with open_peer(runtime) as bob:
        await bob.hello(token="bob-token")
        await run(bob, "nothing")
        ended = [frame for frame in peer.seen if frame["type"] == "job.result"]
        assert len(ended) <= 2 * COUNT
    for each in many:
        await end_of(peer, each)


async def test_workers_have_the_user_and_the_bounds_that_are_given() -> None:
    """Only root can give another user; anybody can bound the memory."""
    user = 65_534 if os.geteuid() == 0 else None
    most = 4 * 2**30
    with trio.fail_after(50):
        async with Runtime(
            auth=StaticTokens({TEST_TOKEN: "alice"}),
            workers=Workers(count=1, user=user, memory_bytes=most, descriptors=50),
        ) as runtime:
            runtime.add(agents_in_processes.agents)
            async with open_peer(runtime) as peer:
                await peer.hello()
                found = (await run(peer, "about"))["result"]
    assert found["uid"] == (os.getuid() if user is None else user)
    assert (found["memory"], found["most_descriptors"]) == (most, 50)


def test_a_function_that_cannot_be_imported_is_refused() -> None:
    """A function inside of another cannot run in a worker, and is refused when registered."""

    def inner(_job: BlockingContext) -> Json: ...

    with pytest.raises(TypeError, match="cannot run in a worker process, which has to import it"):
        Agents().agent("inner", process=True)(inner)
