"""Standard error for people: lines that stay, one live line below them, and perhaps a question."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Final

import trio

from arcp_trio.cli.client.output import Output
from arcp_trio.cli.keyboard import drop_typed, keyboard_is_there, typed_line
from arcp_trio.cli.text import fitted, wrapped

ERASE: Final = "\r\x1b[K"
"""Moves the cursor to the beginning of the line, and clears the line."""


class Screen:
    """Where the notices of one command are shown."""

    def __init__(self, err: Output, *, live: bool) -> None:
        self.live = live
        """Whether there is a live line: the last one, which is drawn again as it changes."""
        self._err = err
        self._line = ""
        """The live line as it is drawn; empty if it is not."""
        self._prompt = ""
        """What stands in place of the live line while a person may type an answer."""
        self._prompted = trio.CancelScope()
        """The scope of the wait for that answer."""
        self._asking = False  # the cursor stands after a question without an answer
        self._open = False  # the cursor stands after text of the result, not on a new line
        self._turn = trio.Lock()  # nothing is written over a question that holds all up
        self._keyboard = trio.Lock()  # one question is answered at a time

    @property
    def colours(self) -> bool:
        """Whether text may be coloured."""
        return self._err.colours

    @property
    def columns(self) -> int:
        """The width."""
        return self._err.columns

    def shorten(self, line: str) -> str:
        """Return as much of a line as fits into one line of the terminal, if it is one."""
        return fitted(line, self.columns - 1) if self._err.is_terminal else line

    @property
    def can_ask(self) -> bool:
        """Whether a person can read a question and type an answer."""
        return self._err.is_terminal and keyboard_is_there()

    @property
    def asks(self) -> bool:
        """Whether a person may type an answer just now."""
        return bool(self._prompt)

    async def add(self, lines: Sequence[str], live_line: str | None = None) -> None:
        """Write lines that stay, and below them the live line: a new one, or the one before."""
        text = "".join(f"{line}\n" for line in lines)
        async with self._turn:
            before = self._line
            if self._prompt:
                self._line = self._prompt
            elif self.live and live_line is not None:
                self._line = live_line
            await self._err.write(self._fresh(f"{text}{self._line}", erase=bool(before)))

    async def change(self, live_line: str) -> None:
        """Draw another live line in place of the one before, unless a person may type there."""
        if self.live and (self._prompt or live_line) != self._line:
            async with self._turn:
                self._line = self._prompt or live_line
                await self._err.write(self._fresh(self._line, erase=True))

    async def pass_on(self, out: Output, text: str) -> None:
        """Write text of the result to standard output, which is the same terminal."""
        async with self._turn:
            if self._line:
                self._line = ""
                await self._err.write(self._fresh_line)
            await out.write(text)
            if text:
                self._open = self._err.is_terminal and not text.endswith("\n")

    def _fresh(self, text: str, *, erase: bool) -> str:
        """Return what writes a text on a line of its own; `erase` says whether it replaces one."""
        if not self._open:
            return self._fresh_line + text if erase else text
        if text:
            self._open = False
            text = f"\n{text}"
        return text

    @property
    def _fresh_line(self) -> str:
        """What leads from the live line to the beginning of an empty one."""
        return ERASE if self.live or self._err.obeys else "\n"

    async def prompt(self, lines: Sequence[str], prompt: str) -> str | None:
        """Ask below all that is shown meanwhile; return the line that is typed, as `ask` does.

        What was typed before the question was shown is dropped: it does not answer it.
        """
        while True:
            async with self._keyboard:
                with trio.CancelScope() as self._prompted:
                    return await self._ask_below(lines, prompt)

    def prompt_again(self) -> None:
        """Show again what `prompt` asks, all of it, and drop what was typed below it."""
        self._prompted.cancel()

    async def _ask_below(self, lines: Sequence[str], prompt: str) -> str | None:
        columns = self.columns
        try:
            await self.add([part for line in lines for part in wrapped(line, columns)], "")
            async with self._turn:
                erase = bool(self._line)
                drop_typed()
                self._prompt = self._line = prompt
                await self._err.write(self._fresh(prompt, erase=erase))
            answer = await typed_line()
            if answer.endswith("\n"):
                self._line = ""  # the person has begun another one
        finally:
            self._prompt = ""
            self.clear()
        return answer.strip() if answer else None

    async def ask(self, question: str, reply: Callable[[str], str]) -> str | None:
        """Ask a question, and show nothing else until a line is typed, which is returned.

        The result is None if no more can be typed. What `prompt` asks is asked again afterwards.

        Args:
            reply: returns what is said below an answer before anything else is; perhaps no text.
        """
        self.prompt_again()
        async with self._keyboard, self._turn:
            typed = await self._ask(question)
            if typed is not None and (said := reply(typed)):
                await self._err.write(f"{said}\n")
            return typed

    async def _ask(self, question: str) -> str | None:
        start = ERASE if self._err.obeys and not self._open else "\n"
        self._line, self._asking, self._open = "", True, False
        try:
            drop_typed()
            await self._err.write(start + question)
            answer = await typed_line()
            if answer.endswith("\n"):
                self._asking = False
        finally:
            self.clear()
        return answer.strip() if answer else None

    def make_way(self, _: object) -> bool:
        """Clear the live line for a line of the log; a filter of records, which accepts all."""
        self.clear()
        return True

    def clear(self) -> None:
        """Leave the cursor where another line can begin."""
        text = "\n" if self._asking or self._open else self._fresh_line if self._line else ""
        self._line, self._asking, self._open = "", False, False
        os.write(self._err.fd, text.encode())
