"""Reads of a store's file without a runtime."""

from __future__ import annotations

# ruff: noqa: ASYNC240 - no other task waits while a test looks at a file
from pathlib import Path

import pytest

from arcp_trio.store.errors import OtherVersion, StoreError, StoreInUse
from arcp_trio.store.sqlite import _schema, open_read_only
from tests.store.engines import Feeder, read_all, running, session_row
from tests.store.files import fill, on, refusal


def kept(path: Path) -> dict[str, tuple[bytes, int]]:
    """Return the files in the folder, with their contents and times."""
    return {
        each.name: (each.read_bytes(), each.stat().st_mtime_ns)
        for each in sorted(path.parent.iterdir())
    }


# -- looking at it


async def test_looking_at_a_store_changes_nothing(path: Path) -> None:
    """A read-only file in a read-only folder can be read, and is not changed."""
    await fill(path)
    path.chmod(0o400)
    before = kept(path)
    path.parent.chmod(0o500)
    try:
        async with open_read_only(path) as reader:
            assert dict((await reader.recover()).sessions) == {"S": "alice"}
            row = await reader.session("S")
            assert row is not None
            frames = await read_all(reader.replay("S", 0, row.top, row.log_rows))
            assert [seq for seq, _ in frames] == [0, 1, 2, 3]
    finally:
        path.parent.chmod(0o700)
    assert kept(path) == before


async def test_looking_at_what_a_killed_runtime_left(path: Path) -> None:
    """What is only in the write-ahead log is read, and stays there."""
    async with running(on(path)) as store:
        await Feeder(store).session().committed()
        left = path.parent.parent / "left"
        left.mkdir()
        for each in path.parent.iterdir():
            (left / each.name).write_bytes(each.read_bytes())
    left /= path.name
    before = kept(left)
    async with open_read_only(left) as reader:
        assert await reader.session("S") == session_row()
    assert kept(left) == before


async def test_nobody_looks_at_a_store_in_use(path: Path) -> None:
    """A store in use cannot be read; readers keep runtimes out, and share the file."""
    async with running(on(path)):
        with pytest.raises(StoreInUse, match="by another runtime"):
            async with open_read_only(path):
                pass
    async with open_read_only(path), open_read_only(path):
        assert isinstance(refused := await refusal(path), StoreInUse)
        assert str(refused) == f"{path} is in use by a program that reads it"


async def test_looking_at_what_is_not_there(path: Path) -> None:
    """Reading a missing store is refused, and makes no file."""
    with pytest.raises(StoreError, match="no store at"):
        async with open_read_only(path):
            pass
    assert not path.parent.exists()


async def test_looking_at_an_earlier_version(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store of an earlier version is refused, since reading does not migrate it."""
    await fill(path)
    monkeypatch.setattr(_schema, "MIGRATIONS", [*_schema.MIGRATIONS, ()])
    with pytest.raises(OtherVersion, match="earlier version"):
        async with open_read_only(path):
            pass
