"""The console beside a job that never stops talking: what the page keeps has a bound."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attrs import frozen
from playwright.sync_api import Browser, Page

from tests.cli.clients import TOKEN, Commands
from tests.cli.processes import starter
from tests.console.pages import console

pytestmark = [pytest.mark.real_tcp, pytest.mark.soak, pytest.mark.timeout(900)]

SIZES = (15_000, 45_000)
"""How many events the jobs have; the page keeps fewer of them than the smaller one has."""


@frozen
class Kept:
    """What a page keeps."""

    heap: int
    """Bytes of JavaScript, without what can be collected."""
    nodes: int


def kept(page: Page) -> Kept:
    """Return what the page keeps now."""
    session = page.context.new_cdp_session(page)
    for _ in range(2):
        session.send("HeapProfiler.collectGarbage")
    heap = session.send("Runtime.getHeapUsage")["usedSize"]
    nodes = page.evaluate("document.querySelectorAll('*').length")
    session.detach()
    return Kept(int(heap), nodes)


def test_memory_stops_growing(browser: Browser, tmp_path: Path) -> None:
    """Of a job with three times the events, the page keeps hardly more."""
    with starter(tmp_path, lifetime=900) as serve:
        options = ("--port=0", "--memory", f"--token=alice={TOKEN}", "--log-level=error")
        commands = Commands(serve("serve", *options).url(), tmp_path)
        found = []
        for size in SIZES:
            job_id = commands.detached("chatty", "--input", json.dumps({"n": size, "size": 300}))
            with console(browser, commands.url) as shown:
                shown.sign_in(place=f"/jobs/{job_id}")
                shown.page.locator("article[data-kind=end]").wait_for(timeout=300_000)
                assert shown.articles().count() < SIZES[0]
                found.append(kept(shown.page))
        smaller, larger = found
        assert larger.heap < 1.2 * smaller.heap, found
        assert larger.nodes < 1.1 * smaller.nodes, found
