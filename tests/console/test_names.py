"""The roles and names by which others find what is on the page: they outlast its looks."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.cli.clients import TOKEN, Commands
from tests.cli.processes import ROOT
from tests.console.pages import console

pytestmark = pytest.mark.real_tcp

AXE = ROOT / ".venv" / "js" / "node_modules" / "axe-core" / "axe.min.js"
SHOP = ("--lease", "tool.call=shop.*", "--budget", "USD:1.00")


def test_signing_in_has_names(browser: Browser, commands: Commands) -> None:
    """The form is `Sign in` with `Token`; the status is `Signed out`, and then `Live`."""
    with console(browser, commands.url) as shown:
        page = shown.page
        page.goto(shown.origin)
        shown.wait_for("Signed out")
        expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
        form = page.get_by_role("form", name="Sign in")
        form.get_by_role("textbox", name="Token").fill(TOKEN)
        page.keyboard.press("Enter")
        shown.wait_for("Live")


def test_the_jobs_have_names(browser: Browser, commands: Commands) -> None:
    """The table is `Jobs`; a row begins with the state's word, and has the id as its link."""
    job_id = commands.detached("echo")
    commands.run("watch", job_id)
    with console(browser, commands.url) as shown:
        shown.sign_in()
        page = shown.page
        expect(page.get_by_role("heading", level=1)).to_have_text("Jobs")
        expect(page.get_by_role("searchbox", name="Find")).to_be_visible()
        expect(page.get_by_role("combobox", name="Agent")).to_be_visible()
        expect(shown.row(job_id)).to_have_count(1)
        expect(shown.row(job_id).get_by_role("cell").first).to_have_text("success")
        shown.row(job_id).get_by_role("link", name=job_id, exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_have_text(job_id)


def test_each_width_has_its_columns(browser: Browser, commands: Commands) -> None:
    """A narrow table has the columns that are needed most, each with room for its words."""
    commands.detached("echo")
    columns = {
        1024: ["State", "Job", "Agent", "Started", "Took", "Last event", "Money"],
        360: ["State", "Job", "Agent"],
    }
    with console(browser, commands.url) as shown:
        shown.sign_in()
        expect(shown.table.get_by_role("link").first).to_be_visible()
        heads = shown.table.get_by_role("columnheader")
        for width, names in columns.items():
            shown.page.set_viewport_size({"width": width, "height": 800})
            expect(heads).to_have_text(names)
            fits = "all => all.every(each => each.scrollWidth <= each.clientWidth)"
            assert heads.evaluate_all(fits)


def test_a_job_has_names(browser: Browser, commands: Commands) -> None:
    """The log is `Timeline`, with an article for each event; `Event` is the slider."""
    shop, waiting = commands.detached("shopper", *SHOP), commands.detached("waiting")
    journal = [each for each in commands.run("watch", shop, "--json").objects if "kind" in each]
    with console(browser, commands.url) as shown:
        shown.sign_in(place=f"/jobs/{shop}")
        page = shown.page
        articles = page.get_by_role("log", name="Timeline").get_by_role("article")
        expect(articles).to_have_count(len(journal) + 1)
        told = articles.evaluate_all("all => all.map(each => ({ ...each.dataset }))")
        assert [each["kind"] for each in told] == [*(each["kind"] for each in journal), "end"]
        seqs = [int(each["seq"]) for each in told]
        assert seqs == list(range(seqs[0], seqs[0] + len(told)))
        expect(page.get_by_role("slider", name="Event")).to_be_visible()
        expect(page.get_by_role("searchbox", name="Find")).to_be_visible()
        expect(page.get_by_role("button", name="Run again")).to_be_visible()
        expect(page.get_by_role("button", name="Cancel job")).to_be_hidden()
        page.goto(f"{shown.origin}/#/jobs/{waiting}")
        expect(page.get_by_role("progressbar")).to_be_visible()
        expect(page.get_by_role("button", name="Cancel job")).to_be_visible()


def test_the_form_has_names(browser: Browser, commands: Commands) -> None:
    """A job is submitted with `Agent`, `Input` and `Submit`, by the keyboard alone."""
    with console(browser, commands.url) as shown:
        shown.sign_in(place="/new")
        page = shown.page
        expect(page.get_by_role("heading", level=1)).to_have_text("New job")
        page.get_by_role("combobox", name="Agent").select_option("parrot@1")
        page.get_by_role("textbox", name="Input").fill('"hello"')
        page.get_by_role("button", name="Submit").focus()
        page.keyboard.press("Enter")
        expect(shown.articles("end")).to_contain_text("hello")


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1200, "dark")])
def test_it_is_for_everybody(
    browser: Browser, commands: Commands, width: int, scheme: Literal["light", "dark"]
) -> None:
    """On each place axe-core finds nothing serious, and nothing is wider than the screen."""
    if not AXE.exists():
        pytest.skip("no axe-core: .ci/browser has not installed it")
    shop = commands.detached("shopper", "--lease", "tool.call=shop.*", "--budget", "USD:1.00")
    cook = commands.detached("cook", "--lease", "tool.call=human.ask")
    with console(browser, commands.url, width=width) as shown:
        page = shown.page
        page.emulate_media(color_scheme=scheme)
        page.goto(shown.origin)
        found = {"sign in": serious(page, AXE)}
        shown.sign_in()
        nowhere = "/jobs/job_01ARZ3NDEKTSV4RRFFQ69G5FAV"
        jobs = (f"/jobs/{shop}", f"/jobs/{shop}?at=3", nowhere, f"/jobs/{cook}")
        for place in ("/", "/?state=error", "/new", *jobs):
            page.goto(f"{shown.origin}/#{place}")
            page.get_by_role("heading", level=1).wait_for()
            page.wait_for_timeout(500)
            found[place] = serious(page, AXE)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.get_by_role("button", name="Cancel job").click()
        page.get_by_role("dialog").wait_for()
        found["dialog"] = serious(page, AXE)
        assert {place: faults for place, faults in found.items() if faults} == {}


def serious(page: Page, axe: Path) -> list[str]:
    """Return what axe-core finds on a page that is serious, or worse."""
    page.evaluate(axe.read_text(encoding="utf-8"))
    faults: list[str] = page.evaluate(
        """async () => (await axe.run()).violations
            .filter((each) => ['serious', 'critical'].includes(each.impact))
            .map((each) => `${each.id}: ${each.nodes.map((node) => node.html).join(' ')}`)"""
    )
    return faults


def test_faults_are_noticed(browser: Browser, commands: Commands) -> None:
    """What every test here asks of the page would be seen: markup that runs, a foreign request."""
    with console(browser, commands.url) as shown:
        shown.sign_in()
        shown.check()
        for what, act in (
            ("leaves", "document.body.innerHTML += '<img src=http://127.0.0.1:1/a.png>'"),
            ("Content Security Policy", "document.body.innerHTML += '<p style=color:red>'"),
            ("thrown", "setTimeout(() => { throw new Error('thrown') })"),
        ):
            shown.page.evaluate(act)
            while not any(what in each for each in shown.faults):  # pytest-timeout bounds it
                shown.page.wait_for_timeout(20)
            with pytest.raises(AssertionError):
                shown.check()
            shown.faults.clear()
        shown.page.goto("about:blank")  # what is still to be told comes before it
        shown.faults.clear()
