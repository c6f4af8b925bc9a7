"""A key set in a file, which may be replaced while the runtime is running."""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path

from arcp_trio.authenticators.keys import MOST_BYTES, Key, KeySet, parse_key_set
from arcp_trio.plainfile import NotPlain, open_plain

log = logging.getLogger(__name__)


class KeyFile:
    """Reads the file again when it has changed; a file that cannot be used changes no key."""

    def __init__(self, path: Path, algorithms: Collection[str]) -> None:
        """Read the file.

        Raises:
            OSError: the file cannot be read.
            ValueError: the file is not a key set.
        """
        self._path = path
        self._algorithms = algorithms
        self._stamp = self._look()
        self._keys = self._read()
        self._complained_of: tuple[int, ...] | None = self._stamp

    async def find(self, algorithm: str, key_id: str | None) -> Key | None:
        """Return the key that a token names, from the file as it is now."""
        # Without a thread: a stat takes microseconds, and reading is rare and bounded.
        if (stamp := self._look()) != self._stamp:
            self._read_again(stamp)
        return self._keys.find(algorithm, key_id)

    def _look(self) -> tuple[int, ...] | None:
        """Return facts that change whenever the file or its content does; None without a file."""
        try:
            facts = self._path.stat()
        except OSError:
            return None
        return (facts.st_mtime_ns, facts.st_ctime_ns, facts.st_size, facts.st_ino)

    def _read_again(self, stamp: tuple[int, ...] | None) -> None:
        try:
            self._keys = self._read()
        except (OSError, ValueError) as error:
            if stamp != self._complained_of:
                facts = {"path": str(self._path), "error": str(error)}
                log.error("keys not reloaded", extra=facts)  # noqa: TRY400
            self._complained_of = stamp
            if isinstance(error, OSError):
                return  # this may pass without a change of the file, so the next token tries again
        else:
            log.info("keys reloaded", extra={"path": str(self._path)})
        self._stamp = stamp

    def _read(self) -> KeySet:
        try:
            file = open_plain(self._path)
        except NotPlain as error:
            raise ValueError("not a plain file") from error
        with file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ValueError(f"larger than {MOST_BYTES} bytes")
        return parse_key_set(content, self._algorithms)
