"""The agent of random programs, for a real server: an effect is a line in a file."""

from __future__ import annotations

import os
from pathlib import Path

from tests.durable.programs import Interpreter


async def effect(key: str, number: int) -> None:
    """Add a line to the file of effects."""
    note(f"{key} {number}\n")


def note(line: str) -> None:
    """Write a line in one piece."""
    with Path(os.environ["EFFECTS"]).open("a") as file:
        file.write(line)


agents = Interpreter(effect, second=0.2).agents
