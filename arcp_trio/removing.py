"""Removing folders that programs have filled: however deep they are, and whatever their modes."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from arcp_trio.plainfile import open_kept
from arcp_trio.wire.ids import new_id

_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def remove_tree(path: Path) -> None:
    """Remove a folder with all that is in it; no link is followed.

    This takes no recursion and few descriptors: what is nested is first moved up to the folder.

    Raises:
        OSError: something in it cannot be removed; all else in it is.
    """
    parent = os.open(path.parent, _OPEN)
    try:
        folder = _open_folder(parent, path.name)
        try:
            failure = _remove_all_in(folder)
        finally:
            os.close(folder)
        if failure is not None:
            raise failure
        os.rmdir(path.name, dir_fd=parent)
    finally:
        os.close(parent)


def make_accessible(path: Path) -> None:
    """Let the owner of a folder, which has to be this process's user, list and change it.

    Raises:
        OSError: it is something else, or of another user.
    """
    parent = os.open(path.parent, _OPEN)
    try:
        os.close(_open_folder(parent, path.name))
    finally:
        os.close(parent)


def _remove_all_in(folder: int) -> OSError | None:
    failure: OSError | None = None
    stuck: set[str] = set()
    while found := [each for each in _entries(folder) if each[0] not in stuck]:
        for name, is_folder in found:
            try:
                if is_folder:
                    _empty(folder, name)
                    os.rmdir(name, dir_fd=folder)
                else:
                    os.unlink(name, dir_fd=folder)
            except OSError as error:
                failure = failure or error
                stuck.add(name)
    return failure


def _empty(top: int, name: str) -> None:
    """Remove the files of a folder, and move the folders in it up to the top.

    Raises:
        OSError: some of them cannot be; all others are.
    """
    failure: OSError | None = None
    folder = _open_folder(top, name)
    try:
        for inner, is_folder in _entries(folder):
            try:
                if is_folder:
                    os.close(_open_folder(folder, inner))  # to be moved, it has to be writable
                    os.rename(inner, new_id("moved_"), src_dir_fd=folder, dst_dir_fd=top)
                else:
                    os.unlink(inner, dir_fd=folder)
            except OSError as error:
                failure = failure or error
    finally:
        os.close(folder)
    if failure is not None:
        raise failure


def _entries(folder: int) -> list[tuple[str, bool]]:
    with os.scandir(folder) as found:
        return [(each.name, each.is_dir(follow_symlinks=False)) for each in found]


def _open_folder(parent: int, name: str) -> int:
    place = open_kept(name, parent)
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            raise NotADirectoryError(f"{name} is not a folder")
        with suppress(OSError):  # it may do as it is
            os.chmod(f"/proc/self/fd/{place}", 0o700)  # noqa: PTH101 - a descriptor, and no path
        return os.open(".", _OPEN, dir_fd=place)
    finally:
        os.close(place)
