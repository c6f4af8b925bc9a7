"""`arcp-trio stop`: ends the `serve` that uses a folder, and says before what ends with it."""

from __future__ import annotations

import os
import re
import signal
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import trio

from arcp_trio.addresses import UNIX_PREFIX
from arcp_trio.cli.data_folder import find_folder, holder, kept_address, pid_path
from arcp_trio.cli.errors import CommandError, ExitCode, reason
from arcp_trio.cli.keyboard import can_ask, is_meant, tell
from arcp_trio.cli.serve.options import StopOptions
from arcp_trio.cli.serve.stopping import losses
from arcp_trio.plainfile import open_plain

_LOOK_SECONDS: Final = 0.05
_LONG_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 5.0
_HOW: Final = "type yes to stop it; anything else lets it go on"
_METRIC: Final = re.compile(r'^arcp_jobs_at_stop\{what="(\w+)"\} (\d+)$', re.MULTILINE)


def run(options: StopOptions) -> int:
    """Ask the process to end in order, wait until it has, and return the exit code."""
    folder = find_folder(options.data, os.environ).absolute()
    try:
        with open_plain(pid_path(folder)) as file:
            process = holder(file)
            if process is not None:
                _refuse_if_elsewhere(process, folder)
                _warn(folder, ask=not options.yes)
                with suppress(ProcessLookupError):  # it has just ended
                    os.kill(process, signal.SIGTERM)
                begun = time.monotonic()
                told = False
                while holder(file) == process:
                    time.sleep(_LOOK_SECONDS)
                    if not told and time.monotonic() - begun > _LONG_SECONDS:
                        told = True
                        words = "lets its jobs finish; press Ctrl-C to stop waiting"
                        tell(f"process {process} {words}")
                tell(f"the serve of {folder} has ended")
                return ExitCode.SUCCESS
    except FileNotFoundError:
        pass
    except OSError as error:
        raise CommandError(f"cannot stop the serve of {folder}: {reason(error)}") from error
    raise CommandError(f"there is no serve that uses {folder}", exit_code=ExitCode.FAILED)


def _refuse_if_elsewhere(process: int, folder: Path) -> None:
    if process == 0:
        raise CommandError(
            f"the serve of {folder} is in another container, or on another machine: stop it there",
            exit_code=ExitCode.FAILED,
        )


def _warn(folder: Path, *, ask: bool) -> None:
    """Say what ends and what goes on; on a terminal, ask before jobs are lost.

    Raises:
        CommandError: the person at the terminal wants the runtime to go on.
    """
    left = _unfinished(folder)
    if left is None:
        said = f"what ends with the serve of {folder} is not known, as it does not answer"
    elif any(left.values()):
        said = losses(left)
    else:
        return
    if not ask or not can_ask() or (left is not None and not left["ending"]):
        tell(said)
    elif not trio.run(is_meant, said, _HOW):
        raise CommandError(f"the serve of {folder} goes on", exit_code=ExitCode.FAILED)


def _unfinished(folder: Path) -> Mapping[str, int] | None:
    """Ask the runtime of a folder what a stop does to its jobs; None if there is no answer."""
    address = kept_address(folder)
    if address is None:
        return None
    try:
        with closing(_connection(address)) as connection:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
    except (OSError, HTTPException, ValueError):
        return None
    return {what: int(count) for what, count in _METRIC.findall(text)} or None


def _connection(address: str) -> HTTPConnection:
    """Return a connection to an address that its `serve` keeps: its certificate proves no more."""
    if address.startswith(UNIX_PREFIX):
        connection = HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(_ANSWER_SECONDS)
        connection.sock.connect(address.removeprefix(UNIX_PREFIX))
        return connection
    parts = urlsplit(address)
    if parts.scheme == "ws":
        return HTTPConnection(parts.netloc, timeout=_ANSWER_SECONDS)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return HTTPSConnection(parts.netloc, timeout=_ANSWER_SECONDS, context=context)
