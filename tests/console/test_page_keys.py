"""The console by the keyboard alone: choosing, opening, finding, going back."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.cli.clients import Commands
from tests.console.pages import Console, console

pytestmark = pytest.mark.real_tcp


def assert_chosen(shown: Console, job_id: str) -> None:
    """Expect that the row of this job alone is chosen, and that its link has the focus."""
    expect(shown.table.locator("tr[aria-selected=true]")).to_have_attribute("data-job", job_id)
    expect(shown.row(job_id).get_by_role("link")).to_be_focused()


def test_j_and_k_choose(browser: Browser, commands: Commands) -> None:
    """`j` goes down and `k` goes up, neither beyond the ends; Enter opens what is chosen."""
    given = ("--input", '{"name": "Ada"}')
    jobs = [commands.detached("picky", *given) for _ in range(3)]
    with console(browser, commands.url) as shown:
        shown.sign_in(place="/?agent=picky")
        for job_id in jobs:
            expect(shown.row(job_id)).to_contain_text("success")
        newest, middle, oldest = reversed(jobs)
        walk = (newest, middle, oldest, oldest, middle, newest, newest, middle)
        for pressed, chosen in zip("jjjjkkkj", walk, strict=True):
            shown.page.keyboard.press(pressed)
            assert_chosen(shown, chosen)
        shown.page.keyboard.press("Enter")
        expect(shown.page.get_by_role("heading", level=1)).to_have_text(middle)


def test_escape_goes_back(browser: Browser, commands: Commands) -> None:
    """Escape leaves a field, closes a dialog, or goes back to the jobs: one of them at a time."""
    job_id = commands.detached("waiting")
    with console(browser, commands.url) as shown:
        shown.sign_in(place=f"/jobs/{job_id}")
        page = shown.page
        heading = page.get_by_role("heading", level=1)
        expect(shown.articles("log")).to_contain_text("begun")
        page.keyboard.press("/")
        expect(page.get_by_role("searchbox", name="Find")).to_be_focused()
        page.keyboard.type("jk")
        expect(page.get_by_role("searchbox", name="Find")).to_have_value("jk")
        page.keyboard.press("Escape")
        expect(page.get_by_role("searchbox", name="Find")).not_to_be_focused()
        expect(heading).to_have_text(job_id)
        page.get_by_role("button", name="Cancel job").click()
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        expect(heading).to_have_text(job_id)
        page.keyboard.press("Escape")
        expect(heading).to_have_text("Jobs")
        page.get_by_role("link", name="New job").click()
        expect(heading).to_have_text("New job")
        page.keyboard.press("Escape")
        expect(heading).to_have_text("Jobs")
        page.keyboard.press("Escape")
        expect(heading).to_have_text("Jobs")
