"""Approvals on the terminal: what is asked for, and what a person types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal

from arcp_trio import Question
from arcp_trio.cli.text import exact_line, safe_line
from arcp_trio.wire.json import dumps
from arcp_trio.wire.questions import ALLOW, DENY, FileChange

PROMPT: Final = "yes, job or no: "

_CHOICES: Final[Mapping[str, tuple[str, Literal["once", "job"]]]] = {
    "yes": (ALLOW, "once"),
    "job": (ALLOW, "job"),
    "no": (DENY, "once"),
}
"""The answer and the scope that a word stands for: a whole word, as one key is soon pressed."""
NO_CHOICE: Final = "please type yes, job or no, as a whole word"


def approval_lines(question: Question) -> list[str]:
    """Return the lines that tell what is asked for, safe for a terminal, all of it.

    What the agent says stands in lines that are indented, so that it cannot pass for another line.
    """
    lines = [f"approval: {exact_line(question.prompt)}"]
    if len(question.targets) != 1 or not question.prompt.endswith(f" of {question.targets[0]}?"):
        lines += [f"  {exact_line(target)}" for target in question.targets]
    args = dumps(question.args).decode()
    lines.append(f"  {exact_line(question.tool or '')} {exact_line(args)}")
    if question.truncated:
        lines.append("  (that is not all of its arguments: they are too long)")
    shown = question.shown
    if shown.cwd is not None:
        lines.append(f"  in {exact_line(shown.cwd)}")
    if shown.command is not None:
        lines += ["  it would run", *_indented(shown.command)]
    for change in shown.changes or ():
        lines += _change(change)
    if question.expires_at is not None:
        lines.append(f"  open until {safe_line(question.expires_at)}")
    return lines


def _change(change: FileChange) -> Iterator[str]:
    note = "" if change.note is None else f" ({exact_line(change.note)})"
    yield f"  it would write {exact_line(change.path)}{note}"
    yield from _indented(change.diff.removesuffix("\n"))


def _indented(text: str) -> Iterator[str]:
    return (f"    {exact_line(line)}" for line in text.split("\n"))


def choice_lines(question: Question) -> list[str]:
    """Return the lines that tell what a person may type."""
    return ["  yes  once", f"  job  for this job: {exact_line(for_job(question))}", "  no"]


def for_job(question: Question) -> str:
    """Return what the scope `job` allows, in words."""
    if question.for_job is not None:
        return question.for_job
    return f"{question.capability} of {', '.join(question.targets)}, again and again"


async def decide(question: Question, typed: str) -> bool:
    """Answer with what a typed word stands for; return whether it stands for anything."""
    chosen = _CHOICES.get(typed.lower())
    if chosen is None:
        return False
    answer, scope = chosen
    await question.answer(answer, scope=scope)
    return True
