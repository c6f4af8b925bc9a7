"""The files that a command consists of: its program, what interprets it, and their libraries."""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
from collections import deque
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

from arcp_trio.plainfile import open_plain
from arcp_trio.sandbox.plan import Mount, within

MOST_FILES: Final = 100
"""Files that are looked at, at most."""
_VENV: Final = ("pyvenv.cfg",)
_INSTALLED: Final = (*_VENV, "lib", "libexec", "node_modules")
"""What is beside the `bin` of an installation, one of them at least."""
_FIRST_LINE: Final = 512
"""Bytes of the first line of a script; kernels read less."""


def program_mounts(command: Sequence[str], search: str | None = None) -> list[Mount]:
    """Return what has to be seen for a command to run.

    These are its program and the absolute paths in it, what they are links to, the interpreters
    that scripts name, and with each of them the folder that it is installed in. They are looked for
    as this process sees them, so the command has to be one that its operator trusts.

    Args:
        command: a program and its arguments.
        search: the folders in which programs are looked for, as in PATH.
    """
    program = shutil.which(command[0], path=search)
    waiting = deque(filter(None, [program, *(word for word in command[1:] if word[:1] == "/")]))
    seen: dict[Path, None] = {}
    while waiting and len(seen) < MOST_FILES:
        path = Path(os.path.abspath(waiting.popleft()))  # noqa: PTH100 - links are not followed
        if path not in seen and os.path.lexists(path):
            seen[path] = None
            waiting += [*_targets(path), *_interpreters(path, search)]
    homes = _homes()
    places = dict.fromkeys(_place(path, homes) for path in seen)
    return [
        Mount(path=str(place), is_tree=place.is_dir())
        for place in places
        if not _has_home(place, homes)
    ]


def _homes() -> AbstractSet[str]:
    """Return the homes of all users of this machine, and of this process."""
    named = [str(Path.home()), *(user.pw_dir for user in pwd.getpwall())]
    return {*named, *map(os.path.realpath, named)}


def _place(path: Path, homes: AbstractSet[str]) -> Path:
    """Return the folder that a file is installed in, or the file alone."""
    if "node_modules" in path.parts:
        place = Path(*path.parts[: path.parts.index("node_modules") + 1])
    elif path.parent.name in {"bin", "sbin"} and _is_installation(path.parent.parent, homes):
        place = path.parent.parent
    else:
        place = path
    return path if _has_home(place, homes) else place


def _is_installation(folder: Path, homes: AbstractSet[str]) -> bool:
    """Whether a folder is one installation: ~/.local and ~/.cargo have secrets in them, too."""
    hidden = str(folder.parent) in homes and folder.name.startswith(".")
    signs = _VENV if hidden else _INSTALLED
    # Without an exception for what may not be read.
    return any(os.path.exists(folder / name) for name in signs)  # noqa: PTH110


def _has_home(place: Path, homes: AbstractSet[str]) -> bool:
    return any(within(home, [str(place)]) for home in homes)


def _targets(path: Path) -> Iterator[str]:
    """Yield where a link leads, and the path without links."""
    if path.is_symlink():
        yield str(path.parent / path.readlink())
    yield os.path.realpath(path)


def _interpreters(path: Path, search: str | None) -> Iterator[str]:
    """Yield the programs that the first line of a script names."""
    try:
        with open_plain(path) as file:
            line = file.readline(_FIRST_LINE)
        words = shlex.split(os.fsdecode(line[2:])) if line.startswith(b"#!") else []
    except (OSError, ValueError):
        return
    for word in words:
        found = word if word.startswith("/") else shutil.which(word, path=search)
        if found is not None:
            yield found
