"""The options of the commands that administer what a runtime keeps."""

from __future__ import annotations

from typing import Final

import attrs

from arcp_trio.cli import defaults
from arcp_trio.cli.options import argument, option, switch
from arcp_trio.cli.value_kinds import TEXT

ACTIONS: Final = ("init", "check", "migrate")


@attrs.frozen(kw_only=True)
class DatabaseOptions:
    """Which database."""

    store: str | None = option(
        TEXT,
        "URL",
        f"database, such as postgresql://role@host/name (default: {defaults.STORE_VARIABLE} in the"
        " environment)",
        default=None,
        secret=True,
    )


@attrs.frozen(kw_only=True)
class StoreOptions(DatabaseOptions):
    """What `store` can be asked for."""

    action: str = argument("ACTION", f"what to do: {', '.join(ACTIONS)}")
    role: str | None = option(
        TEXT, "ROLE", "role of the nodes: init lets it use the schema", default=None
    )


@attrs.frozen(kw_only=True)
class NodesOptions(DatabaseOptions):
    """What `nodes` can be asked for."""

    all: bool = switch("also nodes that are gone, for a day")
    json: bool = switch("print one JSON object per line, for programs")


@attrs.frozen(kw_only=True)
class HomesOptions:
    """What `homes` can be asked for."""

    data: str | None = option(
        TEXT, "DIR", "folder of the runtime", default=None, stated=defaults.NEAREST
    )
    remove: str | None = option(
        TEXT, "PRINCIPAL", "remove the homes of a principal, with what is in them", default=None
    )
    json: bool = switch("print one JSON object per line, for programs")
