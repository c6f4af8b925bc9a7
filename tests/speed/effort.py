"""How much a piece of work takes, in instructions: a figure that shows a loop and has no clock."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import attrs
import pytest

import arcp_trio

PACKAGE: Final = arcp_trio.__path__[0]


@attrs.define
class Effort:
    """Instructions of the package's Python code, and of SQLite's statements."""

    python: int = 0
    sqlite: int = 0

    def _trace(self, frame: FrameType, event: str, _argument: object) -> Any:
        if event == "call":
            if not frame.f_code.co_filename.startswith(PACKAGE):
                return None
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
        elif event == "opcode":
            self.python += 1
        return self._trace

    def _statement_goes_on(self) -> int:
        self.sqlite += 1
        return 0

    @contextmanager
    def of_python(self) -> Generator[None]:
        """Count the instructions of this thread in the block."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(before)

    def of_sqlite(self, patch: pytest.MonkeyPatch) -> None:
        """Count the instructions of all connections that are opened from now on."""
        connect = sqlite3.connect

        def counted(*args: Any, **kwargs: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(*args, **kwargs)
            connection.set_progress_handler(self._statement_goes_on, 1)
            return connection

        patch.setattr(sqlite3, "connect", counted)
