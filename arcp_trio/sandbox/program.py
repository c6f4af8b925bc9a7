"""The files that a command consists of: its program, what interprets it, and their libraries."""

from __future__ import annotations

import os
import shlex
import shutil
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from arcp_trio.plainfile import open_plain
from arcp_trio.sandbox.plan import Mount, within

MOST_FILES: Final = 100
"""Files that are looked at, at most."""
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
    home = str(Path.home())
    places = dict.fromkeys(_place(path, home) for path in seen)
    return [
        Mount(path=str(place), is_tree=place.is_dir())
        for place in places
        if not within(home, [str(place)])  # never the home, or what it is in
    ]


def _place(path: Path, home: str) -> Path:
    """Return the folder that a file is installed in, or the file alone."""
    if "node_modules" in path.parts:
        place = Path(*path.parts[: path.parts.index("node_modules") + 1])
    elif path.parent.name in {"bin", "sbin"}:
        place = path.parent.parent
    else:
        place = path
    return path if within(home, [str(place)]) or _is_shared(place, home) else place


def _is_shared(place: Path, home: str) -> bool:
    """Whether a folder has more in it than one installation: ~/.local and ~/.cargo have secrets."""
    hidden = str(place.parent) == home and place.name.startswith(".")
    return hidden and not (place / "pyvenv.cfg").exists()


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
