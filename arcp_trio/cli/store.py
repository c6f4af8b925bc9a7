"""`arcp-trio store`: the schema of a store in PostgreSQL, made, checked and migrated."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager

from arcp_trio.cli import defaults
from arcp_trio.cli.client.columns import in_columns
from arcp_trio.cli.database_url import has_password
from arcp_trio.cli.errors import PROGRAM, CommandError, ExitCode
from arcp_trio.cli.store_options import ACTIONS, DatabaseOptions, StoreOptions
from arcp_trio.store.errors import StoreError


def run(options: StoreOptions) -> int:
    """Do what is asked, print what was done or found, and return the exit code."""
    if options.action not in ACTIONS:
        raise CommandError(f"{options.action} is not an action: {', '.join(ACTIONS)}")
    if options.role is not None and options.action != "init":
        raise CommandError("--role belongs to init")
    with administered(options) as dsn:
        from arcp_trio.store.postgres import administering  # noqa: PLC0415 - needs the extra

        match options.action:
            case "init":
                print(administering.make_schema(dsn, options.role))
            case "migrate":
                print(administering.migrate_schema(dsn))
            case _:
                findings = administering.check_database(dsn)
                rows = [
                    ("ok" if each.good else "WRONG", each.about, each.told) for each in findings
                ]
                print(in_columns([("", "", ""), *rows], None).lstrip("\n"), end="")
                return ExitCode.SUCCESS if all(each.good for each in findings) else ExitCode.FAILED
    return ExitCode.SUCCESS


@contextmanager
def administered(options: DatabaseOptions) -> Generator[str]:
    """Provide the database's address, and turn what is wrong with it into one line."""
    if options.store is not None and has_password(options.store):
        said = "the list of processes shows the password: give the address in "
        print(f"{PROGRAM}: {said}{defaults.STORE_VARIABLE}", file=sys.stderr, flush=True)
    dsn = options.store or os.environ.get(defaults.STORE_VARIABLE)
    if not dsn:
        raise CommandError(f"no database: give --store URL, or set {defaults.STORE_VARIABLE}")
    try:
        yield dsn
    except ImportError as error:
        raise CommandError(str(error)) from error
    except StoreError as error:
        raise CommandError(str(error), exit_code=ExitCode.FAILED) from error
