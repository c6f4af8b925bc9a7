"""Approvals on the terminal: what is asked for, and what a person types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from arcp_trio import Question
from arcp_trio.cli.text import exact_line, safe_line
from arcp_trio.wire.json import dumps
from arcp_trio.wire.questions import ALLOW, DENY

PROMPT: Final = "yes, job or no: "

_CHOICES: Final[Mapping[str, tuple[str, Literal["once", "job"]]]] = {
    "yes": (ALLOW, "once"),
    "job": (ALLOW, "job"),
    "no": (DENY, "once"),
}
"""The answer and the scope that a word stands for: a whole word, as one key is soon pressed."""
NO_CHOICE: Final = "please type yes, job or no, as a whole word"


def approval_lines(question: Question) -> list[str]:
    """Return the lines that tell what is asked for, safe for a terminal, all of it."""
    lines = [f"approval: {exact_line(question.prompt)}"]
    if len(question.targets) != 1 or not question.prompt.endswith(f" of {question.targets[0]}?"):
        lines += [f"  {exact_line(target)}" for target in question.targets]
    args = dumps(question.args).decode()
    lines.append(f"  {exact_line(question.tool or '')} {exact_line(args)}")
    if question.expires_at is not None:
        lines.append(f"  open until {safe_line(question.expires_at)}")
    same = "target" if len(question.targets) == 1 else "targets"
    again = f"{exact_line(question.capability or '')} of the same {same}"
    lines += ["  yes  this once", f"  job  this, and {again} until the job ends", "  no"]
    return lines


async def decide(question: Question, typed: str) -> bool:
    """Answer with what a typed word stands for; return whether it stands for anything."""
    chosen = _CHOICES.get(typed.lower())
    if chosen is None:
        return False
    answer, scope = chosen
    await question.answer(answer, scope=scope)
    return True
