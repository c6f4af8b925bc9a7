"""Cancels, stops and answers that come at another node than the one at which the job runs."""

from __future__ import annotations

from functools import partial

import pytest
import trio

from arcp_trio import (
    Agents,
    ArcpError,
    InternalError,
    InvalidRequest,
    JobNotFound,
    Limits,
    PermissionDenied,
    Policy,
)
from arcp_trio.store.postgres.administering import make_schema
from arcp_trio.testing import Peer
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.errors import error_from_payload
from tests.cluster.side_by_side import clients_of, give_job, nodes_over, runtime_over, sleeper
from tests.metrics import scrape
from tests.questions.support import answer, asked, listed
from tests.stage import BOB, OPERATOR

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

SECONDS = 60


async def cancel(peer: Peer, job_id: str) -> Frame:
    """Cancel a job, and return the runtime's answer.

    Raises:
        ArcpError: the class of the refusal's code.
    """
    request = await peer.send("job.cancel", {"job_id": job_id, "reason": "enough"})
    while True:
        frame = await peer.receive()
        if frame["type"] == "job.cancelled":
            return frame
        if frame["payload"].get("request_id") == request:
            raise error_from_payload(frame["payload"])


async def refused(peer: Peer, kind: str, job_id: str) -> ArcpError:
    """Ask in vain for something to be done with a job, and return the refusal."""
    request = await peer.send(kind, {"job_id": job_id})
    with pytest.raises(ArcpError) as refusal:
        await peer.answer("nothing", request)
    return refusal.value


async def test_a_cancel_at_another_node(database: str) -> None:
    """An operator's cancel at one node ends a job of another one, which tells its client."""
    with trio.fail_after(SECONDS):
        async with nodes_over(database) as (here, there):
            peer, operator = await here.welcomed(), await there.welcomed(OPERATOR)
            job = await peer.submit("sleeper")
            agreed = await cancel(operator, job["job_id"])
            assert agreed["payload"] == {"job_id": job["job_id"], "reason": "enough"}
            end = await peer.until_terminal(job["job_id"])
            assert end["payload"]["code"] == "CANCELLED"
            again = await refused(operator, "job.cancel", job["job_id"])
            assert isinstance(again, InvalidRequest)


async def test_the_promise_comes_before_the_end(database: str) -> None:
    """At the node of a cancel, too, `job.cancelled` comes before the terminal, every time."""
    with trio.fail_after(SECONDS):
        policy = Policy(observers={"operator"})
        async with nodes_over(database, policy=policy) as (here, there):
            peer, operator = await here.welcomed(), await there.welcomed(OPERATOR)
            for _ in range(20):
                job_id = (await peer.submit("sleeper"))["job_id"]
                await operator.answer(
                    "job.subscribed", await operator.send("job.subscribe", {"job_id": job_id})
                )
                await operator.send("job.cancel", {"job_id": job_id})
                seen = [await operator.receive(), await operator.receive()]
                assert [frame["type"] for frame in seen] == ["job.cancelled", "job.error"]


async def test_a_stop_at_another_node(database: str) -> None:
    """A job's own principal stops it in any session, at any node; the terminal says who did."""
    with trio.fail_after(SECONDS):
        async with nodes_over(database) as (here, there):
            peer, other = await here.welcomed(), await there.welcomed()
            job_id = (await peer.submit("sleeper"))["job_id"]
            stop = await other.send("x-vendor.arcp-trio.stop", {"job_id": job_id})
            await other.answer("x-vendor.arcp-trio.stopped", stop)
            end = await peer.until_terminal(job_id)
            assert end["payload"]["details"]["stopped_by"] == "alice"


async def test_who_may_not_cancel_at_another_node(database: str) -> None:
    """Rights are the same at all nodes: no other session may, until the first is closed."""
    with trio.fail_after(SECONDS):
        async with nodes_over(database) as (here, there):
            peer, other, bob = (
                await here.welcomed(),
                await there.welcomed(),
                await there.welcomed(BOB),
            )
            job_id = (await peer.submit("sleeper"))["job_id"]
            assert isinstance(await refused(bob, "job.cancel", job_id), JobNotFound)
            assert isinstance(await refused(other, "job.cancel", job_id), PermissionDenied)
            await peer.send("session.close")
            await peer.expect("session.closed")
            await cancel(other, job_id)


async def test_a_session_that_another_node_has_closed(database: str) -> None:
    """A job's own node knows, too, that the session that submitted it was closed elsewhere."""
    with trio.fail_after(SECONDS):
        async with nodes_over(database) as (here, there):
            peer, other = await here.welcomed(), await here.welcomed()
            job_id = (await peer.submit("sleeper"))["job_id"]
            await peer.drop()
            moved = await there.welcomed(resume=peer.resume_from())
            assert isinstance(await refused(other, "job.cancel", job_id), PermissionDenied)
            await moved.send("session.close")
            await moved.expect("session.closed")
            await cancel(other, job_id)


async def test_two_cancels_at_two_nodes(database: str) -> None:
    """Cancels that come at once at both nodes are both agreed to, and the job ends once."""
    with trio.fail_after(SECONDS):
        async with nodes_over(database) as (here, there):
            peer = await here.welcomed()
            operators = [await here.welcomed(OPERATOR), await there.welcomed(OPERATOR)]
            for _ in range(10):
                job_id = (await peer.submit("sleeper"))["job_id"]
                outcomes: list[str] = []

                async def try_to_cancel(operator: Peer, job_id: str, outcomes: list[str]) -> None:
                    await operator.send("job.cancel", {"job_id": job_id})
                    outcomes.append((await operator.receive())["type"])

                async with trio.open_nursery() as nursery:
                    for operator in operators:
                        nursery.start_soon(try_to_cancel, operator, job_id, outcomes)
                assert "job.cancelled" in outcomes
                assert set(outcomes) <= {"job.cancelled", "session.error"}  # it had ended by then
                end = await peer.until_terminal(job_id)
                assert end["payload"]["code"] == "CANCELLED"


async def test_a_cancel_against_the_end(database: str) -> None:
    """A cancel at another node that comes as the job ends is agreed to and obeyed, or refused."""
    with trio.fail_after(SECONDS):
        async with nodes_over(database) as (here, there):
            peer, operator = await here.welcomed(), await there.welcomed(OPERATOR)
            for number in range(20):
                job_id = (await peer.submit("pause", number * 0.003))["job_id"]
                request = await operator.send("job.cancel", {"job_id": job_id})
                said = await operator.receive()
                end = await peer.until_terminal(job_id)
                if said["type"] == "job.cancelled":
                    assert end["payload"]["code"] == "CANCELLED"
                else:
                    assert said["payload"]["request_id"] == request
                    assert said["payload"]["code"] == "INVALID_REQUEST"
                    assert end["payload"]["final_status"] == "success"


async def test_an_answer_at_another_node(database: str) -> None:
    """A question is listed at every node, answered at any, and answered once."""
    with trio.fail_after(SECONDS):
        async with nodes_over(database) as (here, there):
            peer, other = await here.welcomed(), await there.welcomed()
            question = await asked(peer)
            waiting = await listed(other, question["job_id"])
            assert [each["question_id"] for each in waiting["questions"]] == [
                question["question_id"]
            ]
            await answer(other, question, {"go": [1.5, "left"]})
            end = await peer.until_terminal(question["job_id"])
            assert end["payload"]["result"] == {"answer": {"go": [1.5, "left"]}}
            with pytest.raises(JobNotFound):
                await answer(other, question, "again")
            assert await listed(other, question["job_id"]) is None


async def test_an_answer_that_was_not_asked_for(database: str) -> None:
    """What is wrong with an answer is said at the node where it came."""
    with trio.fail_after(SECONDS):
        async with nodes_over(database) as (here, there):
            peer, other = await here.welcomed(), await there.welcomed()
            question = await asked(peer, options=["yes", "no"])
            with pytest.raises(InvalidRequest, match="expected one of"):
                await answer(other, question, "perhaps")
            await answer(other, question, "yes")


async def test_a_job_between_two_nodes(database: str) -> None:
    """A cancel of a job that no node has is obeyed by the one that has it next."""
    with trio.fail_after(SECONDS):
        async with nodes_over(database, limits=Limits(command_seconds=SECONDS)) as (here, there):
            peer, operator = await here.welcomed(), await there.welcomed(OPERATOR)
            job_id = (await peer.submit("sleeper"))["job_id"]
            give = partial(give_job, database, job_id)
            await trio.to_thread.run_sync(give, None)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(cancel, operator, job_id)
                await trio.sleep(1.5)
                await trio.to_thread.run_sync(give, here.store.shared.node)
            assert (await peer.until_terminal(job_id))["payload"]["code"] == "CANCELLED"


async def test_what_waits_for_another_node_counts_as_received(database: str) -> None:
    """A large answer to a job that no node has is among what its principal may have received."""
    size, limits = 50_000, Limits(command_seconds=3)
    with trio.fail_after(SECONDS):
        async with nodes_over(database, limits=limits) as (here, there):
            peer, other = await here.welcomed(), await there.welcomed()
            question = await asked(peer)
            give = partial(give_job, database, question["job_id"])
            await trio.to_thread.run_sync(give, None)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(unanswered, other, question, "x" * size)
                while not await there.store.shared.open_commands(()):  # noqa: ASYNC110 - in the database
                    await trio.sleep(0.01)
                assert scrape(there.runtime)("held", pool="received_bytes") >= size
            assert scrape(there.runtime)("held", pool="received_bytes") < size
            await trio.to_thread.run_sync(give, here.store.shared.node)


async def unanswered(peer: Peer, question: Frame, value: str) -> None:
    """Answer a question of a job whose node does not answer."""
    with pytest.raises(InternalError, match="does not answer"):
        await answer(peer, question, value)


async def test_a_job_that_waits_for_a_node(database: str) -> None:
    """A durable job whose agent no node has any longer is cancelled like any other."""
    walkers = Agents()
    walkers.agent("walker", durable=True)(sleeper)
    await trio.to_thread.run_sync(make_schema, database, None)
    limits = Limits(cancel_grace_seconds=1, node_seconds=5)
    with trio.fail_after(SECONDS):
        stays, its_store = runtime_over(database, "stays", limits=limits)
        leaves, other_store = runtime_over(database, "leaves", walkers, limits=limits)
        async with stays, clients_of(stays, its_store) as here:
            operator = await here.welcomed(OPERATOR)
            async with leaves, clients_of(leaves, other_store) as there:
                job_id = (await (await there.welcomed()).submit("walker"))["job_id"]
            alice = await here.welcomed()
            await alice.answer(
                "job.subscribed", await alice.send("job.subscribe", {"job_id": job_id})
            )
            await cancel(operator, job_id)
            assert (await alice.until_terminal(job_id))["payload"]["code"] == "CANCELLED"


async def test_the_asker_ends_before_the_answer(database: str) -> None:
    """A cancel is obeyed although the node that has asked for it ends."""
    with trio.fail_after(SECONDS):
        async with nodes_over(database) as (here, there):
            peer, operator = await here.welcomed(), await there.welcomed(OPERATOR)
            job_id = (await peer.submit("sleeper"))["job_id"]
            await operator.send("job.cancel", {"job_id": job_id})
            await operator.drop()
            await there.runtime.shutdown()
            assert (await peer.until_terminal(job_id))["payload"]["code"] == "CANCELLED"
