"""Starting a process from a thread that lives as long as the process does.

A process can ask the kernel to be killed when its parent ends, as `bwrap --die-with-parent` does.
The kernel takes the thread that forked it for that parent. Trio starts processes in threads that
end after some idle seconds, and such a process would be killed then, at its work.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio


class StartedProcess:
    """A process that leads a group of its own, with pipes to its standard streams."""

    def __init__(self, popen: subprocess.Popen[bytes], exited: trio.Event) -> None:
        assert popen.stdin is not None
        assert popen.stdout is not None
        self.pid: Final = popen.pid
        self.stdin: Final = _stream(popen.stdin.fileno())
        self.stdout: Final = _stream(popen.stdout.fileno())
        self.stderr: Final = None if popen.stderr is None else _stream(popen.stderr.fileno())
        for pipe in (popen.stdin, popen.stdout, popen.stderr):
            if pipe is not None:
                pipe.close()
        self._popen = popen
        self._exited = exited

    @property
    def returncode(self) -> int | None:
        """The exit code, or minus the number of the signal that ended the process."""
        return self._popen.returncode

    async def wait(self) -> None:
        """Wait until the process has exited."""
        await self._exited.wait()


async def start(
    command: Sequence[str],
    *,
    cwd: str | Path | None = None,
    environment: Mapping[str, str] | None = None,
    keep_stderr: bool = False,
) -> StartedProcess:
    """Start a process.

    Cancellation: has no effect once the process is being started.

    Raises:
        OSError: the program cannot be started.
    """
    await trio.lowlevel.checkpoint_if_cancelled()
    tell = trio.lowlevel.current_trio_token().run_sync_soon
    started, exited = trio.Event(), trio.Event()
    made: list[subprocess.Popen[bytes] | Exception] = []

    def live() -> None:
        try:
            popen = subprocess.Popen(  # noqa: S603 - the caller's command
                command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if keep_stderr else None,
                cwd=cwd,
                env=environment,
                start_new_session=True,
            )
        except Exception as error:  # noqa: BLE001 - raised to the caller
            made.append(error)
            _tell(tell, started)
            return
        made.append(popen)
        _tell(tell, started)
        popen.wait()
        _tell(tell, exited)

    threading.Thread(target=live, name=f"parent of {command[0]}", daemon=True).start()
    with trio.CancelScope(shield=True):
        await started.wait()
    (found,) = made
    if isinstance(found, Exception):
        raise found
    return StartedProcess(found, exited)


def _tell(tell: Callable[[Callable[[], object]], object], event: trio.Event) -> None:
    with suppress(trio.RunFinishedError):
        tell(event.set)


def _stream(descriptor: int) -> trio.lowlevel.FdStream:
    return trio.lowlevel.FdStream(os.dup(descriptor))
