"""Paths that no lease opens, and the files at them, whatever these are called by now."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final


class Reserved:
    """What no lease opens: folders with all that is below them, and files under all their names."""

    def __init__(self, paths: Iterable[str]) -> None:
        named = [os.path.abspath(path) for path in paths]  # noqa: PTH100 - links stay as they are
        self.paths: Final[Sequence[str]] = [*dict.fromkeys([*named, *map(os.path.realpath, named)])]
        """As they are named, and where they led at first."""
        self._seen: dict[tuple[str, int, int], tuple[int, int]] = {}
        """Of each file that was at a path: what changes if another file gets its number."""
        self._look()

    def holds(self, found: os.stat_result) -> bool:
        """Return whether a file is at one of the paths, or was and has been renamed since."""
        now = self._look()
        return _number(found) in now or self._was(found)

    def names(self) -> list[str]:
        """Return the paths, where they lead now, and what their files are called beside that.

        A file that was moved to another folder is not found.
        """
        now = self._look()
        folders = {os.path.dirname(path) for path, _, _ in list(self._seen)}  # noqa: PTH120
        others = [
            entry.path
            for folder in folders
            for entry in _entries(folder)
            if (found := _stat(entry.path)) is not None
            and (_number(found) in now or self._was(found))
        ]
        return [*dict.fromkeys([*self.paths, *map(os.path.realpath, self.paths), *others])]

    def _look(self) -> set[tuple[int, int]]:
        """Return the numbers of the files that are at the paths now."""
        now: set[tuple[int, int]] = set()
        for path in self.paths:
            found = _stat(path)
            if found is not None and not stat.S_ISDIR(found.st_mode):
                now.add(_number(found))
                self._seen[path, *_number(found)] = (found.st_size, found.st_mtime_ns)
        return now

    def _was(self, found: os.stat_result) -> bool:
        facts = (found.st_size, found.st_mtime_ns)
        return any(self._seen.get((path, *_number(found))) == facts for path in self.paths)


def _number(found: os.stat_result) -> tuple[int, int]:
    return (found.st_dev, found.st_ino)


def _stat(path: str) -> os.stat_result | None:
    with suppress(OSError):
        return Path(path).stat()
    return None


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(folder) as entries:
        yield from entries
