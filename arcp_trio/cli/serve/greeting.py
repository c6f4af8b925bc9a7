"""What `serve` says on a terminal once it listens: where its token and console are, what to try."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from arcp_trio.addresses import page_url, signed_in
from arcp_trio.cli import defaults
from arcp_trio.cli.data_folder import token_path
from arcp_trio.cli.errors import PROGRAM
from arcp_trio.cli.serve.options import ServeOptions
from arcp_trio.cli.text import fitted, safe_line

_FAVOURITE: Final = "countdown"
"""The demo agent to try first, because one can watch it."""


def greet(options: ServeOptions, url: str, made_token: str | None, agents: Sequence[str]) -> None:
    """Write the greeting to standard error if that is a terminal; programs need none."""
    if not sys.stderr.isatty():
        return
    lines: list[str] = []
    if made_token is not None and options.folder is not None:
        path = token_path(options.folder)
        lines.append(f"  it is kept in {path}, where the client commands find it")
    page = None if options.no_console else page_url(url)
    if page is not None:
        lines.append(f"open {page if made_token is None else signed_in(page, made_token)}")
    columns = shutil.get_terminal_size().columns
    if agents:
        lines.append(fitted(f"agents: {safe_line(', '.join(agents))}", columns))
        lines.append(f"try: {_command(options, url, made_token, agents)}")
    else:
        lines.append("agents: none; name some with --agent or --agents")
    with suppress(OSError):  # standard error is closed, but `serve` goes on
        sys.stderr.write("".join(f"{line}\n" for line in lines))
        sys.stderr.flush()


def _command(options: ServeOptions, url: str, made_token: str | None, agents: Sequence[str]) -> str:
    agent = _FAVOURITE if _FAVOURITE in agents else agents[0]
    words = [*_program(), "submit", agent]
    if options.folder is None:
        words += [] if url == defaults.URL else ["--url", url]
    elif options.data != defaults.DATA:
        words += ["--data", options.data]
    if made_token is None:
        words += ["--token", "TOKEN"]
    elif options.folder is None:
        words += ["--token", made_token]
    return shlex.join(words)


def _program() -> list[str]:
    """Return how a shell in the current folder starts this program."""
    installed = Path(sys.executable).with_name(PROGRAM)
    if not installed.exists():
        return [sys.executable, "-m", "arcp_trio"]
    found = shutil.which(PROGRAM)
    if found is not None and Path(found).samefile(installed):
        return [PROGRAM]
    here = Path.cwd()
    return [str(installed.relative_to(here) if installed.is_relative_to(here) else installed)]
