"""SIGHUP: what `serve` reads again while it goes on, and how it ends with its terminal."""

from __future__ import annotations

import errno
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from types import FrameType
from typing import Final

import attrs

from arcp_trio.cli.errors import CommandError
from arcp_trio.cli.serve.admission import Admission
from arcp_trio.cli.serve.config import Config, settle
from arcp_trio.cli.serve.options import ServeOptions
from arcp_trio.plainfile import read_plain
from arcp_trio.runtime.runtime import Runtime

Reloads = Mapping[str, Callable[[], None]]
"""What is read again, by its name in the log. A function that raises has changed nothing."""

_RELOADED: Final = frozenset({"token", "token_file"})
"""The options that take effect when they are read again."""

log = logging.getLogger(__name__)


class Terminal:
    """The terminal that the process was started in; closing it sends SIGHUP, too."""

    def __init__(self) -> None:
        """Make SIGHUP harmless from here on; call this before anything that takes long."""
        # A function and not SIG_IGN, which child processes would inherit.
        before = signal.signal(signal.SIGHUP, _nothing)
        # With SIGHUP ignored, as nohup does, the process is meant to outlive its terminal.
        self._matters = before is not signal.SIG_IGN and _has_terminal()

    @property
    def closed(self) -> bool:
        """Whether the terminal was closed, and the process is to end with it."""
        return self._matters and not _has_terminal()


def _nothing(_number: int, _frame: FrameType | None) -> None:
    pass


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError as error:
        # Without a free descriptor this cannot be known, and a busy runtime must not end for that.
        return error.errno in (errno.EMFILE, errno.ENFILE)
    return True


async def reload_at(hangups: AsyncIterator[int], terminal: Terminal, reloads: Reloads) -> None:
    """Read everything again at each SIGHUP, until the terminal is closed.

    What cannot be read stays as it was.
    """
    async for _ in hangups:
        if terminal.closed:
            log.info("terminal closed")
            return
        for what, read_again in reloads.items():
            try:
                read_again()
            except CommandError as error:
                log.error("reload failed", extra={"what": what, "error": str(error)})  # noqa: TRY400
            except Exception:  # a fence: no content of a file may end the jobs
                log.exception("reload failed", extra={"what": what})
            else:
                log.info("reloaded", extra={"what": what})


def read_tokens_again(
    given: Mapping[str, object], config: Config, admission: Admission, runtime: Runtime
) -> None:
    """Accept the tokens of the configuration and of the token file as they are now.

    Clients with other tokens have to go.

    Raises:
        CommandError: they cannot be read; the tokens before are still accepted.
    """
    now = settle(given, read=read_plain)
    admission.gather_again(now.options)
    runtime.recheck_tokens()
    if changed := _needing_restart(config, now):
        log.warning("changes wait for a restart", extra={"options": ", ".join(changed)})


def _needing_restart(before: Config, now: Config) -> list[str]:
    names = [field.name for field in attrs.fields(ServeOptions) if field.name not in _RELOADED]
    changed = [n for n in names if getattr(before.options, n) != getattr(now.options, n)]
    tables = [n for n in ("limits", "ceilings") if getattr(before, n) != getattr(now, n)]
    return [*changed, *tables]
