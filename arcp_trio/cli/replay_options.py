"""The options of `replay`."""

from __future__ import annotations

import attrs

from arcp_trio.cli import defaults
from arcp_trio.cli.options import option, optional_argument, switch
from arcp_trio.cli.value_kinds import NUMBER, TEXT


@attrs.frozen(kw_only=True)
class ReplayOptions:
    """What `replay` can be asked for."""

    session_id: str | None = optional_argument(
        "SESSION_ID", "session whose frames to print, or the beginning of its id"
    )
    data: str | None = option(
        TEXT, "DIR", "folder of the store", default=None, stated=defaults.NEAREST
    )
    store: str | None = option(
        TEXT,
        "URL",
        "database with the store of several nodes, instead of a folder (default:"
        f" {defaults.STORE_VARIABLE} in the environment, without --data)",
        default=None,
        secret=True,
    )
    after_seq: int | None = option(NUMBER, "N", "begin after this number", default=None, stated=0)
    memos: bool = switch("print what the session's jobs remember, after its frames")
