"""`arcp-trio console`: the link that opens the page, and what cannot be opened."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from tests.cli.clients import TOKEN, Commands
from tests.cli.processes import starter

pytestmark = pytest.mark.real_tcp


def test_the_link(commands: Commands) -> None:
    """The link has the page's address and the token, which is encoded for a link."""
    page = commands.url.replace("ws:", "http:").removesuffix("arcp")
    done = commands.run("console", "--print")
    assert (done.code, done.out, done.err) == (0, f"{page}#token={TOKEN}\n", "")


def test_a_browser_is_started(commands: Commands, tmp_path: Path) -> None:
    """The browser is started with the link, and nothing is printed."""
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {opened}\n', encoding="utf-8")
    browser.chmod(0o755)
    done = commands.run("console", BROWSER=f"{browser} %s")
    assert (done.code, done.out, done.err) == (0, "", "")
    assert opened.read_text(encoding="utf-8").endswith(f"/#token={TOKEN}")


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
