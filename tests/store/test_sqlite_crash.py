"""A killed process: acknowledged groups are in the file, whole."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from arcp_trio.store.records import NumberedTail
from arcp_trio.store.sqlite import SqliteStore
from tests.store.engines import read_all, running

KILLS = 10

WRITER = """
import sys
import trio
from arcp_trio.store.records import Range
from arcp_trio.store.sqlite import SqliteStore
from arcp_trio.store.writes import AppendLog, AppendJournal
from tests.store.engines import Entry, Feeder, running

async def main(path):
    async with running(SqliteStore(path)) as store:
        row = await store.session("S")
        if row is None:
            feeder = Feeder(store)
            feeder.session()
            await feeder.job().committed()
        top, rows = (0, 0) if row is None else (row.top, row.log_rows)
        while True:
            count = rows % 7 + 1  # entries; the group also has the batch that numbers them
            for index in range(top, top + count):
                said = b"%d " % index * 500
                store.put(AppendJournal("J", Entry(index, index + 1, said)))
            item = Range(top + 1, "J", top, count)
            top += count
            group = store.put(AppendLog("S", rows, [item], top, {"J": top}, ["J"], []))
            rows += 1
            await group.committed()
            print(top, flush=True)

trio.run(main, sys.argv[1])
"""


def acknowledged(path: Path, groups: int, rest: float) -> int:
    """Write groups in a process until `groups` are acknowledged, wait for `rest`, and kill it."""
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for _ in range(groups):
            writer.stdout.readline()
        try:
            writer.wait(timeout=rest)
        except subprocess.TimeoutExpired:
            writer.kill()
        top = writer.stdout.read().split()[-1:]
        assert writer.wait() == -9
    return int(top[0]) if top else 0


async def stored(path: Path) -> tuple[int, list[NumberedTail]]:
    """Return the top of the session, and its frames."""
    async with running(SqliteStore(path)) as store:
        row = await store.session("S")
        assert row is not None
        return row.top, await read_all(store.replay("S", 0, row.top, row.log_rows))


async def test_what_was_acknowledged_survives_the_process(tmp_path: Path) -> None:
    """After a kill at any moment, no acknowledged group is missing, and no group is incomplete."""
    path = tmp_path / "arcp.db"
    chance = random.Random(11)
    for _ in range(KILLS):
        told = acknowledged(path, chance.randint(1, 15), chance.random() / 20)
        with closing(sqlite3.connect(path)) as db:
            assert db.execute("PRAGMA quick_check").fetchall() == [("ok",)]
        top, frames = await stored(path)
        assert top >= told
        assert frames == [(n, b"%d " % (n - 1) * 500) for n in range(1, top + 1)]
