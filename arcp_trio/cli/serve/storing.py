"""The store of `serve`, from its options."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path
from typing import Literal, cast

from arcp_trio.cli.data_folder import store_path
from arcp_trio.cli.defaults import DATA
from arcp_trio.cli.serve.options import ServeOptions
from arcp_trio.store.interface import Store
from arcp_trio.store.memory import MemoryStore
from arcp_trio.store.sqlite import SqliteStore

log = logging.getLogger(__name__)


def make_store(options: ServeOptions) -> Store:
    """Return the store that the options ask for; it is not open yet."""
    if options.memory:
        return MemoryStore()
    close_to_others(options.data)
    return SqliteStore(
        store_path(options.data),
        synchronous=cast('Literal["FULL", "NORMAL", "OFF"]', options.synchronous.upper()),
    )


def close_to_others(folder: str) -> None:
    """Take all rights of other users from the default folder, in which nothing else belongs.

    The mode of any other folder is the decision of its owner.
    """
    path = Path(folder)
    if folder != DATA or not path.is_dir():
        return
    facts = path.stat()
    if facts.st_uid == os.geteuid() and stat.S_IMODE(facts.st_mode) & 0o077:
        path.chmod(0o700)
        log.warning("closed to other users", extra={"path": str(path)})
