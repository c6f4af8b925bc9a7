"""Wake-ups that do not come, or come too early: what other nodes emit is found all the same."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import NoReturn

import psycopg
import pytest
import trio

from arcp_trio import PostgresStore
from arcp_trio.runtime.cluster.following import SETTLE_SECONDS, Following
from arcp_trio.runtime.wake import Wake
from arcp_trio.store.errors import StoreError
from arcp_trio.store.postgres import _wake_ups
from arcp_trio.store.postgres._wake_ups import WakeUps
from arcp_trio.store.shared import News
from arcp_trio.store.writes import AppendJournal, FinishJob, Write
from tests.cluster.tellers import counted, moved, quiet, submitted, subscribed, two_nodes
from tests.metrics import scrape
from tests.reading import lines, numbers, until_end

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

PIECES = 20
PIECE = 50

FOLLOWERS = "SELECT follow.node, jid FROM follow JOIN job USING (jid) WHERE job_id = ANY(%s)"

REFUSE = """CREATE FUNCTION public.refuse(text[], text[]) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN RAISE 'too many notifications in the NOTIFY queue' USING ERRCODE = '54000'; END $$"""


def be_deaf(patch: pytest.MonkeyPatch, _database: str) -> None:
    """Have no node hear a wake-up."""
    patch.setattr(WakeUps, "_hear", lambda *_: None)


def find_the_queue_full(patch: pytest.MonkeyPatch, database: str) -> None:
    """Have the server refuse every notification, as it does when its queue of them is full."""
    with psycopg.connect(database) as db:
        db.execute(REFUSE)
    patch.setattr(_wake_ups, "_NOTIFY", "SELECT public.refuse(%s, %s)")


class Looks:
    """What nodes were told, and how often they have looked at what they follow."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._told: set[str] = set()
        self._begun = self._ended = 0
        self._news = Wake()
        hear, look = WakeUps._hear, Following._look_if_possible

        def note(wake_ups: WakeUps, payload: str) -> None:
            hear(wake_ups, payload)
            self._told |= set(payload.split())
            self._news.set()

        async def count(following: Following, job_ids: set[str], by: str) -> None:
            self._begun += 1
            await look(following, job_ids, by)
            self._ended += 1
            self._news.set()

        patch.setattr(WakeUps, "_hear", note)
        patch.setattr(Following, "_look_if_possible", count)

    async def one_after(self, key: int, wake: Callable[[], None]) -> None:
        """Wake those that follow a journal, and wait for a look that begins after they know it."""
        self._told.discard(str(key))
        wake()
        while str(key) not in self._told:
            await self._news.wait()
        begun = self._begun
        while self._ended <= begun:
            await self._news.wait()


def notify_before_the_commit(patch: pytest.MonkeyPatch, _database: str) -> None:
    """Have followers woken, and look, before there is anything to see, and not after that."""
    commit, wake, looks = PostgresStore._commit, WakeUps.moved_at, Looks(patch)

    async def wake_and_commit(self: PostgresStore, writes: Sequence[Write]) -> frozenset[str]:
        jobs = [each.job_id for each in writes if isinstance(each, AppendJournal | FinishJob)]
        rows = await self.read(lambda db: db.execute(FOLLOWERS, (jobs,)).fetchall())
        for node, key in rows:
            await looks.one_after(key, partial(wake, self._wake_ups, {node: [key]}))
        return await commit(self, writes)

    patch.setattr(PostgresStore, "_commit", wake_and_commit)
    patch.setattr(WakeUps, "moved_at", lambda *_: None)


@pytest.mark.parametrize("fault", [be_deaf, find_the_queue_full, notify_before_the_commit])
async def test_everything_is_looked_at_now_and_then(
    database: str, monkeypatch: pytest.MonkeyPatch, fault: Callable[[pytest.MonkeyPatch, str], None]
) -> None:
    """Without wake-ups, a submitter and a subscriber elsewhere get all within `follow_seconds`."""
    fault(monkeypatch, database)
    async with two_nodes(database, follow_seconds=0.05) as (desk, one, two):
        peer, job_id = await submitted(one)
        peer, watcher = await moved(peer, two), await quiet(two)
        await subscribed(watcher, job_id, history=True)
        frames = []
        for piece in range(PIECES):
            await desk.say(job_id, PIECE)
            frames += [await watcher.receive() for _ in range(PIECE)]
            assert lines(frames) == counted((piece + 1) * PIECE)
        await desk.end(job_id)
        assert numbers(frames + await until_end(watcher, job_id))[-1] == PIECES * PIECE + 1
        assert lines(await until_end(peer, job_id)) == counted(PIECES * PIECE)
        assert scrape(two.runtime)("wakes_total", by="poll") > 0


@pytest.mark.parametrize("known", [False, True])
async def test_a_look_that_fails_is_made_again(
    database: str, monkeypatch: pytest.MonkeyPatch, *, known: bool
) -> None:
    """Entries that cannot be read are read later, known of or not, also those of a job's end."""
    async with two_nodes(database, follow_seconds=0.05) as (desk, one, two):
        _, job_id = await submitted(one)
        watcher = await quiet(two)
        await subscribed(watcher, job_id)
        await desk.say(job_id)
        await watcher.expect("job.event")  # from here on the watcher is given hints
        await trio.sleep(2 * SETTLE_SECONDS)  # the journal is part of every look until then
        failed = trio.Event()

        async def fail(*_: object) -> NoReturn:
            await trio.lowlevel.checkpoint()
            failed.set()
            raise StoreError("the server cannot be reached")

        read = two.store.shared.news

        async def only_extents(job_ids: Collection[str], *_: object) -> News:
            return await read(job_ids, {}, 1, 1)

        monkeypatch.setattr(two.store.shared, "news", only_extents if known else fail)
        monkeypatch.setattr(two.store, "owed", fail)
        await desk.end(job_id)
        await failed.wait()
        monkeypatch.undo()
        await watcher.until_terminal(job_id)
