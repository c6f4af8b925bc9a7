"""The folders that conversations have of their own, for as long as one of their jobs is kept."""

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
"""A conversation's folder has its files in the one, and in the other a file named after each of its
jobs."""


class Folders:
    """A folder for each conversation, by the id of the job that began it."""

    def __init__(self, data: Path | None) -> None:
        """Keep the folders in one; without it, in a temporary one that goes with the process."""
        self._data = data

    async def join(self, root: str, job_id: str) -> str:
        """Return the folder of a conversation that a job takes part in; make it for the first.

        Raises:
            OSError: it cannot be made.
        """
        return str(await trio.to_thread.run_sync(self._join, root, job_id))

    def _join(self, root: str, job_id: str) -> Path:
        if self._data is None:
            self._data = Path(tempfile.mkdtemp(prefix="arcp-conversations-"))
            weakref.finalize(self, shutil.rmtree, self._data, ignore_errors=True)
        self._data.mkdir(mode=0o700, parents=True, exist_ok=True)
        files, jobs = self._data / root / _FILES, self._data / root / _JOBS
        for path in (files.parent, jobs, files):
            path.mkdir(mode=0o700, exist_ok=True)
        (jobs / job_id).touch()
        return files.resolve()

    async def sweep(self, is_kept: IsKept) -> None:
        """Remove the folders of conversations none of whose jobs is kept."""
        for folder, jobs in await trio.to_thread.run_sync(self._found):
            for job_id in jobs:
                if await is_kept(job_id):
                    break
            else:
                await trio.to_thread.run_sync(shutil.rmtree, folder, True)  # noqa: FBT003

    def _found(self) -> list[tuple[Path, list[str]]]:
        """Return the folders, each with its jobs, newest first: it is the last to go."""
        if self._data is None or not self._data.is_dir():
            return []
        return [
            (folder, sorted((path.name for path in (folder / _JOBS).iterdir()), reverse=True))
            for folder in self._data.iterdir()
            if (folder / _JOBS).is_dir()
        ]
