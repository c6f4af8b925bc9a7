"""The homes of contained agents, one for each agent and principal: used, listed and removed.

What an agent keeps there are transcripts of its principal's conversations, settings, and caches.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final

import attrs
import trio

from arcp_trio.proxies.acp.folders import temporary_folder
from arcp_trio.removing import remove_tree
from arcp_trio.wire.ids import new_id

log = logging.getLogger(__name__)

_USES: Final = ".uses"
"""The folder with a file for each home: it names the principal, is locked while the home is used,
and is as old as its last use."""
_REMOVED: Final = ".removed"
"""The folder with the homes that are being removed."""


@attrs.frozen
class Home:
    """The home of an agent for a principal."""

    path: Path
    agent: str
    principal: str
    """Empty if it is not known."""
    used_at: float
    """When its last job has begun or ended."""


class Homes:
    """The homes of one data folder."""

    def __init__(self, data: Path | None) -> None:
        """Keep them in a folder; without it, in a temporary one that goes with the process."""
        self._data = data

    @asynccontextmanager
    async def using(self, agent: str, principal: str) -> AsyncGenerator[str]:
        """Provide a home for the block, during which it is not removed.

        Raises:
            OSError: it cannot be made.
        """
        if self._data is None:
            self._data = temporary_folder(self, "homes")
        data = self._data.resolve()
        home = data / agent / sha256(principal.encode()).hexdigest()[:32]
        use = await trio.to_thread.run_sync(partial(_take, data, home, principal))
        try:
            yield str(home)
        finally:
            with suppress(OSError):
                os.utime(use)
            os.close(use)

    async def sweep(self, seconds: float) -> None:
        """Remove the homes that were not used for some seconds, each by itself."""
        if self._data is not None:
            await trio.to_thread.run_sync(_sweep, self._data, time.time() - seconds)


def homes_in(data: Path) -> list[Home]:
    """Return the homes in a folder, those of each agent together."""
    found: list[Home] = []
    for folder in sorted(data.iterdir()) if data.is_dir() else ():
        if not folder.name.startswith("."):
            found += [_known(data, path) for path in sorted(folder.iterdir())]
    return found


def remove_home(data: Path, home: Home, unused_since: float | None = None) -> bool:
    """Remove a home; return False if it is being used, or was since some time.

    Raises:
        OSError: something in it cannot be removed.
    """
    with _locked(data, home.path, fcntl.LOCK_EX | fcntl.LOCK_NB) as use:
        if use is None or (unused_since is not None and os.fstat(use).st_mtime > unused_since):
            return False
        removed = data / _REMOVED / new_id("home_")
        removed.parent.mkdir(mode=0o700, exist_ok=True)
        home.path.rename(removed)
        os.ftruncate(use, 0)  # whose it was
    remove_tree(removed)
    return True


def _sweep(data: Path, unused_since: float) -> None:
    left = data / _REMOVED
    with suppress(FileNotFoundError):
        for path in left.iterdir():
            _minding(path, partial(remove_tree, path))
    for home in homes_in(data):
        if home.used_at < unused_since:
            _minding(home.path, partial(remove_home, data, home, unused_since))


def _minding(path: Path, remove: Callable[[], object]) -> None:
    try:
        remove()
    except OSError as error:
        log.warning("home not removed", extra={"home": str(path), "error": str(error)})


def _take(data: Path, home: Path, principal: str) -> int:
    with _locked(data, home, fcntl.LOCK_SH) as use:
        assert use is not None, "it was waited for"
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.ftruncate(use, 0)
        os.pwrite(use, principal.encode(), 0)
        return os.dup(use)  # with which the lock lasts


@contextmanager
def _locked(data: Path, home: Path, how: int) -> Generator[int | None]:
    """Open and lock the file of a home's uses for the block; None if it cannot be locked now."""
    path = _use_of(data, home)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    use = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(use, how)
        except BlockingIOError:
            yield None
        else:
            yield use
    finally:
        os.close(use)


def _use_of(data: Path, home: Path) -> Path:
    return data / _USES / home.parent.name / home.name


def _known(data: Path, path: Path) -> Home:
    use = _use_of(data, path)
    try:
        principal, used_at = use.read_text(), use.stat().st_mtime
    except OSError:
        principal, used_at = "", path.lstat().st_mtime
    return Home(path, path.parent.name, principal, used_at)
