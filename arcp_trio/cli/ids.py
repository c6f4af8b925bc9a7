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
_OLDER: Final = 100
"""Older jobs after which no other is looked at: listings go by time, as ids do, but not exactly."""


async def whole_job_id(client: Client, given: str) -> str:
    """Return the id of the job that is meant, as `meant_id` does, of those that may be observed."""
    if _WHOLE.fullmatch(given) or not _is_enough(given) or "list_jobs" not in client.features:
        return given
    found: list[str] = []
    older = 0
    async for info in client.jobs():
        if info.id == given:
            return given
        if _is_meant(info.id, given):
            found.append(info.id)
        if not _WHOLE.fullmatch(info.id):
            continue  # another vendor's: its order is not known, nor whether one begins another
        older = older + 1 if _bare(info.id) < _bare(given).upper() else 0
        if len(found) > 1 or older == _OLDER:
            break
    return meant_id(given, found)


def meant_id(given: str, known: Iterable[str]) -> str:
    """Return the only known id that begins with what is given, with or without its first word.

    If no id begins so, it is what is given.

    Raises:
        CommandError: several do.
    """
    ids = [*known]
    if given in ids or not _is_enough(given):
        return given
    found = [each for each in ids if _is_meant(each, given)]
    if len(found) > 1:
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise CommandError(
            f"{given} is the beginning of several ids: {', '.join(found[:_SHOWN])}{more}",
            exit_code=ExitCode.FAILED,
        )
    return found[0] if found else given


def _is_meant(whole: str, given: str) -> bool:
    return whole.startswith(given) or _bare(whole).startswith(given.upper())


def _is_enough(given: str) -> bool:
    return len(_bare(given)) >= _FEWEST


def _bare(given: str) -> str:
    """Return an id, or its beginning, without its first word."""
    return given.partition("_")[2] if "_" in given else given
