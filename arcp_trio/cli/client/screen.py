"""Standard error for people: lines that stay, below them one that changes, perhaps a question."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

import trio

from arcp_trio.cli.client.output import Output

ERASE: Final = "\r\x1b[K"
"""Go to the line's beginning and clear it."""
_STDIN: Final = 0
_LINE_BYTES: Final = 1024


class Screen:
    """Where the notices of one command go."""

    def __init__(self, err: Output, *, live: bool) -> None:
        self.live = live
        """Whether there is a line that changes."""
        self._err = err
        self._changing = ""
        self._asking = False  # there is a question without an answer behind it
        self._turn = trio.Lock()  # a question is not written over

    @property
    def colours(self) -> bool:
        """Whether it has them."""
        return self._err.colours

    @property
    def columns(self) -> int:
        """How wide it is."""
        return self._err.columns

    @property
    def can_ask(self) -> bool:
        """Whether there is somebody to read a question and to type an answer."""
        return self._err.is_terminal and os.isatty(_STDIN)

    async def add(self, lines: Sequence[str], changing: str | None = None) -> None:
        """Write lines that stay, and below them what changes: this, or else what was there."""
        text = "".join(f"{line}\n" for line in lines)
        async with self._turn:
            before = self._changing
            if self.live and changing is not None:
                self._changing = changing
            await self._err.write(f"{ERASE if before else ''}{text}{self._changing}")

    async def change(self, line: str) -> None:
        """Put this in place of the line that changes."""
        if self.live and line != self._changing:
            async with self._turn:
                self._changing = line
                await self._err.write(ERASE + line)

    async def ask(self, question: str) -> str:
        """Ask, and return the line that was typed."""
        async with self._turn:
            await self._err.write((ERASE if self._err.obeys else "\n") + question)
            self._changing, self._asking = "", True
            # No thread: one that waits for the keyboard could not be stopped.
            await trio.lowlevel.wait_readable(_STDIN)
            answer = os.read(_STDIN, _LINE_BYTES).decode(errors="replace")
            if answer.endswith("\n"):
                self._asking = False
            self.clear()
            return answer.strip()

    def make_way(self, _: object) -> bool:
        """Let a line of the log stand by itself: a filter of records, which lets all through."""
        self.clear()
        return True

    def clear(self) -> None:
        """Leave the cursor where another line can begin."""
        text = "\n" if self._asking else ERASE if self._changing else ""
        self._changing, self._asking = "", False
        os.write(self._err.fd, text.encode())
