"""Exceptions inside the groups that nurseries put them in.

Without Trio, so that the help of a command does not load it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast, overload


@overload
def unwrapped(error: Exception) -> Exception: ...
@overload
def unwrapped(error: BaseException) -> BaseException: ...
def unwrapped(error: BaseException) -> BaseException:
    """Return the one exception inside the groups around it; a group of several stays a group."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    return unwrapped(group.exceptions[0]) if len(group.exceptions) == 1 else group


def consists_of(error: BaseException, kind: type[BaseException]) -> bool:
    """Return whether an exception is of a kind, or a group of nothing else."""
    return all(isinstance(leaf, kind) for leaf in leaves(error))


@overload
def leaves(error: Exception) -> Sequence[Exception]: ...
@overload
def leaves(error: BaseException) -> Sequence[BaseException]: ...
def leaves(error: BaseException) -> Sequence[BaseException]:
    """Return all exceptions inside the groups around them, in order."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    group = cast("BaseExceptionGroup[BaseException]", error)
    return [leaf for inner in group.exceptions for leaf in leaves(inner)]
