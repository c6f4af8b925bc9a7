"""`arcp-trio console`: the link that opens the page, and what cannot be opened."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from tests.cli.clients import TOKEN, Commands
from tests.cli.processes import starter

pytestmark = pytest.mark.real_tcp


def test_the_link(commands: Commands) -> None:
    """The link has the page's address and a one-time code, which signs in, and never the token."""
    page = commands.url.replace("ws:", "http:").removesuffix("arcp")
    done = commands.run("console", "--print")
    link, _, code = done.out.rstrip().partition("#code=")
    assert (done.code, link, done.err) == (0, page, "")
    assert TOKEN not in done.out
    assert evolve(commands, token=code).run("jobs").code == 0
    assert "does not accept the token" in evolve(commands, token=code).refused(3, "jobs")
    view = commands.run("token").out.strip()  # is made for links
    assert evolve(commands, token=view).run("console", "--print").out == f"{page}#token={view}\n"


def test_a_browser_is_started(commands: Commands, tmp_path: Path) -> None:
    """The browser is started with the link, without the token, and nothing is printed."""
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {opened}\n', encoding="utf-8")
    browser.chmod(0o755)
    done = commands.run("console", BROWSER=f"{browser} %s")
    assert (done.code, done.out, done.err) == (0, "", "")
    link = opened.read_text(encoding="utf-8")
    assert "/#code=arcp-code." in link
    assert TOKEN not in link


def test_what_cannot_be_opened(commands: Commands, tmp_path: Path) -> None:
    """A wrong token, or a runtime on a Unix socket, is refused before a browser is started."""
    wrong = evolve(commands, token="wrong")
    assert "does not accept the token" in wrong.refused(3, "console", "--print")
    with starter(tmp_path) as start:
        options = ("--memory", f"--token=alice={TOKEN}", "--log-level=error")
        served = start("serve", f"--host=unix:{tmp_path}/socket", *options)
        here = evolve(commands, url=served.url())
        refusal = here.refused(2, "console", "--print")
        assert refusal.startswith("a browser cannot open unix:")
