"""The console with agents that say what could harm a page."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Browser, expect

from tests.cli.clients import HOSTILE, Commands
from tests.console.pages import console

pytestmark = pytest.mark.real_tcp


@pytest.mark.parametrize(
    "said",
    [
        HOSTILE.replace("\x00", ""),
        "<img src=x onerror=alert(1)><script>alert(1)</script>",
        "javascript:alert(1)",
        "x" * 100_000,
    ],
)
def test_hostile_words_change_nothing(browser: Browser, commands: Commands, said: str) -> None:
    """What an agent says is text: no markup, no link but to the web, no character unseen."""
    job_id = commands.detached("parrot", "--input", json.dumps(said))
    commands.run("watch", job_id)
    with console(browser, commands.url) as shown:
        dialogs: list[str] = []
        shown.page.on("dialog", lambda dialog: dialogs.append(dialog.message))
        shown.sign_in()
        expect(shown.row(job_id)).to_be_visible()
        shown.page.goto(f"{shown.origin}/#/jobs/{job_id}")
        expect(shown.articles("end")).to_be_visible()
        text = shown.page.get_by_role("main").inner_text()
        assert "\u202e" not in text
        assert shown.page.locator("main img, main script, main a[href^=javascript]").count() == 0
        assert dialogs == []
        wide = shown.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert wide


def test_monstrous_events_are_folded(browser: Browser, commands: Commands) -> None:
    """A line of a megabyte and 100,000 keys are folded; only addresses of the web are links."""
    job_id = commands.detached("monster")
    with console(browser, commands.url) as shown:
        shown.sign_in(place=f"/jobs/{job_id}")
        expect(shown.articles("end")).to_be_visible()
        assert len(shown.page.get_by_role("log").inner_text()) < 10_000
        links = shown.articles("artifact_ref").get_by_role("link")
        expect(links).to_have_attribute("href", "https://example.com/a?b=<i>")
        expect(links).to_have_attribute("rel", "noopener noreferrer")
        assert shown.page.evaluate("({}).polluted") is None
        shown.articles("x-vendor.acme.keys").locator("summary").click()
        expect(shown.articles("x-vendor.acme.keys").locator("pre")).to_contain_text('"0": 0,')
