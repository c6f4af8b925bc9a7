"""What SIGHUP has `serve` read again, while everything goes on."""

from __future__ import annotations

import errno
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from types import FrameType

import attrs

from arcp_trio.cli.errors import CommandError
from arcp_trio.cli.options import ServeOptions
from arcp_trio.cli.serve.admission import Admission
from arcp_trio.cli.serve.config import Config, settle
from arcp_trio.plainfile import read_plain

Reloads = Mapping[str, Callable[[], None]]
"""What is read again, by its name; one that raises has changed nothing."""

_READ_AGAIN = frozenset({"token", "token_file"})

log = logging.getLogger(__name__)


class Terminal:
    """The terminal that the process was started in; closing it is a SIGHUP, too, to end it."""

    def __init__(self) -> None:
        """From here on a SIGHUP does nothing by itself. Make it before anything takes long."""
        # A function and not SIG_IGN: that, child processes would inherit.
        before = signal.signal(signal.SIGHUP, _nothing)
        # Who has it ignored, as nohup does, wants the process to outlive the terminal.
        self._minded = before is not signal.SIG_IGN and _has_terminal()

    @property
    def closed(self) -> bool:
        """Whether it is there no more."""
        return self._minded and not _has_terminal()


def _nothing(_number: int, _frame: FrameType | None) -> None:
    pass


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError as error:
        # Out of file descriptors nobody can tell, and a busy runtime is not to end for that.
        return error.errno in (errno.EMFILE, errno.ENFILE)
    return True


async def reload_at(hangups: AsyncIterator[int], terminal: Terminal, reloads: Reloads) -> None:
    """Read everything again at each SIGHUP, what cannot be read stays as it was.

    Returns when the terminal was closed.
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
            except Exception:  # a fence, which logs
                # Nothing that stands in a file may end the jobs.
                log.exception("reload failed", extra={"what": what})
            else:
                log.info("reloaded", extra={"what": what})


def read_tokens_again(given: Mapping[str, object], config: Config, admission: Admission) -> None:
    """Take the tokens of the configuration and the token file as they are now."""
    now = settle(given, read=read_plain)
    admission.gather_again(now.options)
    if changed := _needing_restart(config, now):
        log.warning("changes wait for a restart", extra={"options": ", ".join(changed)})


def _needing_restart(before: Config, now: Config) -> list[str]:
    names = [field.name for field in attrs.fields(ServeOptions) if field.name not in _READ_AGAIN]
    changed = [n for n in names if getattr(before.options, n) != getattr(now.options, n)]
    return [*changed, "limits"] if before.limits != now.limits else changed
