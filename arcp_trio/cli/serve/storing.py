"""The store of `serve`, from its options."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, cast

from arcp_trio.cli.data_folder import folder_above, store_path
from arcp_trio.cli.database_url import has_password, is_database_url
from arcp_trio.cli.defaults import DATA, STORE_VARIABLE
from arcp_trio.cli.errors import CommandError
from arcp_trio.cli.serve.options import ServeOptions
from arcp_trio.store.errors import StoreError
from arcp_trio.store.interface import Store
from arcp_trio.store.memory import MemoryStore
from arcp_trio.store.sqlite import SqliteStore

log = logging.getLogger(__name__)


def make_store(options: ServeOptions, given: Mapping[str, object]) -> Store:
    """Return the store that the options ask for; it is not open yet.

    Args:
        options: all options.
        given: those of the command line.
    """
    if options.memory:
        return MemoryStore()
    if options.store is not None:
        if given.get("store") and has_password(options.store):
            facts = {"keep_in": STORE_VARIABLE}
            log.warning("password is seen in the list of processes", extra=facts)
        return _shared_store(options.store, options)
    close_to_others(options.data)
    _say_if_another_is_above(options.data)
    return SqliteStore(
        store_path(options.data),
        synchronous=cast('Literal["FULL", "NORMAL", "OFF"]', options.synchronous.upper()),
    )


def _shared_store(url: str, options: ServeOptions) -> Store:
    if not is_database_url(url):
        raise CommandError("--store takes a URL, postgresql://role@host/name; a folder is --data")
    try:
        from arcp_trio.store.postgres import PostgresStore  # noqa: PLC0415 - needs the extra

        return PostgresStore(url, node=options.node, synchronous=options.synchronous == "full")
    except ImportError as error:
        raise CommandError(str(error)) from error
    except ValueError as error:
        raise CommandError(f"--node: {error}") from error
    except StoreError as error:
        raise CommandError(f"--store: {error}") from error


def _say_if_another_is_above(folder: str) -> None:
    """Say that a folder is about to be made, although the commands used another one until now."""
    if folder == DATA and not Path(folder).exists() and (above := folder_above()) is not None:
        facts = {"path": str(Path(folder).absolute()), "above": str(above)}
        log.warning("makes a data folder of its own; --data takes the one above", extra=facts)


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
