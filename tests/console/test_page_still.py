"""What one presses, selects or reads on the page stays where it is while jobs go on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.cli.clients import Commands
from tests.console.pages import Console, console, serving

pytestmark = pytest.mark.real_tcp

AGENTS = """
from pathlib import Path
import arcp_trio, trio

agents = arcp_trio.Agents()

async def told(word):
    while not Path(word).exists():
        await trio.sleep(0.02)
    Path(word).unlink()

async def say(job, count):
    for number in range(count):
        await job.log(f"line {number}")

@agents.agent("waiting")
async def waiting(job):
    await trio.sleep_forever()

@agents.agent("teller")
async def teller(job):
    await say(job, 60)
    for _ in range(2):
        await told("more")
        await say(job, 20)
    await trio.sleep_forever()

@agents.agent("asker")
async def asker(job):
    async def talk():
        await told("talk")
        await say(job, 60)
    await say(job, 20)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(talk)
        answer = await job.ask("Which?", options=["this one", "that one"])
    return answer
"""
REDRAWN_MS = 2500
"""Longer than the page takes to show what is new, twice."""
AT_END = "log => log.scrollTop + log.clientHeight >= log.scrollHeight - 8"
SCROLL = """(log, by) => {
    log.scrollBy(0, by);
    return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
}"""
"""Scrolls, and waits until the page knows."""
FIRST_SEEN = """log => {
    const { left, top } = log.getBoundingClientRect();
    return document.elementFromPoint(left + 40, top + 10).closest('article').dataset.seq;
}"""


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """Serve the agents above."""
    with serving(tmp_path_factory.mktemp("still"), AGENTS) as to_run:
        yield to_run


def press(shown: Console, target: Locator) -> None:
    """Press the mouse on the middle of an element, and do not let it go."""
    target.hover()
    shown.page.mouse.down()


def test_a_press_on_a_row_is_not_lost(browser: Browser, commands: Commands) -> None:
    """A press on a running job's link opens the job, though rows change and come meanwhile."""
    job_id = commands.detached("waiting")
    with console(browser, commands.url) as shown:
        shown.sign_in()
        expect(shown.row(job_id)).to_contain_text("running")
        press(shown, shown.row(job_id).get_by_role("link"))
        newer = commands.detached("waiting")
        shown.page.wait_for_timeout(REDRAWN_MS)
        shown.page.mouse.up()
        expect(shown.page.get_by_role("heading", level=1)).to_have_text(job_id)
        shown.page.keyboard.press("Escape")
        expect(shown.row(newer)).to_be_visible()


def test_a_press_on_an_answer_is_not_lost(browser: Browser, commands: Commands) -> None:
    """A press on a question's button answers it, though the timeline grows meanwhile."""
    job_id = commands.detached("asker", "--lease", "tool.call=human.ask")
    with console(browser, commands.url) as shown:
        shown.sign_in(place=f"/jobs/{job_id}")
        answer = shown.page.get_by_role("button", name="that one")
        expect(answer).to_be_enabled()
        press(shown, answer)
        (commands.folder / "talk").touch()
        shown.page.wait_for_timeout(REDRAWN_MS)
        shown.page.mouse.up()
        expect(shown.page.get_by_role("region", name="Result")).to_contain_text("that one")
        expect(shown.articles("log")).to_have_count(80)


def test_a_row_keeps_its_selection_and_focus(browser: Browser, commands: Commands) -> None:
    """What is selected in a row, and the focus on its link, outlast what is new in the row."""
    job_id = commands.detached("waiting")
    with console(browser, commands.url) as shown:
        shown.sign_in()
        link = shown.row(job_id).get_by_role("link")
        link.focus()
        link.evaluate("link => getSelection().selectAllChildren(link)")
        took = shown.row(job_id).get_by_role("cell").nth(4)
        for _ in range(2):
            expect(took).not_to_have_text(took.inner_text())
        newer = commands.detached("waiting")
        expect(shown.row(newer)).to_be_visible()
        expect(link).to_be_focused()
        assert shown.page.evaluate("getSelection().toString()") == job_id


def test_a_timeline_follows_its_end(browser: Browser, commands: Commands) -> None:
    """The timeline follows the end, not while one has scrolled up, and again at the end."""
    job_id = commands.detached("teller")
    with console(browser, commands.url, height=1000) as shown:
        shown.sign_in(place=f"/jobs/{job_id}")
        page, log = shown.page, shown.page.get_by_role("log", name="Timeline")
        expect(shown.articles()).to_have_count(60)
        page.wait_for_function(AT_END, arg=log.element_handle())
        log.evaluate(SCROLL, -300)
        seen = log.evaluate(FIRST_SEEN)
        (commands.folder / "more").touch()
        expect(shown.articles()).to_have_count(80)
        assert log.evaluate(FIRST_SEEN) == seen
        log.evaluate(SCROLL, 100_000)
        (commands.folder / "more").touch()
        expect(shown.articles()).to_have_count(100)
        page.wait_for_function(AT_END, arg=log.element_handle())
