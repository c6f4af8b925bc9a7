"""`jobs`: what its lines tell, how they fit a terminal, and the same as JSON."""

from __future__ import annotations

from decimal import Decimal

import pytest
from attrs import evolve

from arcp_trio import JobInfo
from arcp_trio.cli.client.columns import in_columns
from arcp_trio.cli.client.job_rows import job_rows
from arcp_trio.cli.text import cells
from arcp_trio.wire.timestamps import parse_rfc3339
from tests.cli.clients import HOSTILE, Commands
from tests.cli.terminals import terminal

NOW = parse_rfc3339("2026-05-13T14:07:00Z")
ID = "job_01J8ZZZZZZZZZZZZZZZZZZZZZ"
BARE = JobInfo(
    id=f"{ID}1",
    agent="shopper@1.0.0",
    status="running",
    lease={},
    parent_id=None,
    created_at="2026-05-13T14:05:11Z",
    trace_id=None,
    last_event_seq=None,
)
PARENT = evolve(
    BARE,
    principal="alice",
    started_at="2026-05-13T14:05:12.500Z",
    budget={"USD": Decimal("1.00")},
    spent={"USD": Decimal("0.30"), "tokens": Decimal(7)},
    last_event="calls shop.buy",
)
CHILD = evolve(
    PARENT,
    id=f"{ID}2",
    parent_id=f"{ID}1",
    status="error",
    started_at="2026-05-13T14:05:13Z",
    finished_at="2026-05-13T15:06:20Z",
    error_code="JOB_FAILED",
    error=f"no luck {HOSTILE}",
)


def lines(*jobs: JobInfo, width: int | None) -> list[str]:
    """Return the lines that tell of these jobs."""
    return in_columns(job_rows(jobs, NOW, width), width).splitlines()


def test_on_80_columns() -> None:
    """A job has its facts on one line and what it costs and says on a second one."""
    assert lines(PARENT, width=80) == [
        "STATE    JOB                             AGENT          AT (UTC)  TOOK  WHO",
        "  MONEY                                     LAST WORDS",
        "running  job_01J8ZZZZZZZZZZZZZZZZZZZZZ1  shopper@1.0.0  14:05:12  1:47  alice",
        "  0.70 of 1.00 USD left, 7.00 tokens spent  calls shop.buy",
    ]


def test_children_and_long_words_on_80_columns() -> None:
    """With a child and a long error among them, a job still has two lines, cut at the end only."""
    wordy = evolve(
        CHILD, error="no luck, as the shop has closed for the day", spent={"USD": Decimal(0)}
    )
    assert lines(wordy, PARENT, width=80) == [
        "STATE    JOB                               AGENT          AT (UTC)  TOOK",
        "  WHO    MONEY                                     LAST WORDS",
        "running  job_01J8ZZZZZZZZZZZZZZZZZZZZZ1    shopper@1.0.0  14:05:12  1:47",
        "  alice  0.70 of 1.00 USD left, 7.00 tokens spent  calls shop.buy",
        "error      job_01J8ZZZZZZZZZZZZZZZZZZZZZ2  shopper@1.0.0  14:05:13  1:01:07",
        "  alice  1.00 of 1.00 USD left                     JOB_FAILED: no luck, as the …",
    ]


def test_in_a_pipe() -> None:
    """Where nothing limits the width, a job has one line."""
    heading, line = lines(PARENT, width=None)
    assert heading.endswith("  LAST WORDS")
    assert line.endswith("1:47  alice  0.70 of 1.00 USD left, 7.00 tokens spent  calls shop.buy")


@pytest.mark.parametrize("width", [80, 40])
def test_nothing_is_wider_than_the_terminal(width: int) -> None:
    """No line is wider than the terminal; all are printable."""
    told = lines(CHILD, PARENT, width=width)
    assert all(line.isprintable() for line in told)
    assert all(cells(line) <= width for line in told)
    assert any("JOB_FAILED: no" in line for line in told)


def test_children_stand_under_their_parents() -> None:
    """A child is indented below its parent, the oldest first; one without its parent is not."""
    second = evolve(CHILD, id=f"{ID}3")
    grandchild = evolve(CHILD, id=f"{ID}4", parent_id=second.id)
    stray = evolve(CHILD, id=f"{ID}5", parent_id="job_0")
    rows = job_rows([stray, grandchild, second, CHILD, PARENT, BARE], NOW, None)
    assert [row[1] for row in rows[1:]] == [
        stray.id,
        PARENT.id,
        f"  {CHILD.id}",
        f"  {second.id}",
        f"    {grandchild.id}",
        BARE.id,
    ]


def test_each_others_parents() -> None:
    """Jobs that claim to be each other's parents are listed all the same."""
    first, second = (
        evolve(CHILD, parent_id=CHILD.id, id=PARENT.id),
        evolve(CHILD, parent_id=PARENT.id),
    )
    own = evolve(CHILD, id=f"{ID}3", parent_id=f"{ID}3")
    rows = job_rows([first, second, own], NOW, None)
    assert sorted(row[1] for row in rows[1:]) == [first.id, second.id, own.id]


def test_what_is_not_known() -> None:
    """Of the runtimes of others, and of old jobs, only what they tell is shown."""
    (_, bare, old) = job_rows([BARE, evolve(BARE, budget={"USD": Decimal(2)})], NOW, None)
    assert bare == ("running", BARE.id, BARE.agent, "14:05:11", "", "", "", "")
    assert old[6] == "2.00 USD given"


def test_times() -> None:
    """A time of another day has the day, and an hour is told as such; a strange time is not."""
    later = NOW + 86_400
    (_, row) = job_rows([CHILD], later, None)
    assert row[3:5] == ("2026-05-13 14:05:13", "1:01:07")
    (_, strange) = job_rows([evolve(BARE, created_at="yesterday")], NOW, None)
    assert strange[3] == ""


@pytest.mark.real_tcp
@pytest.mark.parametrize("columns", [80, 40])
def test_on_a_terminal(commands: Commands, columns: int) -> None:
    """On a terminal, a job's lines tell what it spent, and its last event, within the width."""
    lease = ("--lease", "tool.call=search.*", "--budget", "USD:1")
    commands.run("submit", "speaker", *lease)
    with terminal(commands, "jobs", "--agent", "speaker", columns=columns) as on:
        assert on.end() == 0
    assert "0.75 of 1.00 USD left" in "\n".join(on.lines)
    assert "x-vendor.acme.note" in "\n".join(on.lines)
    assert on.raw.count("\n") == len(on.lines) - 1, "a line was wrapped"


@pytest.mark.real_tcp
def test_as_json(commands: Commands) -> None:
    """With --json, an object has all that is known of a job, with exact amounts."""
    lease = ("--lease", "tool.call=search.*", "--budget", "USD:1.50")
    commands.run("submit", "speaker", *lease)
    one, *_ = commands.run("jobs", "--json", "--agent", "speaker").objects
    assert one.pop("job_id").startswith("job_")
    created, started, finished = [
        one.pop(name) for name in ("created_at", "started_at", "finished_at")
    ]
    assert created <= started <= finished
    assert one == {
        "agent": "speaker@1.0.0",
        "status": "success",
        "lease": {"tool.call": ["search.*"], "cost.budget": ["USD:1.50"]},
        "parent_job_id": None,
        "principal": "alice",
        "node": None,
        "error": None,
        "budget": {"USD": "1.50"},
        "spent": {"USD": "0.25"},
        "waiting": [],
        "last_event": "x-vendor.acme.note",
        "progress": None,
    }
    failing = commands.detached("failing")
    commands.run("watch", failing)
    one, *_ = commands.run("jobs", "--json", "--agent", "failing").objects
    assert one["error"] == {"code": "INTERNAL_ERROR", "message": "no luck"}
