"""The folders of conversations stay for as long as one of their jobs is kept."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from arcp_trio.proxies.acp.folders import Folders


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
