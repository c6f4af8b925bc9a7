"""What conversations have on disk: their jobs, and for some a folder of their own to work in."""

from __future__ import annotations

import logging
import tempfile
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from arcp_trio.removing import make_accessible, remove_tree

if TYPE_CHECKING:
    from arcp_trio.runtime.job.leftovers import IsKept

log = logging.getLogger(__name__)

MAKING_SECONDS: Final = 3600.0
"""How old a folder without jobs is, at least, that is not just being made."""

_FILES: Final = "files"
_JOBS: Final = "jobs"
"""In the folder of a conversation: the one to work in, and one with a file named after each job."""


def temporary_folder(owner: object, purpose: str) -> Path:
    """Make a temporary folder that goes with its owner, or with the process."""
    path = Path(tempfile.mkdtemp(prefix=f"arcp-{purpose}-"))
    weakref.finalize(owner, _remove_temporary, path)
    return path


def _remove_temporary(path: Path) -> None:
    with suppress(OSError):
        remove_tree(path)


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
        """Remove the folders of conversations of which no job is kept, each by itself."""
        for folder in await trio.to_thread.run_sync(self._all):
            try:
                await _sweep(folder, is_kept)
            except OSError as error:
                facts = {"folder": str(folder), "error": str(error)}
                log.warning("folder of a conversation not removed", extra=facts)

    def _all(self) -> list[Path]:
        if self._data is None or not self._data.is_dir():
            return []
        return list(self._data.iterdir())


async def _sweep(folder: Path, is_kept: IsKept) -> None:
    jobs = await trio.to_thread.run_sync(_known_jobs, folder)
    if jobs is None:
        return
    for job_id in jobs:
        if await is_kept(job_id):
            return
    await trio.to_thread.run_sync(_remove, folder, jobs)


def _known_jobs(folder: Path) -> list[str] | None:
    """Return a conversation's jobs; None if its folder is just being made."""
    make_accessible(folder)
    with suppress(FileNotFoundError):
        make_accessible(folder / _JOBS)
        if jobs := _jobs_of(folder):
            return jobs
    # Without jobs: it is being made, or was cut off at that, or at its removal.
    return None if time.time() - folder.stat().st_mtime < MAKING_SECONDS else []


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
    with suppress(FileNotFoundError):
        if _jobs_of(folder) != jobs:
            return  # one has come meanwhile
    with suppress(FileNotFoundError):
        remove_tree(folder / _FILES)
    remove_tree(folder)  # the jobs last, by which it is found again
