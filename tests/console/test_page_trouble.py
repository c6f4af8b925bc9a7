"""What the page says when the runtime refuses something, does not answer, or is gone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from attrs import field, frozen
from playwright.sync_api import Browser, Page, WebSocketRoute, expect

from tests.cli.clients import TOKEN, Commands
from tests.cli.processes import starter
from tests.console.pages import console, serving

pytestmark = pytest.mark.real_tcp

SHOUTER = """
import arcp_trio

agents = arcp_trio.Agents()

@agents.agent("shouter")
async def shouter(job):
    for _ in range(60):
        await job.log("x" * 900_000)
"""
"""Says more than the page keeps."""


@frozen
class Between:
    """Stands between the page and the runtime, which answers all but the messages named here."""

    refused: set[str] = field(factory=set)
    """Types of messages that are refused."""
    unanswered: set[str] = field(factory=set)
    """Types of messages that get lost."""

    def stand(self, page: Page) -> None:
        """Stand between this page and its runtime from now on."""

        def take(opened: WebSocketRoute) -> None:
            runtime = opened.connect_to_server()
            opened.on_message(lambda text: self._pass_on(text, opened, runtime))

        page.route_web_socket(re.compile("/arcp$"), take)

    def _pass_on(self, text: str | bytes, opened: WebSocketRoute, runtime: WebSocketRoute) -> None:
        message = json.loads(text)
        if message["type"] in self.refused:
            why = {"code": "RESOURCE_EXHAUSTED", "message": "too much is asked for"}
            payload = {**why, "retryable": True, "request_id": message["id"]}
            refusal = {"arcp": "1.1", "id": "x", "type": "session.error", "payload": payload}
            opened.send(json.dumps(refusal))
        elif message["type"] not in self.unanswered:
            runtime.send(text)


def test_a_list_that_is_refused(browser: Browser, commands: Commands) -> None:
    """The page says why jobs are missing, as long as they are."""
    job_id = commands.detached("echo")
    between = Between(refused={"session.list_jobs"})
    with console(browser, commands.url) as shown:
        between.stand(shown.page)
        shown.sign_in()
        words = shown.page.get_by_text("Not all jobs are shown: too much is asked for.")
        expect(words).to_be_visible()
        between.refused.clear()
        expect(shown.row(job_id)).to_be_visible()
        expect(words).to_have_count(0)


def test_a_list_that_does_not_come(browser: Browser, commands: Commands) -> None:
    """The foot of the page says that there is no answer, and for how long."""
    between = Between(unanswered={"session.list_jobs"})
    with console(browser, commands.url) as shown:
        between.stand(shown.page)
        shown.sign_in()
        foot = shown.page.get_by_role("contentinfo")
        expect(foot).to_contain_text(re.compile(r"no answer for \d+.* s"))
        expect(shown.page.get_by_text("Looking…")).to_be_visible()


def test_a_job_that_is_refused(browser: Browser, commands: Commands) -> None:
    """The page of a job says why the job is not shown."""
    job_id = commands.detached("waiting")
    between = Between(refused={"job.subscribe"})
    with console(browser, commands.url) as shown:
        between.stand(shown.page)
        shown.sign_in(place=f"/jobs/{job_id}")
        alert = shown.page.get_by_role("alert")
        expect(alert).to_have_text("The job cannot be shown: too much is asked for.")


def test_a_job_with_refusals(browser: Browser, commands: Commands) -> None:
    """The page of a job says what of it may be old, and why there is no download."""
    job_id = commands.detached("waiting")
    between = Between()
    with console(browser, commands.url) as shown:
        between.stand(shown.page)
        shown.sign_in(place=f"/jobs/{job_id}")
        expect(shown.articles("log")).to_contain_text("begun")
        between.refused.update({"session.list_jobs", "job.subscribe"})
        old = shown.page.get_by_text("What is shown here may be old: too much is asked for.")
        expect(old).to_be_visible()
        shown.page.get_by_role("button", name="Download events").click()
        missing = "The events were not received: too much is asked for."
        expect(shown.page.get_by_text(missing)).to_be_visible()
        between.refused.clear()
        expect(old).to_be_hidden()
        with shown.page.expect_download():
            shown.page.get_by_role("button", name="Download events").click()
        expect(shown.page.get_by_text(missing)).to_be_hidden()


@pytest.mark.soak
def test_events_that_are_refused(browser: Browser, tmp_path: Path) -> None:
    """Where other events of a job are refused, the timeline says why; they can come later."""
    between = Between()
    with serving(tmp_path, SHOUTER) as commands, console(browser, commands.url) as shown:
        job_id = commands.detached("shouter")
        between.stand(shown.page)
        shown.sign_in(place=f"/jobs/{job_id}")
        expect(shown.articles("end")).to_be_attached()
        between.refused.add("job.subscribe")
        earlier = shown.page.get_by_role("button", name="Show earlier events")
        earlier.click()
        words = shown.page.get_by_text("These events cannot be shown: too much is asked for.")
        expect(words).to_be_visible()
        between.refused.clear()
        earlier.click()
        expect(shown.page.get_by_role("button", name="Show later events")).to_be_visible()
        expect(words).to_have_count(0)


def test_an_error_is_told_once(browser: Browser, commands: Commands) -> None:
    """The error of a job is above its timeline, and at the end of it, and nowhere else."""
    job_id = commands.detached("failing")
    with console(browser, commands.url) as shown:
        shown.sign_in(place=f"/jobs/{job_id}")
        expect(shown.page.get_by_role("region", name="Result")).to_contain_text("luck")
        expect(shown.articles("end")).to_contain_text("luck")
        expect(shown.page.get_by_role("main").get_by_text(re.compile("luck"))).to_have_count(2)


def test_a_runtime_that_is_gone(browser: Browser, tmp_path: Path) -> None:
    """When the runtime is gone the page says so; when another one is there, it goes on."""
    with starter(tmp_path) as start:
        options = ("serve", "--memory", f"--token=alice={TOKEN}", "--log-level=error")
        first = start(*options, "--port=0")
        url = first.url()
        with console(browser, url) as shown:
            shown.sign_in()
            first.process.kill()
            first.end()
            shown.wait_for("Reconnecting")
            expect(shown.page.get_by_text("Lost the runtime, trying again in")).to_be_visible()
            start(*options, f"--port={url.rpartition(':')[2].partition('/')[0]}").url()
            shown.wait_for("Live")
            expect(shown.page.get_by_text("No jobs yet.")).to_be_visible()
