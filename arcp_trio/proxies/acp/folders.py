"""What conversations have on disk: their jobs, and for some a folder of their own to work in."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from arcp_trio.runtime.job.leftovers import IsKept

_FILES: Final = "files"
_JOBS: Final = "jobs"
"""In the folder of a conversation: the one to work in, and one with a file named after each job."""


def temporary_folder(owner: object, purpose: str) -> Path:
    """Make a temporary folder that goes with its owner, or with the process."""
    path = Path(tempfile.mkdtemp(prefix=f"arcp-{purpose}-"))
    weakref.finalize(owner, shutil.rmtree, path, ignore_errors=True)
    return path


class Folders:
    """The folders of conversations, by the id of the job that began each.

    They stay for as long as a job of the conversation is kept.
    """

    def __init__(self, data: Path | None) -> None:
        """Keep them in a folder; without it, in a temporary one that goes with the process."""
        self._data = data

    async def join(self, root: str, job_id: str) -> list[str]:
        """Note that a job takes part in a conversation; return the jobs before it, newest first.

        Raises:
            OSError: it cannot be noted.
        """
        if self._data is None:  # not in a thread: jobs that come at once would make one each
            self._data = temporary_folder(self, "conversations")
        return await trio.to_thread.run_sync(_join, self._data, root, job_id)

    async def to_work_in(self, root: str) -> str:
        """Return the folder in which a conversation works that was given no other; make it first.

        Raises:
            OSError: it cannot be made.
        """
        assert self._data is not None, "a job has joined"
        path = self._data / root / _FILES
        await trio.Path(path).mkdir(mode=0o700, exist_ok=True)
        return str(await trio.Path(path).resolve())

    async def sweep(self, is_kept: IsKept) -> None:
        """Remove the folders of conversations of which no job is kept."""
        for folder, jobs in await trio.to_thread.run_sync(self._found):
            for job_id in jobs:
                if await is_kept(job_id):
                    break
            else:
                await trio.to_thread.run_sync(_remove, folder, jobs)

    def _found(self) -> list[tuple[Path, list[str]]]:
        if self._data is None or not self._data.is_dir():
            return []
        folders = [path for path in self._data.iterdir() if (path / _JOBS).is_dir()]
        found = [(folder, _jobs_of(folder)) for folder in folders]
        return [(folder, jobs) for folder, jobs in found if jobs]  # else one is being made


def _join(data: Path, root: str, job_id: str) -> list[str]:
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = data / root
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / _JOBS).mkdir(mode=0o700, exist_ok=True)
    before = _jobs_of(folder)
    (folder / _JOBS / job_id).touch()
    return before


def _jobs_of(folder: Path) -> list[str]:
    """Return a conversation's jobs, newest first, as their ids increase."""
    return sorted((path.name for path in (folder / _JOBS).iterdir()), reverse=True)


def _remove(folder: Path, jobs: list[str]) -> None:
    if _jobs_of(folder) == jobs:  # else one has come meanwhile
        shutil.rmtree(folder / _FILES, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)  # the jobs last, by which it is found again
