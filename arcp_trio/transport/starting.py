"""Starting a process from a thread that lives as long as the process does.

A process can ask the kernel to be killed when its parent ends, and what is started here does where
the program `setpriv` is there. The kernel takes the thread that forked for that parent. Trio starts
processes in threads that end after some idle seconds, and a process would be killed then, at its
work.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

import trio

_SIGNALS: Final = frozenset(signal.Signals)

KILL_SECONDS: Final = 5.0
"""How long to wait for a killed process, which the kernel may keep."""


class StartedProcess:
    """A process that leads a group of its own, with pipes to its standard streams."""

    def __init__(self, parent: _Parent) -> None:
        popen = parent.popen
        assert popen is not None
        assert popen.stdout is not None
        self.pid: Final = popen.pid
        self.stdin: Final = None if popen.stdin is None else _stream(popen.stdin.fileno())
        self.stdout: Final = _stream(popen.stdout.fileno())
        self.stderr: Final = None if popen.stderr is None else _stream(popen.stderr.fileno())
        for pipe in (popen.stdin, popen.stdout, popen.stderr):
            if pipe is not None:
                pipe.close()
        self._parent = parent
        self._sandboxed = False
        self._first_inside: int | None = None

    def keeps_sandbox(self, first_inside: int) -> None:
        """Take the pidfd of the first process of the sandbox that this process keeps.

        Its end is that of all others in the sandbox.
        """
        self._sandboxed = True
        self._first_inside = first_inside

    @property
    def sandbox(self) -> int | None:
        """The pidfd of the first process of the sandbox that this process keeps, until `kill`."""
        return self._first_inside

    @property
    def returncode(self) -> int | None:
        """The exit code, or minus the number of the signal that ended the process."""
        code = self._parent.returncode
        # The end of a sandboxed program by a signal is told as shells do.
        if self._sandboxed and code is not None and code - 128 in _SIGNALS:
            return 128 - code
        return code

    async def wait(self) -> None:
        """Wait until the process has exited; others of its group may go on."""
        await self._parent.exited.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process group: the process and all it started that is still in it.

        A sandbox passes no signals on: all in it is killed. Nothing is sent once the process has
        been killed by `kill`.
        """
        if self._parent.released.is_set():
            return
        with suppress(ProcessLookupError, PermissionError):
            if self._first_inside is None:
                os.killpg(self.pid, number)
            else:
                signal.pidfd_send_signal(self._first_inside, signal.SIGKILL)

    async def kill(self) -> None:
        """Kill the process group, and wait until the process has exited.

        Every process must come to this, also one that has exited: until then the kernel keeps its
        number, so that `signal` meets no other process.

        Cancellation: has no effect; the wait is bounded.
        """
        with trio.CancelScope(shield=True):
            self.signal(signal.SIGKILL)
            inside, self._first_inside = self._first_inside, None
            if inside is not None:
                with trio.move_on_after(KILL_SECONDS):
                    # It is the last to end in there; this process may have ended before it.
                    await trio.lowlevel.wait_readable(inside)
                    await self.wait()
                os.close(inside)
            self.signal(signal.SIGKILL)
            self._parent.released.set()
            with trio.move_on_after(KILL_SECONDS):
                await self._parent.over.wait()

    async def close(self) -> None:
        """Close the pipes."""
        with trio.CancelScope(shield=True):  # closing by force does not wait
            for stream in (self.stdin, self.stdout, self.stderr):
                if stream is not None:
                    await trio.aclose_forcefully(stream)


class Start(Protocol):
    """What starts a process: `start`, or what starts it elsewhere, such as in a sandbox."""

    async def __call__(
        self,
        command: Sequence[str],
        *,
        cwd: str | Path | None,
        environment: Mapping[str, str] | None,
        stdin: int = subprocess.PIPE,
        stderr: int | None = None,
    ) -> StartedProcess:
        """Start a process, as `start` does."""
        ...


async def start(
    command: Sequence[str],
    *,
    cwd: str | Path | None = None,
    environment: Mapping[str, str] | None = None,
    stdin: int = subprocess.PIPE,
    stderr: int | None = None,
    pass_fds: Sequence[int] = (),
) -> StartedProcess:
    """Start a process, with a pipe to its standard output.

    Cancellation: has no effect once the process is being started.

    Args:
        command: a program and its arguments.
        cwd: the folder that it starts in, by default that of this process.
        environment: its variables, by default those of this process.
        stdin: `subprocess.PIPE` or `DEVNULL`.
        stderr: `subprocess.PIPE` or `STDOUT`; None: that of this process.
        pass_fds: file descriptors that it gets, under the same numbers.

    Raises:
        OSError: the program cannot be started.
    """
    await trio.lowlevel.checkpoint_if_cancelled()

    def fork() -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 - the caller's command
            [*_dying_with_us(command, cwd, environment), *command],
            bufsize=0,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=cwd,
            env=environment,
            start_new_session=True,
            pass_fds=pass_fds,
        )

    parent = _Parent(fork, trio.lowlevel.current_trio_token())
    threading.Thread(target=parent.live, name=f"parent of {command[0]}", daemon=True).start()
    with trio.CancelScope(shield=True):
        await parent.started.wait()
    if parent.failure is not None:
        raise parent.failure
    return StartedProcess(parent)


class _Parent:
    """The thread that starts a process, and waits until it has exited and is released."""

    def __init__(
        self, fork: Callable[[], subprocess.Popen[bytes]], token: trio.lowlevel.TrioToken
    ) -> None:
        self.started: Final = trio.Event()
        self.exited: Final = trio.Event()
        self.over: Final = trio.Event()
        self.released: Final = threading.Event()
        self.popen: subprocess.Popen[bytes] | None = None
        self.failure: Exception | None = None
        self.returncode: int | None = None
        self._fork = fork
        self._token = token

    def live(self) -> None:
        """Start the process, and wait."""
        try:
            self.popen = self._fork()
        except Exception as error:  # noqa: BLE001 - raised to the caller
            self.failure = error
            self._tell(self.started)
            return
        self._tell(self.started)
        # The process is not reaped yet.
        end = os.waitid(os.P_PID, self.popen.pid, os.WEXITED | os.WNOWAIT)
        assert end is not None
        self.returncode = end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
        if self._tell(self.exited):
            self.released.wait()
        self.popen.wait()
        self._tell(self.over)

    def _tell(self, event: trio.Event) -> bool:
        try:
            self._token.run_sync_soon(event.set)
        except trio.RunFinishedError:
            return False
        return True


def _dying_with_us(
    command: Sequence[str], cwd: str | Path | None, environment: Mapping[str, str] | None
) -> Sequence[str]:
    """Return what, before the command, has it killed when this process ends, however it ends.

    Nothing, if the program is not there: then it is the program that cannot be started.
    """
    setpriv = shutil.which("setpriv")
    if setpriv is None or Path(setpriv).resolve().name == "busybox":  # whose setpriv knows less
        return ()
    place = Path(cwd or ".", command[0]) if "/" in command[0] else command[0]
    if shutil.which(place, path=os.pathsep.join(os.get_exec_path(environment))) is None:
        return ()
    return (setpriv, "--pdeathsig", "KILL", "--")


def _stream(descriptor: int) -> trio.lowlevel.FdStream:
    return trio.lowlevel.FdStream(os.dup(descriptor))
