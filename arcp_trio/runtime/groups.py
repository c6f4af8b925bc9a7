"""Exceptions that nurseries have put into groups."""

from __future__ import annotations

from typing import cast


def unwrapped(error: BaseException) -> BaseException:
    """The one exception inside the groups around it; several stay a group."""
    while isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        if len(group.exceptions) > 1:
            break
        error = group.exceptions[0]
    return error
