"""Starting tasks that inherit nothing."""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVarTuple

import trio

Ts = TypeVarTuple("Ts")


def start_clean(
    nursery: trio.Nursery,
    function: Callable[[*Ts], Awaitable[object]],
    *args: *Ts,
    name: str,
) -> None:
    """Start a task in a fresh context.

    What lives long must not carry its starter's variables and trace span.
    """
    start = partial(nursery.start_soon, function, *args, name=name)
    contextvars.Context().run(start)
