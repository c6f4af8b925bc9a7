"""Ids as people type them: whole, or the beginning of one, as git takes it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from arcp_trio.cli.errors import CommandError, ExitCode

if TYPE_CHECKING:
    from arcp_trio import Client

_WHOLE: Final = re.compile("[a-z]+_[0-9A-Z]{26}")
_FEWEST: Final = 4
"""Characters of a beginning; with fewer, a slip of the finger would find something."""
_SHOWN: Final = 5


async def whole_job_id(client: Client, given: str) -> str:
    """Return the id of the job that is meant, as `meant_id` does, of those that may be observed."""
    if _WHOLE.fullmatch(given) or "list_jobs" not in client.features:
        return given
    return meant_id(given, [info.id async for info in client.jobs()])


def meant_id(given: str, known: Iterable[str]) -> str:
    """Return the only known id that begins with what is given, with or without its first word.

    If no id begins so, it is what is given.

    Raises:
        CommandError: several do.
    """
    ids = [*known]
    bare = given.partition("_")[2] if "_" in given else given
    if given in ids or len(bare) < _FEWEST:
        return given
    found = [each for each in ids if each.startswith(given) or _is_begun(each, given.upper())]
    if len(found) > 1:
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise CommandError(
            f"{given} is the beginning of several ids: {', '.join(found[:_SHOWN])}{more}",
            exit_code=ExitCode.FAILED,
        )
    return found[0] if found else given


def _is_begun(whole: str, beginning: str) -> bool:
    return whole.partition("_")[2].startswith(beginning)
