"""The metrics that only a node of several has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cluster.tellers import submitted, two_nodes
from tests.metrics import scrape
from tests.stage import make_runtime, simple_agents

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

DOCUMENT = Path(__file__).parents[2] / "docs" / "operating.md"


async def test_the_document_names_the_metrics_of_a_node(database: str) -> None:
    """A node has what a runtime has that is alone, and what the table for nodes names."""
    _, _, table = DOCUMENT.read_text().partition("A node of several has these, too:")
    named = set(re.findall(r"^\| `(arcp_[a-z_]+)", table, re.MULTILINE))
    async with make_runtime(simple_agents) as alone, two_nodes(database) as (_, one, _):
        found = [scrape(runtime).families.keys() for runtime in (one.runtime, alone)]
        assert found[0] - found[1] == named
        assert not found[1] - found[0]


async def test_calls_of_the_database_are_timed(database: str) -> None:
    """Groups that are stored and reads are counted apart, each with a time above zero."""
    async with two_nodes(database) as (_, one, _):
        before = scrape(one.runtime)
        _, job_id = await submitted(one)
        await one.store.job(job_id)
        after = scrape(one.runtime)
        for figure in ("engine_seconds_count", "engine_seconds_sum"):
            for what in ("group", "read"):
                assert after(figure, what=what) > before(figure, what=what)
