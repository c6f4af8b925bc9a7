"""Values of credentials reach the client at another node than its job, and nobody else."""

from __future__ import annotations

import math

import msgspec
import psycopg
import pytest
import trio

from arcp_trio import Limits, Policy
from arcp_trio.runtime.cluster import revealing
from arcp_trio.runtime.job import command_rows
from arcp_trio.runtime.job.commands import AnswerTo, EndJob
from arcp_trio.testing import Peer
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.features import CLIENT_FEATURES, Feature
from arcp_trio.wire.json import dumps
from tests.cluster.revealing import SECONDS, Stage, revealing_nodes
from tests.cluster.side_by_side import give_job
from tests.credentials.runtimes import LEASE
from tests.credentials.upstream import SECRET
from tests.stage import BOB

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

STRANGER = 9_999
"""The number of a node that there is not."""

SOON = 3
"""Seconds; a write waits 5 for a lock, and a transaction that stands still ends after 15."""


def from_the_start(peer: Peer) -> Frame:
    """Return what resumes a session, with everything replayed."""
    return {**peer.resume_from(), "last_event_seq": 0}


async def submitted(stage: Stage) -> tuple[Peer, Frame]:
    """Have a client submit a job with credentials; return both, the job as it was accepted."""
    peer = await stage.here.welcomed()
    return peer, await peer.submit("rotator", None, lease_request=LEASE)


async def submitted_elsewhere(stage: Stage) -> tuple[Peer, Frame]:
    """Have a client submit a job, and resume at the other node; return both."""
    peer, job = await submitted(stage)
    return await stage.there.welcomed(resume=from_the_start(peer)), job


async def submitted_at_a_stranger(stage: Stage) -> tuple[Peer, Frame]:
    """Have a client at a node, and its job at one that there is not; return both."""
    peer, job = await submitted(stage)
    await until_logged(peer, "before")
    give_job(stage.database, job["job_id"], STRANGER)
    return await stage.there.welcomed(resume=from_the_start(peer)), job


async def until_logged(peer: Peer, words: str) -> list[Frame]:
    """Return the frames up to a log line."""
    seen = [await peer.receive()]
    while seen[-1]["payload"].get("body", {}).get("message") != words:
        seen.append(await peer.receive())
    return seen


def told(seen: list[Frame]) -> list[str]:
    """Return what frames are about, in a word each."""
    kinds = [(frame["type"], frame["payload"].get("body", {})) for frame in seen]
    return [body.get("message") or body.get("phase") or kind for kind, body in kinds]


async def subscribed(peer: Peer, job_id: str) -> Frame:
    """Subscribe to a job, and return the answer's payload."""
    request = await peer.send("job.subscribe", {"job_id": job_id})
    return await peer.answer("job.subscribed", request)


async def test_the_values_reach_the_client(database: str) -> None:
    """A resume at another node replays the value, a rotation there has one; all in order."""
    async with revealing_nodes(database) as stage:
        away, job = await submitted_elsewhere(stage)
        seen = await until_logged(away, "before")
        stage.may_rotate.set()
        seen += await until_logged(away, "after")
        assert told(seen) == ["job.accepted", "before", "credential_rotated", "after"]
        assert [frame.get("event_seq") for frame in seen] == [None, 1, 2, 3]
        assert seen[0]["payload"]["credentials"] == job["credentials"]
        (rotated,) = stage.upstream.live_values
        assert seen[2]["payload"]["body"]["value"] == rotated != job["credentials"][0]["value"]
        # At the next nodes, a replay has the value that is good now.
        for node in (stage.here, stage.there):
            away = await node.welcomed(resume=from_the_start(away))
            again = await until_logged(away, "after")
            assert told(again) == told(seen)
            assert again[0]["payload"]["credentials"][0]["value"] == rotated
            assert again[2]["payload"]["body"]["value"] == rotated
        assert any('"sealed":{"node"' in row["answer"] for row in stage.commands())
        stage.check_secrecy()


async def test_a_submit_whose_job_runs_at_another_node(database: str) -> None:
    """The same key at another node is answered with the job's credentials, too."""
    async with revealing_nodes(database) as stage:
        peer, other = await stage.here.welcomed(), await stage.there.welcomed()
        fields = {"lease_request": LEASE, "idempotency_key": "k"}
        job = await peer.submit("rotator", None, **fields)
        again = await other.submit("rotator", None, **fields)
        assert (again["job_id"], again["credentials"]) == (job["job_id"], job["credentials"])
        stage.check_secrecy()


async def test_credentials_that_the_job_has_got_since(database: str) -> None:
    """A subscription elsewhere is answered with all that the job has by now, as it is at home."""
    async with revealing_nodes(database) as stage:
        stage.upstream.rotates = 2
        peer, job = await submitted(stage)
        stage.may_rotate.set()
        await until_logged(peer, "after")
        for node in (stage.here, stage.there):
            told = await subscribed(await node.welcomed(), job["job_id"])
            assert {each["value"] for each in told["credentials"]} == stage.upstream.live_values
        stage.check_secrecy()


@pytest.mark.parametrize("lacking", ["here", "there"])
async def test_without_the_extra_values_are_left_out(database: str, lacking: str) -> None:
    """If a node lacks it, of the job or of the client, frames lack values, and come all the same.

    At the job's node the value is seen again.
    """
    async with revealing_nodes(database, lacking=(lacking,)) as stage:
        peer, job = await submitted(stage)
        assert job["credentials"][0]["value"].startswith(SECRET)
        away = await stage.there.welcomed(resume=from_the_start(peer))
        seen = await until_logged(away, "before")
        stage.may_rotate.set()
        seen += await until_logged(away, "after")
        assert told(seen) == ["job.accepted", "before", "credential_rotated", "after"]
        assert "credentials" not in seen[0]["payload"]
        assert SECRET not in dumps(seen).decode()
        assert bool(stage.commands()) == (lacking == "here")
        back = await stage.here.welcomed(resume=away.resume_from())
        payload = await subscribed(back, job["job_id"])
        assert payload["credentials"][0]["value"].startswith(SECRET)
        stage.check_secrecy()


async def test_a_node_of_the_version_before(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not know what it is asked, and says so at once: values are left out."""
    older = msgspec.json.Decoder(EndJob | AnswerTo)
    monkeypatch.setattr(command_rows, "_read_command", older)
    async with revealing_nodes(database, limits=Limits(command_seconds=SECONDS)) as stage:
        away, _ = await submitted_elsewhere(stage)
        seen = await until_logged(away, "before")
        assert "credentials" not in seen[0]["payload"]
        # The client may have asked again, and has no answer yet.
        answers = [row["answer"] for row in stage.commands() if row["answer"] != "None"]
        assert answers
        assert all("does not know" in answer for answer in answers)


async def test_who_else_is_told(database: str) -> None:
    """Elsewhere a subscriber sees values if it would at home: as its principal, and if it asked.

    For others, the job's node is not even asked.
    """
    async with revealing_nodes(database, policy=Policy(observers={"bob"})) as stage:
        _, job = await submitted(stage)
        features = set(CLIENT_FEATURES) - {Feature.PROVISIONED_CREDENTIALS}
        without = await stage.there.connect()
        await without.hello(features=tuple(features))
        for other in (without, await stage.there.welcomed(BOB)):
            assert "credentials" not in await subscribed(other, job["job_id"])
        assert stage.commands() == []
        for node in (stage.here, stage.there):
            own = await subscribed(await node.welcomed(), job["job_id"])
            assert own["credentials"] == job["credentials"]
        stage.check_secrecy()


async def test_a_node_that_takes_its_time(database: str) -> None:
    """Frames keep their order and wait for the answer, also that of a job's next node; pings go on.

    Until then a node has the job that does not exist.
    """
    limits = Limits(cancel_grace_seconds=1, command_seconds=SECONDS)
    async with revealing_nodes(database, limits=limits) as stage:
        away, job = await submitted_at_a_stranger(stage)
        for _ in range(2):
            await away.send("session.ping", {"nonce": "n", "sent_at": "2026-01-01T00:00:00Z"})
            assert told([await away.receive()]) == ["session.pong"]
        give_job(database, job["job_id"], stage.here.store.shared.node)
        seen = await until_logged(away, "before")
        assert told(seen) == ["job.accepted", "before"]
        assert seen[0]["payload"]["credentials"] == job["credentials"]
        stage.check_secrecy()


async def test_a_node_that_does_not_answer(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `command_seconds` frames go on without values, and the node is not asked for a while.

    The command is taken back.
    """
    monkeypatch.setattr(revealing, "SILENT_SECONDS", math.inf)
    limits = Limits(cancel_grace_seconds=1, command_seconds=1)
    async with revealing_nodes(database, limits=limits) as stage:
        away, job = await submitted_at_a_stranger(stage)
        seen = await until_logged(away, "before")
        assert told(seen) == ["job.accepted", "before"]
        assert "credentials" not in seen[0]["payload"]
        asked = len(stage.commands())
        own = await subscribed(await stage.there.welcomed(), job["job_id"])
        assert "credentials" not in own
        assert len(stage.commands()) == asked > 0
        with psycopg.connect(database) as db:
            assert db.execute("SELECT FROM arcp.command").fetchall() == []
        give_job(database, job["job_id"], stage.here.store.shared.node)


async def test_a_node_that_stands_still_as_it_answers(database: str) -> None:
    """A command that the other node has locked is left to it: nothing at the asking node waits."""
    limits = Limits(cancel_grace_seconds=1, command_seconds=1)
    async with revealing_nodes(database, limits=limits) as stage:
        away, job = await submitted_at_a_stranger(stage)
        while not stage.commands():  # noqa: ASYNC110 - in the database
            await trio.sleep(0.01)
        with psycopg.connect(database) as db:
            db.execute("SELECT FROM arcp.command FOR UPDATE")  # until the end of the block
            assert told(await until_logged(away, "before")) == ["job.accepted", "before"]
            with trio.fail_after(SOON):
                await stage.there.welcomed()
        give_job(database, job["job_id"], stage.here.store.shared.node)
