"""`arcp-trio stop`: ends the `serve` that uses a folder."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from arcp_trio.cli.data_folder import find_folder, holder, pid_path
from arcp_trio.cli.errors import CommandError, ExitCode, reason
from arcp_trio.cli.serve.options import StopOptions
from arcp_trio.plainfile import open_plain

_LOOK_SECONDS: Final = 0.05
_LONG_SECONDS: Final = 5.0


def run(options: StopOptions) -> int:
    """Ask the process to end in order, wait until it has, and return the exit code."""
    folder = find_folder(options.data, os.environ).absolute()
    try:
        with open_plain(pid_path(folder)) as file:
            process = holder(file)
            if process is not None:
                _ask(process, folder)
                begun = time.monotonic()
                told = False
                while holder(file) == process:
                    time.sleep(_LOOK_SECONDS)
                    if not told and time.monotonic() - begun > _LONG_SECONDS:
                        told = True
                        words = "lets its jobs finish; press Ctrl-C to stop waiting"
                        _say(f"process {process} {words}")
                _say(f"the serve of {folder} has ended")
                return ExitCode.SUCCESS
    except FileNotFoundError:
        pass
    except OSError as error:
        raise CommandError(f"cannot stop the serve of {folder}: {reason(error)}") from error
    raise CommandError(f"there is no serve that uses {folder}", exit_code=ExitCode.FAILED)


def _ask(process: int, folder: Path) -> None:
    if process == 0:
        raise CommandError(
            f"the serve of {folder} is in another container, or on another machine: stop it there",
            exit_code=ExitCode.FAILED,
        )
    with suppress(ProcessLookupError):  # it has just ended
        os.kill(process, signal.SIGTERM)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
