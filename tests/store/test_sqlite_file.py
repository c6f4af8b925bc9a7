"""The file of the durable store: its permissions, its lock, and the files that are refused.

SQLite works in threads, for which virtual time does not wait: these tests run in real time.
"""

# ruff: noqa: ASYNC240 - no other task waits while a test looks at a file

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

import arcp_trio
from arcp_trio.log_lines import fields_of
from arcp_trio.store.errors import (
    CorruptStore,
    ForeignFile,
    OtherVersion,
    StoreError,
    StoreInUse,
    UnwritableStore,
)
from arcp_trio.store.sqlite import SqliteStore, _schema, open_read_only
from tests.store.engines import Feeder, job_row, read_all, running, session_row
from tests.store.files import fill, on, refusal


def sql(path: Path, *statements: str) -> None:
    """Execute statements on a database file without the store."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)


# -- what is stored stays


def test_the_public_name() -> None:
    """SqliteStore is a name of the package."""
    assert arcp_trio.SqliteStore is SqliteStore


async def test_everything_is_there_again(path: Path) -> None:
    """A store that is opened again has what was flushed."""
    await fill(path)
    async with running(on(path)) as store:
        feeder = Feeder(store)
        row = await store.session("S")
        assert row is not None
        assert (row.principal, row.token_digest) == ("alice", b"token")
        assert row.features == {"ack"}
        assert (row.top, row.log_rows, row.watches) == (3, 1, {})
        assert len(await read_all(store.replay("S", 0, 3, 1))) == 4
        job = await store.job("J")
        assert job is not None
        assert job.length == 3
        assert job.submitters == {"S"}
        await feeder.session("T", token=b"other").committed()
        assert list((await store.recover()).sessions) == ["S", "T"]


async def test_what_a_runtime_left_is_recovered(path: Path) -> None:
    """Jobs that had not ended are recovered with their lengths, also with trimmed journals."""
    async with running(on(path)) as store:
        feeder = Feeder(store)
        feeder.session()
        for job_id in ("J", "K", "L"):
            feeder.job(job_id)
        feeder.emit("J", 5)
        feeder.emit("K", 2)
        feeder.finish("K")
        await store.flushed()
    async with running(on(path)) as store:
        found = await store.recover()
    assert (found.ordinal, dict(found.sessions)) == (8, {"S": "alice"})
    assert [(row.job_id, row.length) for row in found.unfinished] == [("J", 5), ("L", 0)]
    assert found.unfinished[1] == job_row("L")


async def test_ordinals_go_on_when_their_entries_are_gone(path: Path) -> None:
    """Ordinals continue after a restart, even if no entry is left."""
    async with running(on(path)) as store:
        feeder = Feeder(store)
        feeder.job()
        feeder.finish()
        feeder.expire(before=1.0)
        await store.flushed()
    async with running(on(path)) as store:
        assert (await store.recover()).ordinal == 1


async def test_nothing_is_left_beside_a_closed_store(path: Path) -> None:
    """Closing copies the write-ahead log, so that the file alone is the store."""
    await fill(path)
    assert sorted(each.name for each in path.parent.iterdir()) == ["arcp.db", "arcp.db.lock"]
    copy = path.parent.parent / "copy.db"
    copy.write_bytes(path.read_bytes())
    async with running(on(copy)) as store:
        assert await store.session("S") is not None


async def test_a_writer_that_is_cancelled_finishes_its_commit(path: Path) -> None:
    """A cancelled writer finishes its commit, and the group is stored."""
    async with trio.open_nursery() as nursery:
        async with running(on(path)) as store:
            feeder = Feeder(store)
            await feeder.job().committed()
            other = sqlite3.connect(path, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            group = feeder.emit(count=5)
            await group.taken.wait()
            await wait_all_tasks_blocked()  # the commit waits for the lock
            nursery.start_soon(_close_later, other)
        assert group.stored.is_set()
    async with running(on(path)) as store:
        assert (await store.recover()).unfinished[0].length == 5


async def _close_later(other: sqlite3.Connection) -> None:
    await wait_all_tasks_blocked()  # the writer is cancelled
    other.close()


async def test_a_path_may_have_any_character(tmp_path: Path) -> None:
    """A path with characters that are special in URIs is opened as it is."""
    path = tmp_path / "50% of #1?" / "a&mode=memory.db"
    await fill(path)
    assert path.stat().st_size > 0
    async with open_read_only(path) as reader:
        assert await reader.session("S") is not None


async def test_reading_before_it_is_open_says_so(path: Path) -> None:
    """A read before the store is open raises StoreError."""
    with pytest.raises(StoreError, match="not open"):
        await on(path).session("S")
    assert not path.exists()


# -- who may see it


async def test_only_its_user_can_read_it(path: Path) -> None:
    """The folder has mode 0700, and all files 0600, also those that SQLite makes."""
    async with running(on(path)) as store:
        await Feeder(store).session().committed()
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    names = ("arcp.db", "arcp.db-shm", "arcp.db-wal", "arcp.db.lock")
    assert modes == dict.fromkeys(names, 0o600)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_files_that_others_could_read_are_closed_to_them(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Files that other users could read are closed to them on opening."""
    await fill(path)
    for part in ("", "-wal", "-shm", ".lock"):
        file = Path(f"{path}{part}")
        file.touch()
        file.chmod(0o666)
    async with running(on(path)):
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    names = ("arcp.db", "arcp.db-shm", "arcp.db-wal", "arcp.db.lock")
    assert modes == dict.fromkeys(names, 0o600)
    assert str(path) in [fields_of(record).get("path") for record in caplog.records]
    caplog.clear()
    async with running(on(path)):
        assert not caplog.text


async def test_a_folder_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    """The mode of an existing folder is left alone."""
    tmp_path.chmod(0o755)
    await fill(tmp_path / "arcp.db")
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


# -- one runtime at a time


async def test_a_second_store_is_refused_while_the_first_runs(path: Path) -> None:
    """A second store on the file is refused until the first is closed."""
    async with running(on(path)) as store:
        assert isinstance(refused := await refusal(path), StoreInUse)
        assert "in use by another runtime" in str(refused)
        await Feeder(store).session().committed()
        assert await store.session("S") == session_row()
    async with running(on(path)):
        pass


SECOND = """
import sys, trio
from arcp_trio.store.errors import StoreInUse
from arcp_trio.store.sqlite import SqliteStore
try:
    trio.run(SqliteStore(sys.argv[1]).run)
except StoreInUse as refused:
    print(refused)
"""


async def test_a_second_process_is_refused(path: Path) -> None:
    """A store that another process has open is refused."""
    async with running(on(path)):
        second = [sys.executable, "-c", SECOND, str(path)]
        with trio.fail_after(30):
            done = await trio.run_process(second, capture_stdout=True)
    assert done.stdout.decode() == f"{path} is in use by another runtime\n"


# -- files that are not stores


async def test_a_file_of_another_kind_is_refused(path: Path) -> None:
    """A file of another kind is refused and not changed."""
    path.parent.mkdir()
    path.write_bytes(b"my diary\n" * 1_000)
    assert isinstance(await refusal(path), ForeignFile)
    assert path.read_bytes() == b"my diary\n" * 1_000


@pytest.mark.parametrize("pragma", ["user_version = 1", "application_id = 7"])
async def test_another_database_is_refused(path: Path, pragma: str) -> None:
    """A SQLite file of another program is refused."""
    path.parent.mkdir()
    sql(path, "CREATE TABLE session (x)", f"PRAGMA {pragma}")
    before = path.read_bytes()
    assert isinstance(await refusal(path), ForeignFile)
    assert path.read_bytes() == before


async def test_an_empty_file_becomes_a_store(path: Path) -> None:
    """An empty file becomes a store, such as a killed runtime may leave."""
    path.parent.mkdir()
    path.touch()
    await fill(path)
    async with running(on(path)) as store:
        assert await store.session("S") is not None


async def test_a_damaged_file_is_refused(path: Path) -> None:
    """Damage is found when the store is opened."""
    await fill(path, entries=2_000)
    size = path.stat().st_size
    with path.open("r+b") as file:
        for page in range(1, size // 4096):
            file.seek(page * 4096)
            file.write(os.urandom(64))
    assert isinstance(await refusal(path), CorruptStore)


async def test_a_truncated_file_is_refused(path: Path) -> None:
    """A truncated file is refused as damaged."""
    await fill(path, entries=2_000)
    os.truncate(path, path.stat().st_size // 2 // 4096 * 4096)
    assert isinstance(await refusal(path), CorruptStore)


async def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    """The error names the folder that cannot be made."""
    (tmp_path / "file").touch()
    assert isinstance(await refusal(tmp_path / "file" / "arcp.db"), UnwritableStore)


async def test_a_folder_in_place_of_the_file_is_refused(path: Path) -> None:
    """The error names the file that cannot be opened."""
    path.mkdir(parents=True)
    assert isinstance(await refusal(path), UnwritableStore)


AS_NOBODY = """
import os, sys, trio
from arcp_trio.store.errors import UnwritableStore
from arcp_trio.store.sqlite import SqliteStore
if os.geteuid() == 0:
    os.setuid(65534)
try:
    trio.run(SqliteStore(sys.argv[1]).run)
except UnwritableStore as refused:
    print(refused)
"""


@pytest.mark.parametrize("file_mode", [None, 0o444])
def test_what_its_user_may_not_write_is_refused(file_mode: int | None) -> None:
    """A folder or a file without permission is refused on opening."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "arcp.db"
        if file_mode is not None:
            trio.run(fill, path)
            Path(f"{path}.lock").chmod(0o666)
            path.chmod(file_mode)
        path.parent.chmod(0o555 if file_mode is None else 0o777)
        code = [sys.executable, "-c", AS_NOBODY, str(path)]
        done = subprocess.run(code, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith(f"cannot write to {path}: ")


# -- versions


async def test_a_later_version_is_refused(path: Path) -> None:
    """A store of a later version is refused."""
    await fill(path)
    sql(path, f"PRAGMA user_version = {len(_schema.MIGRATIONS) + 1}")
    refused = await refusal(path)
    assert isinstance(refused, OtherVersion)
    assert "later version" in str(refused)


async def test_an_earlier_version_is_brought_up_to_date(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each migration is applied once, and keeps what was stored."""
    await fill(path)
    more = ("ALTER TABLE session ADD COLUMN colour TEXT", "UPDATE session SET colour = 'red'")
    monkeypatch.setattr(_schema, "MIGRATIONS", [*_schema.MIGRATIONS, more])
    for _ in range(2):
        async with running(on(path)) as store:
            assert await store.session("S") is not None
            colours = await store._read(lambda db: db.execute("SELECT colour FROM session"))
            assert colours.fetchall() == [("red",)]


async def test_a_step_that_fails_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A migration that fails leaves the version before it."""
    await fill(path)
    steps = list(_schema.MIGRATIONS)
    broken = ("ALTER TABLE session ADD COLUMN colour TEXT", "UPDATE nothing SET colour = 'red'")
    monkeypatch.setattr(_schema, "MIGRATIONS", [*steps, broken])
    await refusal(path)
    monkeypatch.setattr(_schema, "MIGRATIONS", steps)
    async with running(on(path)) as store:
        assert await store.session("S") is not None
