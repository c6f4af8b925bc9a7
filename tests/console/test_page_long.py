"""The console with more than the page keeps, and what it tells of each job."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import trio
from playwright.sync_api import Browser, expect

from arcp_trio import connect
from tests.cli.clients import TOKEN, Commands
from tests.cli.processes import starter
from tests.console.pages import console

pytestmark = pytest.mark.real_tcp

MOST = 12_000
"""The events that the page keeps."""
PLACES = "all => all.map(each => Number(each.textContent.match(/(\\d+) of/)[1]))"


@pytest.mark.soak
def test_a_long_job(browser: Browser, commands: Commands) -> None:
    """The page keeps the last events of a long job, and gets others when one asks for them."""
    count = MOST + 2_000
    job_id = commands.detached("countdown", "--input", json.dumps({"n": count, "delay": 0}))
    commands.run("watch", job_id)
    with console(browser, commands.url) as shown:
        shown.sign_in(place=f"/jobs/{job_id}")
        page = shown.page
        expect(shown.articles("end")).to_be_attached()
        assert shown.articles().count() == MOST
        last = list(range(count - MOST + 2, count + 1))
        assert shown.articles("progress").evaluate_all(PLACES) == last
        expect(page.get_by_text(f"Events 2002 to {count + 1} are in the page")).to_be_visible()
        page.get_by_role("button", name="Show earlier events").click()
        expect(page.get_by_text(f"Events 1 to {MOST} are in the page")).to_be_visible()
        expect(shown.articles()).to_have_count(MOST)
        assert shown.articles().evaluate_all(PLACES) == list(range(1, MOST + 1))
        page.get_by_role("button", name="Show later events").click()
        expect(shown.articles("end")).to_be_attached()
        page.get_by_role("slider", name="Event").fill("3")
        expect(shown.articles().filter(visible=True)).to_have_count(3)
        expect(page.get_by_role("definition").filter(has_text="running")).to_be_visible()
        bar = page.get_by_role("progressbar", name="Progress")
        assert bar.evaluate("bar => bar.value") == 3
        with page.expect_download() as download:
            page.get_by_role("button", name="Download events").click()
        lines = Path(download.value.path()).read_text(encoding="utf-8").splitlines()
        told = [json.loads(line) for line in lines]
        assert [each["kind"] for each in told] == ["progress"] * count + ["end"]
        assert [each["body"]["current"] for each in told[:-1]] == list(range(1, count + 1))


def test_old_jobs_are_found(browser: Browser, tmp_path: Path) -> None:
    """Words are looked for in jobs that are not in the table yet, too."""
    with starter(tmp_path) as serve:
        options = ("--port=0", "--memory", f"--token=alice={TOKEN}", "--log-level=error")
        url = serve("serve", *options).url()
        first = trio.run(submit_many, url, 700)
        with console(browser, url) as shown:
            shown.sign_in()
            expect(shown.table.get_by_role("link").first).to_be_visible()
            shown.page.get_by_role("searchbox", name="Find").fill(first)
            expect(shown.row(first)).to_be_visible()
            shown.page.get_by_role("searchbox", name="Find").fill("no such words")
            expect(shown.page.get_by_text("No job is as the filters say.")).to_be_visible()


async def submit_many(url: str, count: int) -> str:
    """Run this number of jobs, some at a time, and return the id of the first one."""
    async with connect(url, token=TOKEN) as client:
        first = await client.submit("echo")
        for _ in range(count // 50):
            jobs = [await client.submit("echo") for _ in range(50)]
            for job in jobs:
                await job.result()
        return first.id


def test_how_far_a_job_is(browser: Browser, commands: Commands) -> None:
    """The table shows how far a job is, and the foot the store and how the runtime answers."""
    given = json.dumps({"n": 100_000, "delay": 0.05})
    job_id = commands.detached("countdown", "--input", given)
    with console(browser, commands.url) as shown:
        shown.sign_in()
        bar = shown.row(job_id).get_by_role("progressbar", name="Progress")
        expect(bar).to_be_visible()
        assert bar.evaluate("bar => bar.max") == 100_000
        foot = shown.page.get_by_role("contentinfo")
        told = re.compile(r"caught up · event \d+ · lag \d+ ms · .* · store memory")
        expect(foot).to_contain_text(told)
        shown.page.goto(f"{shown.origin}/#/jobs/{job_id}")
        shown.cancel_job()
        expect(shown.articles("end")).to_be_attached()
        shown.page.get_by_role("link", name="Jobs").click()
        expect(shown.row(job_id)).to_contain_text("cancelled")
        expect(bar).to_have_count(0)


def test_bars_of_tool_calls(browser: Browser, commands: Commands) -> None:
    """Each call has a bar from its beginning to its end, on one axis for all."""
    job_id = commands.detached("shopper", "--lease", "tool.call=shop.*", "--budget", "USD:1.00")
    commands.run("watch", job_id)
    with console(browser, commands.url) as shown:
        shown.sign_in(place=f"/jobs/{job_id}")
        results = shown.articles("tool_result")
        expect(results.first).to_be_visible()
        bars = results.get_by_role("img", name=re.compile("From .* s to .* s after the start"))
        assert bars.count() == results.count()
        places = bars.evaluate_all(
            """all => all.map(each => ['--from', '--to', '--axis'].map(
                name => Number(getComputedStyle(each).getPropertyValue(name))))"""
        )
        assert [begun for begun, _, _ in places] == sorted(begun for begun, _, _ in places)
        assert all(0 <= begun <= ended <= axis == 10 for begun, ended, axis in places)
        expect(shown.page.get_by_text("Bars show when tools ran, on an axis of 10")).to_be_visible()


def test_run_again(browser: Browser, commands: Commands) -> None:
    """A live job's input is filled in; of one that has ended, the page says that it is not told."""
    live = commands.detached("sleeper", "--input", '{"seconds": 600}')
    ended = commands.detached("echo", "--input", '"zebra"')
    commands.run("watch", ended)
    with console(browser, commands.url) as shown:
        page = shown.page
        shown.sign_in(place=f"/jobs/{live}")
        page.get_by_role("button", name="Run again").click()
        expect(page.get_by_role("textbox", name="Input")).to_have_value('{"seconds":600}')
        page.goto(f"{shown.origin}/#/jobs/{ended}")
        expect(shown.articles("end")).to_be_attached()
        page.get_by_role("button", name="Copy as command").click()
        expect(page.get_by_text("arcp-trio submit echo@1.0.0  (without the input")).to_be_visible()
        page.get_by_role("button", name="Run again").click()
        words = f"The runtime does not tell the input of {ended}: write it here."
        expect(page.get_by_role("alert")).to_have_text(words)
        page.get_by_role("textbox", name="Input").fill("1")
        page.get_by_role("button", name="Submit").click()
        expect(shown.articles("end")).to_contain_text('success {"echo":1}')
