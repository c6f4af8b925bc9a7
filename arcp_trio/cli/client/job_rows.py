"""The rows of `arcp-trio jobs` for people: each job with its children below it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from arcp_trio import JobInfo
from arcp_trio.cli.client.columns import GAP
from arcp_trio.cli.client.figures import amount, duration, money_left
from arcp_trio.cli.errors import plainly
from arcp_trio.cli.text import cells, fitted, safe_line
from arcp_trio.wire.timestamps import parse_rfc3339, rfc3339

_HEADING: Final = ("STATE", "JOB", "AGENT", "AT (UTC)", "TOOK", "WHO", "MONEY", "LAST WORDS")
_DEEPEST: Final = 8
"""Levels of children that are indented."""
_FEWEST_WORDS: Final = 24
"""The columns from which on the last words share a line with who and money."""


def job_rows(jobs: Sequence[JobInfo], now: float, width: int | None) -> list[Sequence[str]]:
    """Return the heading, and a row for each of `jobs`, which are the newest first.

    Args:
        width: of a line; the last words are shortened to it.
    """
    rows = [
        (
            job.status,
            GAP * min(depth, _DEEPEST) + job.id,
            job.agent,
            _begun(job, now),
            _took(job, now),
            safe_line(_who(job)),
            safe_line(_money(job)),
            safe_line(_last_words(job)),
        )
        for depth, job in _as_trees(jobs)
    ]
    return [_HEADING, *(rows if width is None else _shortened(rows, width))]


def _shortened(rows: Sequence[Sequence[str]], width: int) -> Iterator[Sequence[str]]:
    """Yield the rows with their last words cut to what fits beside who and money, or alone."""
    alone = width - len(GAP)
    who, money = (max(cells(row[place]) for row in [_HEADING, *rows]) for place in (-3, -2))
    beside = alone - who - money - 2 * len(GAP)
    room = beside if beside >= _FEWEST_WORDS else alone
    for *others, spent, words in rows:
        yield (*others, fitted(spent, alone), fitted(words, room))


def _as_trees(jobs: Sequence[JobInfo]) -> list[tuple[int, JobInfo]]:
    """Return each job with its depth, after its parent if that is listed, oldest child first."""
    listed = {job.id for job in jobs}
    children: dict[str, list[JobInfo]] = {}
    todo: list[tuple[int, JobInfo]] = []
    for job in jobs:
        if job.parent_id in listed and job.parent_id != job.id:
            children.setdefault(job.parent_id, []).append(job)
        else:
            todo.append((0, job))
    todo.reverse()
    found: list[tuple[int, JobInfo]] = []
    while todo:
        depth, job = todo.pop()
        found.append((depth, job))
        todo += [(depth + 1, child) for child in children.pop(job.id, ())]
    # What is left are jobs that a strange runtime has made each other's parents.
    return found + [(0, job) for each in children.values() for job in each]


def _begun(job: JobInfo, now: float) -> str:
    """Return when the job was started or, if that is not known, created; today without the day."""
    at = _seconds(job.started_at or job.created_at)
    if at is None:
        return ""
    day, _, time = rfc3339(at).partition("T")
    time = time[: len("hh:mm:ss")]
    return time if rfc3339(now).startswith(day) else f"{day} {time}"


def _took(job: JobInfo, now: float) -> str:
    """Return for how long the job has run, as in 1:02:03."""
    start, end = _seconds(job.started_at), _seconds(job.finished_at)
    if start is None:
        return ""
    return duration(max(0.0, (now if end is None else end) - start))


def _seconds(timestamp: str | None) -> float | None:
    try:
        return None if timestamp is None else parse_rfc3339(timestamp)
    except ValueError:  # of a runtime that writes its times in another way
        return None


def _who(job: JobInfo) -> str:
    """Return whose job it is, and the node at which it runs."""
    return f"{job.principal or ''} at {job.node}".lstrip() if job.node else job.principal or ""


def _money(job: JobInfo) -> str:
    """Return what is left of what the job was given, and what it has spent of the rest."""
    spent, budget = job.spent or {}, job.budget or {}
    told = [
        f"{amount(granted)} {currency} given"
        if (gone := spent.get(currency)) is None
        else money_left(granted - gone, granted, currency)
        for currency, granted in budget.items()
    ]
    beyond = [
        f"{amount(gone)} {currency} spent"
        for currency, gone in spent.items()
        if currency not in budget
    ]
    return ", ".join(told + beyond)


def _last_words(job: JobInfo) -> str:
    if job.error_code is not None:
        return f"{job.error_code}: {plainly(job.error or '')}"
    return job.last_event or ""
