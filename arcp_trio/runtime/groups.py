"""Exceptions that nurseries have put into groups."""

from __future__ import annotations

from typing import cast


def unwrapped(error: BaseException) -> BaseException:
    """The one exception inside the groups around it; several stay a group."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    return unwrapped(group.exceptions[0]) if len(group.exceptions) == 1 else group
