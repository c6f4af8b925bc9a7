"""The tree of delegated jobs, in the table and on a job's page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, expect

from tests.cli.clients import Commands
from tests.cli.processes import starter
from tests.console.pages import console, serving

pytestmark = pytest.mark.real_tcp

AGENTS = """
import arcp_trio

agents = arcp_trio.Agents()

@agents.agent("nest")
async def nest(job):
    children = [await job.delegate("nest", each, lease=job.lease) for each in job.input]
    for child in children:
        await child.result()
"""
TREE: Final[list[Any]] = [[[[]]], []]
"""A list for each job, of those that it delegates."""
NESTED = """section => {
    const nested = (list) => Array.from(list.children, (item) => {
        const below = item.querySelector(':scope > ul');
        return below ? nested(below) : [];
    });
    return nested(section.querySelector('ul'));
}"""


def test_children_are_folded_and_found(browser: Browser, commands: Commands) -> None:
    """A job's children are folded below it, and its page lists and links them."""
    commands.run("submit", "team", "--lease", "agent.delegate=echo", "--input", '["a", "b"]')
    (team, *_) = commands.run("jobs", "--agent", "team", "--json").objects
    with console(browser, commands.url) as shown:
        shown.sign_in()
        page = shown.page
        shown.row(team["job_id"]).get_by_role("button", name="2 delegated").click()
        children = [
            each["job_id"]
            for each in commands.run("jobs", "--json").objects
            if each["parent_job_id"] == team["job_id"]
        ]
        for child in children:
            expect(shown.row(child)).to_be_visible()
        shown.row(team["job_id"]).get_by_role("link").click()
        tree = page.get_by_role("region", name="Delegated jobs")
        tree.get_by_role("link", name=children[0]).click()
        expect(page.get_by_role("link", name=team["job_id"])).to_be_visible()


def test_children_of_the_same_moment_are_found(browser: Browser, tmp_path: Path) -> None:
    """A job's page lists a child that was created in the same millisecond as the job."""
    with starter(tmp_path) as start:
        url = start(program=("tests.console.one_moment",)).url()
        commands = Commands(url, tmp_path)
        commands.run("submit", "family", "--lease", "agent.delegate=child")
        (child,) = commands.run("jobs", "--agent", "child", "--json").objects
        with console(browser, url) as shown:
            shown.sign_in(place=f"/jobs/{child['parent_job_id']}")
            tree = shown.page.get_by_role("region", name="Delegated jobs")
            expect(tree.get_by_role("link", name=child["job_id"])).to_be_visible()


def test_a_tree_of_three_levels(browser: Browser, tmp_path: Path) -> None:
    """A job's page shows all jobs below it; in the table they are unfolded level by level."""
    with serving(tmp_path, AGENTS) as commands, console(browser, commands.url) as shown:
        lease = ("--lease", "agent.delegate=nest", "--input", json.dumps(TREE))
        commands.run("submit", "nest", *lease)
        listed = commands.run("jobs", "--json").objects
        below: dict[str | None, list[str]] = {}
        for each in listed:
            below.setdefault(each["parent_job_id"], []).append(each["job_id"])
        (root,) = below[None]
        shown.sign_in()
        expect(shown.row(root)).to_be_visible()
        links = shown.table.get_by_role("link")
        expect(links).to_have_count(1)
        row, places = root, []
        while row in below:
            name = f"{len(below[row])} delegated"
            shown.row(row).get_by_role("button", name=name).click()
            for child in below[row]:
                expect(shown.row(child)).to_be_visible()
            box = shown.row(row).get_by_role("link").bounding_box()
            assert box is not None
            places.append(box["x"])
            row = max(below[row], key=below.__contains__)
        assert len(places) == 3
        assert places == sorted(set(places))
        assert links.count() == len(listed) == 5
        shown.page.goto(f"{shown.origin}/#/jobs/{root}")
        tree = shown.page.get_by_role("region", name="Delegated jobs")
        expect(tree.get_by_role("link")).to_have_count(4)
        assert sorted(tree.evaluate(NESTED)) == sorted(TREE)
        tree.get_by_role("link", name=row).click()
        expect(shown.page.get_by_role("heading", level=1)).to_have_text(row)
