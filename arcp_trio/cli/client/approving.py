"""Approvals on the terminal: what is asked for, and what a person types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from arcp_trio import Question
from arcp_trio.cli.text import exact_line, safe_line
from arcp_trio.wire.json import dumps
from arcp_trio.wire.questions import ALLOW, DENY

PROMPT: Final = "y, j or n: "

_CHOICES: Final[Mapping[str, tuple[str, Literal["once", "job"]]]] = {
    "y": (ALLOW, "once"),
    "j": (ALLOW, "job"),
    "n": (DENY, "once"),
}
"""The answer and the scope that a letter stands for."""


def approval_lines(question: Question) -> list[str]:
    """Return the lines that tell what is asked for, safe for a terminal, all of it."""
    lines = [f"approval: {exact_line(question.prompt)}"]
    if len(question.targets) != 1 or not question.prompt.endswith(f" of {question.targets[0]}?"):
        lines += [f"  {exact_line(target)}" for target in question.targets]
    args = dumps(question.args).decode()
    lines.append(f"  {exact_line(question.tool or '')} {exact_line(args)}")
    if question.expires_at is not None:
        lines.append(f"  open until {safe_line(question.expires_at)}")
    return lines


CHOICES: Final = "  y  once    j  for this job    n  no"


async def decide(question: Question, typed: str) -> bool:
    """Answer with what a typed letter stands for; return whether it stands for anything."""
    chosen = _CHOICES.get(typed.lower())
    if chosen is None:
        return False
    answer, scope = chosen
    await question.answer(answer, scope=scope)
    return True
