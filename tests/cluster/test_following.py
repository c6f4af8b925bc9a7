"""Watching jobs that run at another node: all of their events come, live, in order, once."""

from __future__ import annotations

import psycopg
import pytest
import trio

from arcp_trio import InternalError
from arcp_trio.runtime.cluster.following import SETTLE_SECONDS
from arcp_trio.store.writes import Expire
from tests.cluster.tellers import counted, moved, quiet, submitted, subscribed, two_nodes
from tests.metrics import scrape
from tests.reading import lines, numbers, until_end

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

FLAT_OUT = 5_000
NEVER = 1_000
"""Seconds; each test ends before."""

SLOW_COMMITS = """
    CREATE FUNCTION public.take_time() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_sleep(0.3); RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER takes_time AFTER INSERT ON arcp.journal
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.take_time()"""
"""Have each commit that has events take a while."""


async def test_history_then_live_then_the_end(database: str) -> None:
    """A subscriber at another node gets what was, what comes, and the terminal, each once.

    Wake-ups bring it all: nothing is looked at without one.
    """
    async with two_nodes(database, follow_seconds=NEVER) as (desk, one, two):
        _, job_id = await submitted(one)
        await desk.say(job_id, 4)
        await desk.has_said(job_id, 4)
        await one.store.flushed()
        watcher = await two.welcomed()
        answer = await subscribed(watcher, job_id, history=True)
        assert answer["current_status"] == "running"
        assert answer["replayed"] is True
        assert answer["subscribed_from"] == 4
        frames = [await watcher.receive() for _ in range(4)]
        await desk.say(job_id, 3)
        frames += [await watcher.receive() for _ in range(3)]
        assert scrape(two.runtime)("followed_jobs") == 1
        await desk.end(job_id)
        frames += await until_end(watcher, job_id)
        assert lines(frames) == counted(7)
        assert numbers(frames) == [1, 2, 3, 4, 5, 6, 7, 8]
        assert frames[-1]["payload"]["final_status"] == "success"
        assert scrape(two.runtime)("followed_jobs") == 0
        assert scrape(two.runtime)("wakes_total", by="notify") > 0


async def test_a_wake_up_comes_after_the_commit(database: str) -> None:
    """A commit that takes long keeps nothing from a subscriber elsewhere.

    One that is woken before there is anything to see would not look again.
    """
    async with two_nodes(database, follow_seconds=NEVER) as (desk, one, two):
        _, job_id = await submitted(one)
        watcher = await quiet(two)
        await subscribed(watcher, job_id)
        await trio.sleep(2 * SETTLE_SECONDS)  # the journal is part of every look until then
        with psycopg.connect(database) as db:
            db.execute(SLOW_COMMITS)
        for number in range(3):
            await desk.say(job_id)
            assert lines([await watcher.expect("job.event")]) == [str(number)]


async def test_without_history_only_what_comes(database: str) -> None:
    """A subscription without history begins with the next event, also at another node."""
    async with two_nodes(database) as (desk, one, two):
        owner, job_id = await submitted(one)
        await desk.say(job_id, 3)
        for _ in range(3):
            await owner.expect("job.event")
        watcher = await two.welcomed()
        assert (await subscribed(watcher, job_id))["replayed"] is False
        await desk.say(job_id, 2)
        await desk.end(job_id)
        assert lines(await until_end(watcher, job_id)) == ["3", "4"]


async def test_a_session_follows_its_job_from_another_node(database: str) -> None:
    """A submitter that resumes elsewhere goes on with its job where it was, live."""
    async with two_nodes(database) as (desk, one, two):
        peer, job_id = await submitted(one)
        await desk.say(job_id, 2)
        frames = [await peer.receive() for _ in range(2)]
        peer = await moved(peer, two)
        await desk.say(job_id, 2)
        frames += [await peer.receive() for _ in range(2)]
        peer = await moved(peer, one)  # and back to the job
        await desk.say(job_id, 2)
        frames += [await peer.receive() for _ in range(2)]
        peer = await moved(peer, two)
        await desk.end(job_id)
        frames += await until_end(peer, job_id)
        assert lines(frames) == counted(6)
        assert numbers(frames) == [1, 2, 3, 4, 5, 6, 7]


async def test_flat_out(database: str) -> None:
    """However fast a job is, its submitter and a subscriber at another node get everything."""
    async with two_nodes(database) as (desk, one, two):
        peer, job_id = await submitted(one)
        peer, watcher = await moved(peer, two), await quiet(two)
        await subscribed(watcher, job_id, history=True)
        await desk.say(job_id, FLAT_OUT)
        await desk.end(job_id)
        for each in (peer, watcher):
            frames = await until_end(each, job_id)
            assert lines(frames) == counted(FLAT_OUT)
            assert numbers(frames) == list(range(1, FLAT_OUT + 2))


async def test_subscribing_while_the_job_ends(database: str) -> None:
    """A subscription that meets the end of its job brings everything all the same."""
    async with two_nodes(database) as (desk, one, two):
        owner, watcher = await one.welcomed(), await two.welcomed()
        for number in range(30):
            job_id = (await owner.submit("teller"))["job_id"]
            await desk.say(job_id, 3)
            await watcher.send("job.subscribe", {"job_id": job_id, "history": True})
            await trio.sleep(number / 3_000)
            await desk.end(job_id)
            frames = await until_end(watcher, job_id)
            assert lines(frames) == counted(3)


async def test_unsubscribing_and_subscribing_in_turn(database: str) -> None:
    """Each subscription to a job brings what comes while it lasts, however short they are."""
    async with two_nodes(database) as (desk, one, two):
        _, job_id = await submitted(one)
        watcher = await two.welcomed()
        for number in range(20):
            await subscribed(watcher, job_id)
            await desk.say(job_id)
            event = await watcher.expect("job.event", job_id=job_id)
            assert event["payload"]["body"]["message"] == str(number)
            await watcher.send("job.unsubscribe", {"job_id": job_id})
        await subscribed(watcher, job_id)
        await desk.end(job_id)
        await watcher.until_terminal(job_id)


async def test_what_a_session_elsewhere_is_owed_is_kept(database: str) -> None:
    """A job whose retention is over is kept for a session that another node has parked."""
    async with two_nodes(database) as (desk, one, two):
        peer, job_id = await submitted(one)
        peer = await moved(peer, two)
        await desk.say(job_id, 5)
        await desk.end(job_id)
        await peer.drop()
        owner = await one.welcomed()
        await subscribed(owner, job_id, history=True)
        await owner.until_terminal(job_id)
        now = one.runtime.clock.now()
        await one.store.put(Expire(now, finished_before=now + 1, finished_jobs=0)).committed()
        assert await one.store.job(job_id) is None
        peer = await two.welcomed(resume=peer.resume_from())
        await peer.until_terminal(job_id)
        events = peer.recorder.events(job_id, session_id=str(peer.session_id))
        assert lines(events) == counted(5)


async def test_a_full_journal_waits_for_its_submitter_at_another_node(database: str) -> None:
    """A job waits while its journal is full of what its submitter elsewhere has yet to read."""
    async with two_nodes(database, journal_bytes=100_000, tail_frames=50, outbox_items=50) as nodes:
        desk, one, two = nodes
        peer, job_id = await submitted(one, letters=2_000)
        peer = await moved(peer, two)
        await desk.say(job_id, 500)
        await desk.end(job_id)
        with trio.move_on_after(2):
            await desk.has_said(job_id, 500)
        assert desk.said[job_id] < 500, "it has waited for nobody"
        told = lines(await until_end(peer, job_id))
        assert [line.rstrip("x") for line in told] == counted(500)


async def test_a_key_of_a_job_at_another_node(database: str) -> None:
    """A client that submits the key of a job of another node has all of its events, each once.

    Once the job has ended, another submit brings the terminal again, and nothing else.
    """
    # A terminal that is numbered twice would be a fault but for this.
    async with two_nodes(database, audited=False) as (desk, one, two):
        peer, job_id = await submitted(one, idempotency_key="k")
        await desk.say(job_id, 3)
        await desk.has_said(job_id, 3)
        other, again = await submitted(two, idempotency_key="k")
        assert again == job_id
        peer = await moved(peer, two)
        assert (await peer.submit("teller", 0, idempotency_key="k"))["job_id"] == job_id
        await desk.say(job_id, 3)
        await desk.end(job_id)
        for each in (peer, other):
            await each.until_terminal(job_id)
            events = each.recorder.events(job_id, session_id=str(each.session_id))
            assert lines(events) == counted(6)
        for each in (peer, other):
            each.seen.clear()
            assert (await each.submit("teller", 0, idempotency_key="k"))["job_id"] == job_id
            await each.until_terminal(job_id)
            assert not [frame for frame in each.seen if frame["type"] == "job.event"]


async def test_followed_jobs_are_bounded(database: str) -> None:
    """Past `followed_jobs` no further job of another node can be subscribed to."""
    async with two_nodes(database, followed_jobs=2) as (desk, one, two):
        owner, watcher = await one.welcomed(), await two.welcomed()
        jobs = [(await owner.submit("teller"))["job_id"] for _ in range(3)]
        for job_id in jobs[:2]:
            await subscribed(watcher, job_id)
        with pytest.raises(InternalError, match="followed_jobs") as refused:
            await subscribed(watcher, jobs[2])
        assert refused.value.details["max"] == 2
        await subscribed(await two.welcomed(), jobs[0])  # which is followed already
        await watcher.send("job.unsubscribe", {"job_id": jobs[1]})
        await subscribed(watcher, jobs[2])
        await desk.say(jobs[2])
        await watcher.expect("job.event", job_id=jobs[2])
