"""docs/console.png, which the README shows: the console with a real job.

`python -m tests.console.test_picture` makes the picture again.
"""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.cli.clients import TOKEN, Commands
from tests.cli.processes import ROOT, starter
from tests.console.pages import chromium, console

PICTURE: Final = ROOT / "docs" / "console.png"
WIDTH: Final = 1100
HEIGHT: Final = 840
AGENTS: Final = """
import arcp_trio, trio

agents = arcp_trio.Agents()

@agents.agent("planner", version="1.2.0")
async def planner(job):
    async def look(tool, args, result, seconds, cost):
        async with job.tool_call(tool, args) as call:
            await trio.sleep(seconds)
            call.result = result
        await job.metric("cost.search", cost, unit="USD")

    await job.status("searching", "from Bergen to Oslo, on 4 June")
    await job.thought("The night train would save a night in a hotel.")
    await look("search.trains", {"from": "Bergen", "to": "Oslo"}, {"trains": 6}, 1.2, 0.35)
    await job.progress(1, total=3, units="searches")
    await look("search.hotels", {"near": "Oslo S", "nights": 2}, {"rooms": 14}, 2.3, 0.80)
    await job.progress(2, total=3, units="searches")
    await job.log("no room below 900 NOK", level="warn")
    await look("search.trains", {"to": "Oslo", "night": True}, {"berths": 2}, 0.7, 0.35)
    await job.progress(3, total=3, units="searches")
    await job.ask("Which train shall I book?", options=["07:57, by day", "22:59, a berth"])
"""
_STEADY: Final = r"""() => {
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const seconds = (text) => text.split(':').reduce((sum, each) => 60 * sum + Number(each), 0);
    const two = (number) => String(number).padStart(2, '0');
    for (let timer = setTimeout(() => {}); timer; timer -= 1) clearTimeout(timer);
    let first;
    for (let node = texts.nextNode(); node; node = texts.nextNode()) {
        const text = node.data
            .replace(/job_\w{26}/g, 'job_01M7W1RE000000000000000001')
            .replace(/\b[0-9a-f]{32}\b/g, '0123456789abcdef0123456789abcdef')
            .replace(/lag \d.*? ms/, 'lag 4 ms')
            .replace(/^\d\d:\d\d:\d\d$/, (time) => {
                first ??= seconds(time);
                const since = (seconds(time) - first + 86400) % 86400;
                return `14:${two(5 + Math.floor(since / 60))}:${two(since % 60)}`;
            });
        const took = node.parentElement.previousElementSibling?.textContent === 'Took';
        node.data = took ? '6.0 s' : text;
    }
}"""
"""Stops the page, and puts others in the place of what differs from run to run."""


def take(page: Page) -> bytes:
    """Return a picture of the page."""
    page.evaluate(_STEADY)
    return page.screenshot(animations="disabled", caret="hide")


def picture(browser: Browser, folder: Path) -> bytes:
    """Run a job up to its question, and return a picture of its page."""
    (folder / "planners.py").write_text(AGENTS, encoding="utf-8")
    options = ("--memory", "--agents=planners", f"--token=alice={TOKEN}", "--log-level=error")
    lease = ("--lease=tool.call=search.*", "--lease=tool.call=human.ask", "--budget=USD:5.00")
    with starter(folder) as start:
        commands = Commands(start("serve", "--port=0", *options).url(), folder)
        job_id = commands.detached("planner", *lease)
        with console(browser, commands.url, width=WIDTH, height=HEIGHT) as shown:
            page = shown.page
            page.emulate_media(color_scheme="light")
            shown.sign_in(place=f"/jobs/{job_id}")
            page.get_by_role("button", name="22:59, a berth").wait_for()
            expect(page.get_by_role("definition").filter(has_text="waiting")).to_be_visible()
            expect(page.get_by_role("definition").filter(has_text="1.50 of").first).to_be_visible()
            return take(page)


@pytest.mark.real_tcp
def test_the_picture_can_be_made(browser: Browser, tmp_path: Path) -> None:
    """A picture of a real job has the size of the one that the README shows."""
    sizes = {struct.unpack(">II", png[16:24]) for png in (picture(browser, tmp_path), _kept())}
    assert sizes == {(WIDTH, HEIGHT)}
    assert "](docs/console.png)" in (ROOT / "README.md").read_text(encoding="utf-8")


def _kept() -> bytes:
    return PICTURE.read_bytes()


def main() -> None:
    """Make the picture that the README shows."""
    with chromium() as browser, tempfile.TemporaryDirectory() as folder:
        PICTURE.write_bytes(picture(browser, Path(folder)))


if __name__ == "__main__":
    main()
