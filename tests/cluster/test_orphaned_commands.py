"""Commands to a node that does not live to obey them."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import trio

from arcp_trio.store.postgres.administering import make_schema
from arcp_trio.wire.features import CLIENT_FEATURES
from tests.cluster.nodes import cluster_over, peer_at
from tests.questions.support import ANSWER, MAY_ASK, next_question

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

SECONDS = 120


async def test_an_adopter_obeys(database: str, tmp_path: Path) -> None:
    """A stop that a node is asked for while it stands still is obeyed by the node that adopts it.

    So it is for a job that begins again elsewhere, and for one that ends with its node.
    """
    await trio.to_thread.run_sync(make_schema, database, None)
    with trio.fail_after(SECONDS):
        async with (
            cluster_over(database, tmp_path, nodes=2) as cluster,
            peer_at(cluster[0]) as peer,
            peer_at(cluster[1]) as other,
        ):
            jobs = [await peer.submit("count", [10_000, 0.1]), await peer.submit("steps", 10_000)]
            ids = [job["job_id"] for job in jobs]
            for job_id in ids:
                request = await other.send("job.subscribe", {"job_id": job_id})
                await other.answer("job.subscribed", request)
            cluster[0].signal(signal.SIGSTOP)
            stops = [
                await other.send("x-vendor.arcp-trio.stop", {"job_id": job_id, "reason": "enough"})
                for job_id in ids
            ]
            for job_id in ids:
                end = await other.until_terminal(job_id)
                assert end["payload"]["code"] == "CANCELLED"
                assert end["payload"]["details"] == {"stopped_by": "alice", "reason": "enough"}
            said = {frame["payload"].get("request_id"): frame for frame in other.seen}
            for stop in stops:  # on a slow machine the time for an answer may have been over
                kind, code = said[stop]["type"], said[stop]["payload"].get("code")
                assert kind == "x-vendor.arcp-trio.stopped" or code == "INTERNAL_ERROR"


async def test_an_adopter_takes_an_answer(database: str, tmp_path: Path) -> None:
    """An answer that comes while the job's node stands still reaches the job at its next node."""
    await trio.to_thread.run_sync(make_schema, database, None)
    with trio.fail_after(SECONDS):
        async with (
            cluster_over(database, tmp_path, nodes=2) as cluster,
            peer_at(cluster[0], CLIENT_FEATURES) as peer,
            peer_at(cluster[1], CLIENT_FEATURES) as other,
        ):
            job = await peer.submit("asks", lease_request=MAY_ASK)
            question = await next_question(peer, job["job_id"])
            request = await other.send("job.subscribe", {"job_id": job["job_id"]})
            await other.answer("job.subscribed", request)
            cluster[0].signal(signal.SIGSTOP)
            asked = {"job_id": job["job_id"], "question_id": question["question_id"]}
            await other.send(ANSWER, {**asked, "answer": "yes"})
            end = await other.until_terminal(job["job_id"])
            assert end["payload"]["result"] == "yes"
