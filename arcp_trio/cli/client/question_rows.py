"""The rows of `arcp-trio jobs --waiting` for people: a row for each question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from arcp_trio import JobInfo, Question
from arcp_trio.cli.text import exact_line, safe_line
from arcp_trio.wire.questions import APPROVAL

_HEADING: Final = ("JOB", "QUESTION", "AGENT", "WHO", "FOR", "OPEN UNTIL", "ASKS")


def question_rows(jobs: Sequence[JobInfo]) -> list[Sequence[str]]:
    """Return the heading, and a row for each question of `jobs`."""
    rows: list[Sequence[str]] = [_HEADING]
    rows += [
        (
            job.id,
            question.question_id,
            job.agent,
            job.principal or "",
            question.to or "",
            question.expires_at or "",
            _asked(question),
        )
        for job in jobs
        for question in job.waiting
    ]
    return rows


def _asked(question: Question) -> str:
    """Return the question with its options, as in "Publish? (yes, no)"."""
    safe = exact_line if question.kind == APPROVAL else safe_line
    prompt = safe(question.prompt)
    return prompt if question.options is None else f"{prompt} ({', '.join(question.options)})"
