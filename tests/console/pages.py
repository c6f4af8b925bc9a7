"""The console in a real browser, and what every test asks: no violation, no foreign request."""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from attrs import field, frozen
from playwright.sync_api import Browser, Locator, Page, WebSocket, expect, sync_playwright
from playwright.sync_api import Error as PlaywrightError

from tests.cli.clients import TOKEN, Commands
from tests.cli.processes import starter

WAIT_MS: Final = 60_000
FILE_SECONDS: Final = 300.0
"""The time that the tests of one file may take together."""
MOST_FRAMES: Final = 60
"""Frames that a failure tells of."""
FRAME_SHOWN: Final = 300

expect.set_options(timeout=WAIT_MS)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run the system's browser for the block; skip the test where there is no browser."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("no chromium is installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def serving(folder: Path, agents: str) -> Iterator[Commands]:
    """Serve these agents alone for the block, in memory, with the folder as theirs."""
    (folder / "own_agents.py").write_text(agents, encoding="utf-8")
    options = ("--memory", "--agents=own_agents", f"--token=alice={TOKEN}", "--log-level=error")
    with starter(folder, lifetime=FILE_SECONDS) as start:
        yield Commands(start("serve", "--port=0", *options).url(), folder)


@frozen
class Console:
    """A page of the console."""

    page: Page
    origin: str
    faults: list[str] = field(factory=list)
    """Violations of the policy, exceptions, and requests that leave the origin."""
    frames: deque[str] = field(factory=lambda: deque(maxlen=MOST_FRAMES))
    """What was sent and received last, cut short."""

    def cancel_job(self) -> None:
        """Cancel the job that the page shows, and say so once more in the dialog."""
        self.page.get_by_role("button", name="Cancel job").click()
        self.page.get_by_role("dialog").get_by_role("button", name="Cancel job").click()

    def sign_in(self, token: str = TOKEN, place: str = "/") -> None:
        """Open the link with a token, and then a place."""
        self.page.goto(f"{self.origin}/#token={token}")
        self.wait_for("Live")
        if place != "/":
            self.page.goto(f"{self.origin}/#{place}")

    def wait_for(self, state: str) -> None:
        """Wait for a state of the connection."""
        self.page.get_by_role("contentinfo").get_by_role("status").get_by_text(
            state, exact=True
        ).wait_for()

    @property
    def table(self) -> Locator:
        """The table of jobs."""
        return self.page.get_by_role("table", name="Jobs")

    def row(self, job_id: str) -> Locator:
        """Return the row of a job."""
        return self.table.get_by_role("row").filter(has=self.page.get_by_role("link", name=job_id))

    def articles(self, kind: str | None = None) -> Locator:
        """Return the articles of the timeline, of all kinds or of one."""
        kinds = "" if kind is None else f'[data-kind="{kind}"]'
        return self.page.get_by_role("log", name="Timeline").locator(f"article{kinds}")

    def heading(self) -> str:
        """Return the subject of the page."""
        return self.page.get_by_role("heading", level=1).inner_text()

    def story(self) -> str:
        """Return what the page shows and what it heard, for somebody who looks into a failure."""
        try:
            shows = self.page.locator("body").aria_snapshot(timeout=5_000)
        except PlaywrightError as error:
            shows = f"the page shows too much, or nothing: {error}"
        return "\n".join([self.page.url, shows, *self.faults, *self.frames])

    def check(self) -> None:
        """Fail if anything was wrong."""
        assert self.faults == []


@contextmanager
def console(
    browser: Browser, url: str, *, width: int = 1200, height: int = 800
) -> Iterator[Console]:
    """Open a page of the runtime at `url` in a browser of its own, and check it at the end."""
    origin = url.replace("ws://", "http://").removesuffix("/arcp")
    context = browser.new_context(
        viewport={"width": width, "height": height}, locale="en-GB", timezone_id="UTC"
    )
    context.set_default_timeout(WAIT_MS)
    shown = Console(context.new_page(), origin)
    watch(shown)
    try:
        yield shown
        shown.check()
    except Exception as error:
        error.add_note(shown.story())
        raise
    finally:
        context.close()


def watch(shown: Console) -> None:
    """Note what must not happen."""
    page, faults = shown.page, shown.faults
    page.on("pageerror", lambda error: faults.append(f"exception: {error}"))
    page.on(
        "console",
        lambda said: faults.append(said.text) if "Content Security Policy" in said.text else None,
    )
    page.on("websocket", lambda opened: note_frames(opened, shown.frames))
    own = (shown.origin, shown.origin.replace("http", "ws"), "data:", "blob:")
    page.on(
        "request",
        lambda asked: None if asked.url.startswith(own) else faults.append(f"leaves: {asked.url}"),
    )
    page.on(
        "websocket",
        lambda opened: None if opened.url.startswith(own) else faults.append(opened.url),
    )


def note_frames(socket: WebSocket, frames: deque[str]) -> None:
    """Keep the beginnings of a connection's frames."""

    def note(way: str, frame: str | bytes) -> None:
        frames.append(f"{datetime.now(UTC):%T.%f} {way} {frame[:FRAME_SHOWN]!s}")

    socket.on("framesent", partial(note, ">"))
    socket.on("framereceived", partial(note, "<"))
    socket.on("close", lambda _: frames.append("closed"))
