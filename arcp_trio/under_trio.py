"""Says what is wrong where a program calls the package under asyncio, or outside of any loop."""

from __future__ import annotations

import trio


def need_trio(what: str) -> None:
    """Return if the caller is a task of Trio's.

    Raises:
        RuntimeError: says what to do. Without it, Trio's own error is about its inside.
    """
    if not trio.lowlevel.in_trio_task():
        raise RuntimeError(
            f"{what} runs under Trio: start your main function with trio.run(). In an asyncio"
            " program, run Trio beside asyncio, as examples/in_asyncio.py does"
        )
