"""The folders of conversations stay for as long as one of their jobs is kept."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import traceback
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import trio

from arcp_trio.proxies.acp.folders import Folders
from arcp_trio.removing import remove_tree


def kept(*jobs: str) -> Callable[[str], Awaitable[bool]]:
    """Return the answer to whether a job is kept, which only these are."""

    async def is_kept(job_id: str) -> bool:
        await trio.lowlevel.checkpoint()
        return job_id in jobs

    return is_kept


def names(folder: Path) -> list[str]:
    """Return the names of what is in a folder."""
    return sorted(path.name for path in folder.iterdir())


async def test_a_folder_goes_with_the_last_job(tmp_path: Path) -> None:
    """Any job of a conversation keeps its folder; without any, all that is in it is removed."""
    folders = Folders(tmp_path / "of" / "conversations")
    assert await folders.join("job_1", "job_1") == []
    assert await folders.join("job_2", "job_2") == []
    assert await folders.join("job_1", "job_3") == ["job_1"]
    assert await folders.join("job_1", "job_4") == ["job_3", "job_1"]
    work = Path(await folders.to_work_in("job_1"))
    (work / "deep").mkdir()
    (work / "deep" / "file").touch()
    (work / "out").symlink_to(tmp_path)
    for each in ("job_1", "job_3", "job_4"):
        await folders.sweep(kept(each, "job_2"))
        assert names(tmp_path / "of" / "conversations") == ["job_1", "job_2"]
    await folders.sweep(kept("job_2"))
    assert names(tmp_path / "of" / "conversations") == ["job_2"]
    await folders.sweep(kept())
    assert names(tmp_path / "of" / "conversations") == []
    assert names(tmp_path) == ["of"], "links are not followed"


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Return a folder that everybody can reach and change."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def as_nobody(work: Callable[[], None]) -> None:
    """Do something in a process without the rights of root, for which no mode is an obstacle."""
    pid = os.fork()
    if not pid:
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)
            work()
        except BaseException:  # noqa: ASYNC103, BLE001 - a process of its own
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


def nested(folder: Path, depth: int) -> None:
    """Make folders in each other, with a file and a link out in the innermost."""
    at = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=at)
        inner = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(os.open("file", os.O_CREAT, dir_fd=at))
    os.symlink("/etc", "link", dir_fd=at)
    os.close(at)


def test_folders_that_are_hard_to_remove(open_folder: Path) -> None:
    """However deep they are, and whatever their modes: they go, and so do those of others."""

    async def sweep() -> None:
        folders = Folders(open_folder / "conversations")
        for each in ("job_1", "job_2", "job_3", "job_4"):
            await folders.join(each, each)
            (Path(await folders.to_work_in(each)) / "in" / "side").mkdir(parents=True)
        data = open_folder / "conversations"
        nested(data / "job_1" / "files", sys.getrecursionlimit() + 100)
        (data / "job_2" / "files" / "in" / "side").chmod(0)
        (data / "job_2" / "files" / "in").chmod(0)
        (data / "job_3").chmod(0)
        (data / "gone" / "files" / "x").mkdir(parents=True)  # its removal was cut off
        os.utime(data / "gone", (0, 0))
        await folders.sweep(kept("job_4"))
        assert names(data) == ["job_4"]

    as_nobody(partial(trio.run, sweep))


def test_one_that_cannot_be_removed_holds_up_no_other(
    open_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What stays is named in the log, and is found again."""

    async def sweep() -> None:
        folders = Folders(open_folder)
        for each in ("job_1", "job_2", "job_3"):
            await folders.join(each, each)
        others = Path(await folders.to_work_in("job_2")) / "others"
        (others / "file").mkdir(parents=True)
        refused = partial(refusing, others.name)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "rmdir", refused)
            await folders.sweep(kept())
        assert names(open_folder) == ["job_2"]
        assert names(open_folder / "job_2") == ["files", "jobs"]
        await folders.sweep(kept())
        assert names(open_folder) == []

    rmdir = os.rmdir

    def refusing(refused: str, name: str, **place: int) -> None:
        if name == refused:
            raise PermissionError(1, "not permitted", name)
        rmdir(name, **place)

    trio.run(sweep)
    assert [each.message for each in caplog.records] == ["folder of a conversation not removed"]


def test_what_cannot_be_removed_keeps_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All else in its folder goes, whatever the order in which they are found."""
    folder = tmp_path / "top" / "folder"
    folder.mkdir(parents=True)
    for each in "abcd":
        (folder / each).touch()
    first, *_ = os.listdir(folder)  # noqa: PTH208 - in the order in which they are removed
    unlink = os.unlink

    def refusing(name: str, **place: int) -> None:
        if name == first:
            raise PermissionError(1, "not permitted", name)
        unlink(name, **place)

    monkeypatch.setattr(os, "unlink", refusing)
    with pytest.raises(PermissionError):
        remove_tree(tmp_path / "top")
    assert names(folder) == [first]


async def test_a_job_that_joins_during_a_sweep(tmp_path: Path) -> None:
    """A conversation that goes on while the store is asked keeps its folder."""
    folders = Folders(tmp_path)
    await folders.join("job_1", "job_1")

    async def is_kept(_job_id: str) -> bool:
        await folders.join("job_1", "job_2")
        return False

    await folders.sweep(is_kept)
    assert names(tmp_path) == ["job_1"]


async def test_a_conversation_that_begins_during_a_sweep(tmp_path: Path) -> None:
    """A folder that is just being made is not taken for one that nobody needs."""
    folders = Folders(tmp_path)
    (tmp_path / "job_1" / "jobs").mkdir(parents=True)
    await folders.sweep(kept())
    assert names(tmp_path) == ["job_1"]
    assert await folders.join("job_1", "job_1") == []
    assert names(tmp_path / "job_1" / "jobs") == ["job_1"]


async def test_a_temporary_folder_goes_with_its_owner() -> None:
    """Without a data folder, nothing is left behind."""
    folders = Folders(None)
    await folders.sweep(kept())  # of nothing, yet
    await folders.join("job_1", "job_1")
    work = Path(await folders.to_work_in("job_1"))
    assert names(work.parent) == ["files", "jobs"]
    del folders
    gc.collect()
    with pytest.raises(FileNotFoundError):
        names(work)


async def test_jobs_that_come_at_once_share_the_temporary_folder() -> None:
    """Without a data folder, one is made, also for the first jobs of all."""
    folders = Folders(None)
    roots = [f"job_{n}" for n in range(20)]
    async with trio.open_nursery() as nursery:
        for root in roots:
            nursery.start_soon(folders.join, root, root)
    places = [Path(await folders.to_work_in(root)) for root in roots]
    assert len({place.parent.parent for place in places}) == 1
