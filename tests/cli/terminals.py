"""Commands on a real pseudo-terminal, and what its screen shows in the end."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.cli.clients import Commands

WAIT_SECONDS = 60.0
NOTHING: Mapping[str, str] = {}

_TOKEN = re.compile(r"\x1b\[([0-9;]*)([A-Za-z])|[^\x1b]")


def shown(raw: str, columns: int) -> list[str]:
    """Return the lines of a screen after this output; fail at an unexpected control sequence."""
    lines: list[list[str]] = [[]]
    column = 0
    consumed = 0
    for found in _TOKEN.finditer(raw):
        assert found.start() == consumed, f"unexpected: {raw[consumed : consumed + 9]!r}"
        consumed = found.end()
        order, character = found[2], found[0]
        if order == "K":
            assert found[1] == ""
            del lines[-1][column:]
        elif order is not None:
            assert order == "m", f"unexpected: {found[0]!r}"
        elif character == "\r":
            column = 0
        elif character == "\n":
            lines.append([])
        else:
            assert character.isprintable(), f"unprintable: {character!r}"
            width = 2 if unicodedata.east_asian_width(character) in "WF" else 1
            if column + width > columns:
                lines.append([])
                column = 0
            line = lines[-1]
            line.extend(" " * (column - len(line)))
            line[column : column + width] = [character, *[""] * (width - 1)]
            column += width
    assert consumed == len(raw)
    return ["".join(line).rstrip() for line in lines]


class Terminal:
    """One command with a screen and a keyboard."""

    def __init__(self, process: subprocess.Popen[bytes], screen: int, columns: int) -> None:
        self.process = process
        self.columns = columns
        self.raw = ""
        self._screen = screen
        self._decode = codecs.getincrementaldecoder("utf-8")().decode  # a read may cut a character

    @property
    def lines(self) -> list[str]:
        """The lines on the screen now."""
        return shown(self.raw.replace("^C", ""), self.columns)

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._screen, text.encode())

    def resize(self, columns: int) -> None:
        """Give the screen another width."""
        self.columns = columns
        fcntl.ioctl(self._screen, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def wait_for(self, text: str) -> None:
        """Wait until this text has been written."""
        end = time.monotonic() + WAIT_SECONDS
        while text not in self.raw:
            assert self._read(end), f"no {text!r} in {self.raw!r}"

    def read_more(self) -> None:
        """Wait until more has been written."""
        assert self._read(time.monotonic() + WAIT_SECONDS)

    def wait_until_read(self) -> None:
        """Wait until the command has read what was typed."""
        keyboard = os.open(f"/proc/{self.process.pid}/fd/0", os.O_RDONLY | os.O_NOCTTY)
        end = time.monotonic() + WAIT_SECONDS
        while any(fcntl.ioctl(keyboard, termios.FIONREAD, bytes(4))):
            assert time.monotonic() < end
            time.sleep(0.01)
        os.close(keyboard)

    def end(self) -> int:
        """Wait for the end; return the exit code."""
        end = time.monotonic() + WAIT_SECONDS
        while self._read(end):
            pass
        return self.process.wait(WAIT_SECONDS)

    def _read(self, end: float) -> bool:
        ready, _, _ = select.select([self._screen], [], [], max(0.0, end - time.monotonic()))
        assert ready, f"no more output after {self.raw!r}"
        try:
            data = os.read(self._screen, 65_536)
        except OSError:  # EIO: the other side has no more descriptors open
            return False
        self.raw += self._decode(data)
        return bool(data)


@contextmanager
def terminal(
    commands: Commands,
    *arguments: str,
    columns: int = 80,
    environment: Mapping[str, str] = NOTHING,
) -> Iterator[Terminal]:
    """Run a command on a terminal of this width, as its foreground process."""
    screen, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def take_over() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that ^C sends it a signal

    process = subprocess.Popen(
        [sys.executable, "-m", "arcp_trio", *arguments],
        cwd=commands.folder,
        env=commands.environment(**{"TERM": "xterm-256color", **environment}),
        stdin=inside,
        stdout=inside,
        stderr=inside,
        start_new_session=True,
        preexec_fn=take_over,  # noqa: PLW1509 - it makes one system call
    )
    os.close(inside)
    try:
        yield Terminal(process, screen, columns)
    finally:
        process.kill()
        process.wait()
        os.close(screen)
