"""The console with much to show: nothing is lost or out of order, and the page never freezes."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import trio
from playwright.sync_api import Browser, expect

from arcp_trio import connect
from tests.cli.clients import TOKEN, Commands
from tests.cli.processes import starter
from tests.cli.relay import relay
from tests.console.pages import Console, console

pytestmark = pytest.mark.real_tcp

SEEN = """all => all.map(each => [
    each.dataset.kind, Number(each.dataset.seq), each.querySelector('.words').textContent
])"""
WATCH = """() => {
    window.longTasks = [];
    window.made = 0;
    new PerformanceObserver((list) => {
        for (const each of list.getEntries()) window.longTasks.push(each.duration);
    }).observe({ type: 'longtask' });
    const sum = (numbers) => numbers.reduce((all, each) => all + each, 0);
    const size = (node) => 1 + sum(Array.from(node.childNodes, size));
    new MutationObserver((changes) => {
        for (const { addedNodes } of changes)
            for (const each of addedNodes) window.made += size(each);
    }).observe(document.body, { childList: true, subtree: true });
}"""
"""Notes tasks that take long, and counts the nodes that are put into the page."""
WATCH_MACHINE = """() => {
    const work = () => {
        const began = performance.now();
        for (let left = 80_000_000; left; left -= 1);
        return performance.now() - began;
    };
    for (let left = 5; left; left -= 1) work();
    window.times = [];
    setInterval(() => window.times.push(work()), 250);
}"""
"""Measures the same short work again and again, in a page with nothing else to do."""
MOST_NODES = 25
"""The nodes that an event puts into the page, at most: its article, and a share of the rest."""


def assert_as_in_journal(shown: Console, journal: list[dict[str, Any]]) -> None:
    """Assert that the timeline has each event once, in order, and then the end."""
    seen = shown.articles().evaluate_all(SEEN)
    seqs = [seq for _, seq, _ in seen]
    assert seqs == sorted(set(seqs))
    assert [kind for kind, _, _ in seen] == [*(each["kind"] for each in journal), "end"]
    for (_, _, words), event in zip(seen, journal, strict=False):
        assert event["body"]["message"][:80] in words


@pytest.mark.parametrize(
    ("events", "cuts"), [(1_500, 5), pytest.param(10_000, 20, marks=pytest.mark.soak)]
)
def test_nothing_is_lost(browser: Browser, tmp_path: Path, events: int, cuts: int) -> None:
    """The page has all events in order, though its socket is cut and the server is killed."""
    options = ("serve", "--port=0", f"--token=alice={TOKEN}", "--log-level=error")
    given = json.dumps({"n": events, "size": 90})
    with starter(tmp_path, lifetime=600) as serve:
        first = serve(*options)
        commands = Commands(first.url(), tmp_path)
        job_id = commands.detached("chatty", "--input", given)
        with relay(commands.url) as between, console(browser, between.url) as shown:
            shown.sign_in(place=f"/jobs/{job_id}")
            for cut in range(1, cuts + 1):
                shown.page.wait_for_function(
                    "least => document.querySelectorAll('article').length > least",
                    arg=(cut - 1) * events // (cuts + 1),
                )
                between.fail()
                if cut == cuts:
                    commands.run("watch", job_id)
                    first.send_signal(signal.SIGKILL)
                    first.end()
                    commands = Commands(serve(*options).url(), tmp_path)
                    between.lead_to(commands.url)
                between.works = True
            expect(shown.articles("end")).to_be_attached()
            shown.wait_for("Live")
            watched = commands.run("watch", job_id, "--json").objects
            assert_as_in_journal(shown, [each for each in watched if "kind" in each])


@pytest.mark.parametrize(
    ("seconds", "timed"), [(4, False), pytest.param(60, True, marks=pytest.mark.soak)]
)
def test_a_talkative_job(
    browser: Browser, commands: Commands, seconds: int, *, timed: bool
) -> None:
    """With 200 events a second the page follows, and its main thread is never held for long."""
    blank = browser.new_page()
    if timed:  # how long a task takes depends on the machine, so the short test does not ask
        blank.evaluate(WATCH_MACHINE)
    given = json.dumps({"n": 200 * seconds, "delay": 0.005})
    job_id = commands.detached("countdown", "--input", given)
    with console(browser, commands.url) as shown:
        shown.sign_in(place=f"/jobs/{job_id}")
        expect(shown.articles().first).to_be_attached()
        shown.page.evaluate(WATCH)
        # Seldom and cheaply, as what a test asks of the page takes the page's time, too.
        shown.page.wait_for_function(
            "() => document.querySelector('article[data-kind=end]')",
            polling=1000,
            timeout=(seconds + 60) * 1000,
        )
        longest = max(shown.page.evaluate("longTasks"), default=0)
        assert shown.page.evaluate("made") < MOST_NODES * 200 * seconds
        # There may be others: a page that falls behind is told so.
        assert shown.articles("progress").count() == 200 * seconds
        bar = shown.page.get_by_role("progressbar", name="Progress")
        assert bar.evaluate("bar => bar.value") == 200 * seconds
        if timed:
            slower = blank.evaluate("Math.max(...times) / Math.min(...times)")
            assert longest < 100 * slower  # as much as the machine made other work last longer
    blank.close()


@pytest.mark.parametrize("count", [1_200, pytest.param(10_000, marks=pytest.mark.soak)])
def test_many_jobs(browser: Browser, tmp_path: Path, count: int) -> None:
    """Only the rows that can be seen are in the page; the last job is reached by scrolling."""
    with starter(tmp_path, lifetime=600) as serve:
        options = ("--port=0", "--memory", f"--token=alice={TOKEN}", "--log-level=error")
        url = serve("serve", *options).url()
        first = trio.run(submit_many, url, count)
        with console(browser, url) as shown:
            shown.sign_in()
            expect(shown.table.get_by_role("link").first).to_be_visible()
            while shown.row(first).count() == 0:  # pytest-timeout bounds it
                region = shown.page.get_by_role("region", name="All jobs")
                region.evaluate("each => { each.scrollTop = each.scrollHeight }")
                shown.page.wait_for_timeout(100)
            expect(shown.table).to_have_attribute("aria-rowcount", str(count + 1))
            assert shown.table.get_by_role("link").count() < 60
            before = region_top(shown)
            trio.run(submit_many, url, 5)
            expect(shown.table).to_have_attribute("aria-rowcount", str(count + 6))
            assert region_top(shown) == before


def region_top(shown: Console) -> str:
    """Return the job whose row stands below the table's head."""
    region = shown.page.get_by_role("region", name="All jobs")
    found: str = region.evaluate(
        """each => {
            const { left, top } = each.getBoundingClientRect();
            return document.elementFromPoint(left + 40, top + 65).closest('tr').dataset.job;
        }"""
    )
    return found


async def submit_many(url: str, count: int) -> str:
    """Run this number of jobs, some at a time, and return the id of the first one."""
    async with connect(url, token=TOKEN) as client:
        first = await client.submit("echo")
        left = count - 1
        while left:
            jobs = [await client.submit("echo") for _ in range(min(50, left))]
            for job in jobs:
                await job.result()
            left -= len(jobs)
        return first.id
