"""`[ceiling.PRINCIPAL]` in the configuration file: the most that a principal may lease."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, cast

from arcp_trio.authority.ceiling import Ceiling
from arcp_trio.authority.lease import Lease
from arcp_trio.cli.errors import CommandError
from arcp_trio.cli.value_kinds import is_finite
from arcp_trio.wire.errors import InvalidRequest

_EXPIRES_IN: Final = "expires_in"


def read_ceilings(tables: Mapping[str, object], where: str) -> dict[str, Ceiling]:
    """Return the ceiling of each principal.

    Raises:
        CommandError: a table is not a ceiling.
    """
    return {
        principal: _ceiling(table, f"{where}.{principal}]") for principal, table in tables.items()
    }


def _ceiling(table: object, where: str) -> Ceiling:
    if not isinstance(table, dict):
        raise CommandError(f"{where} must be a table of capabilities")
    request = dict(_flat(cast("dict[str, object]", table)))
    expires_in = request.pop(_EXPIRES_IN, None)
    if expires_in is not None and not (is_finite(expires_in) and expires_in > 0):
        raise CommandError(f"{where} {_EXPIRES_IN} must be a number of seconds above 0")
    for capability, items in request.items():
        listed = cast("list[object]", items) if isinstance(items, list) else [None]
        if not all(isinstance(each, str) for each in listed):
            raise CommandError(f"{where} {capability} must be a list of strings")
    try:
        lease = Lease.read(cast("dict[str, list[str]]", request))
    except InvalidRequest as error:
        raise CommandError(f"{where} {error.message}") from error
    return Ceiling(lease=lease, expires_in=expires_in)


def _flat(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield the values with dotted names: without quotes, TOML takes `fs.read` for two tables."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(cast("dict[str, object]", value), f"{prefix}{key}.")
        else:
            yield prefix + key, value
