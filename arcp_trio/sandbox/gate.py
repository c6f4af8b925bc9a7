"""Starting a program in a sandbox: it waits at a gate until the sandbox is found to be right.

Bubblewrap tells its first process, builds the sandbox, and waits for a byte. Meanwhile mounts are
checked, and sockets are opened in the sandbox.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Final

import trio

from arcp_trio.sandbox import launcher
from arcp_trio.sandbox.bwrap import Build
from arcp_trio.sandbox.launcher import OUTPUT
from arcp_trio.sandbox.pinning import Pin, moved
from arcp_trio.transport.starting import StartedProcess, start
from arcp_trio.wire.errors import clip
from arcp_trio.wire.json import loads_object

BUILD_SECONDS: Final = 30.0
"""How long building a sandbox may take."""
MOST_WORDS: Final = 300
"""Characters of the reason why a sandbox could not be built."""
LAST_WORDS_SECONDS: Final = 0.5
"""How long its standard error is read then."""
PROCESSES: Final = 4096
"""How many processes and threads may be in a sandbox."""
# Run in the sandbox, whose processes are counted by themselves; which option it is differs.
_INSIDE: Final = (
    f"{{ ulimit -u {PROCESSES} || ulimit -p {PROCESSES}; }} 2>/dev/null;"
    f'exec "$@" 1>&{OUTPUT} {OUTPUT}>&-'
)
_LOOK_SECONDS: Final = 0.002
_READ_BYTES: Final = 4096

AtTheGate = Callable[[int, StartedProcess], Awaitable[None]]
"""Called with the sandbox's first process, and with bubblewrap's, before the program runs."""


class SandboxFailed(OSError):  # noqa: N818 - says what has happened
    """The sandbox could not be built, so the program has not run."""


async def start_inside(
    command: Sequence[str],
    *,
    build: Build,
    calls: bytes,
    pins: Sequence[Pin],
    environment: Mapping[str, str],
    stdin: int,
    stderr: int | None,
    at_the_gate: AtTheGate,
) -> StartedProcess:
    """Start a program in a sandbox of its own.

    Args:
        command: the program and its arguments.
        build: says what the sandbox is.
        calls: the filter of its system calls.
        pins: what the mounts in it have to be.
        environment: the program's variables.
        stdin: as `start` has it.
        stderr: as `start` has it.
        at_the_gate: called before the program runs.

    Raises:
        SandboxFailed: says why the program has not run.
    """
    with ExitStack() as ours:
        told, tell = os.pipe()
        ours.callback(os.close, told)
        with ExitStack() as theirs:  # closed here only once bubblewrap has them
            tell = _moved_up(tell, theirs)
            held, let_go = os.pipe()
            ours.callback(os.close, let_go)
            held = _moved_up(held, theirs)
            words = _written(_separated([*_variables(environment), *build.arguments]), theirs)
            launch = _written(_separated(build.staged), theirs)
            filtered = _written(calls, theirs)
            process = await start(
                [
                    *(sys.executable, "-I", "-S", launcher.__file__, str(launch)),
                    *(build.bwrap, *_options(words, tell, held, filtered), "--"),
                    *("/bin/sh", "-c", _INSIDE, "sh"),
                    *command,
                ],
                environment={},
                stdin=stdin,
                stderr=stderr,
                pass_fds=[launch, words, tell, held, filtered],
            )
        await _prepare(process, told, pins, at_the_gate)
        with suppress(BrokenPipeError):  # it has ended since, as others see
            os.write(let_go, b"\n")
    return process


async def _prepare(
    process: StartedProcess, told: int, pins: Sequence[Pin], at_the_gate: AtTheGate
) -> None:
    ready = False
    try:
        with trio.fail_after(BUILD_SECONDS):
            pid = await _first_process(told)
            process.keeps_sandbox(os.pidfd_open(pid))
            await _built(pid, process)
            path = moved(pins, f"/proc/{pid}/root")
            if path is not None:
                raise SandboxFailed(f"a path was replaced while it was mounted: {path}")
            await at_the_gate(pid, process)
        ready = True
    except (OSError, trio.TooSlowError) as error:
        await process.kill()  # noqa: ASYNC120 - shields itself
        words = await _last_words(process)  # noqa: ASYNC120 - the same
        why = words or str(error) or "it has taken too long"
        raise SandboxFailed(clip(why, MOST_WORDS)) from error
    finally:
        if not ready:
            await process.kill()  # noqa: ASYNC102 - bounds and shields itself
            await process.close()  # noqa: ASYNC102 - does not wait


def _variables(environment: Mapping[str, str]) -> list[str]:
    """Return the arguments for a program's variables.

    Bubblewrap itself runs outside of the sandbox, and has none of them: some make libraries load
    code.
    """
    words = ["--clearenv"]
    for name, value in environment.items():
        words += ["--setenv", name, value]
    return words


def _moved_up(descriptor: int, owner: ExitStack) -> int:
    """Return a descriptor in place of one that a shell may need the number of.

    Args:
        descriptor: it is closed.
        owner: closes the new one.
    """
    try:
        higher = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    finally:
        os.close(descriptor)
    owner.callback(os.close, higher)
    return higher


def _options(words: int, tell: int, held: int, calls: int) -> Sequence[str]:
    numbers = {"--args": words, "--info-fd": tell, "--block-fd": held, "--seccomp": calls}
    return [word for name, number in numbers.items() for word in (name, str(number))]


def _separated(arguments: Sequence[str]) -> bytes:
    return b"".join(os.fsencode(each) + b"\0" for each in arguments)


def _written(content: bytes, owner: ExitStack) -> int:
    """Return a file without a name: on a command line, others could read what is in it."""
    file = _moved_up(os.memfd_create("sandbox"), owner)
    with open(file, "wb", closefd=False) as writer:
        writer.write(content)
    os.lseek(file, 0, os.SEEK_SET)
    return file


async def _last_words(process: StartedProcess) -> str:
    """Return what a process that has ended wrote last; nothing if its errors are not kept."""
    words = b""
    with trio.move_on_after(LAST_WORDS_SECONDS, shield=True):
        words = await (process.stderr or process.stdout).receive_some(_READ_BYTES)
    return words.decode(errors="replace").strip()


async def _first_process(told: int) -> int:
    """Read which process is the first in the sandbox."""
    async with trio.lowlevel.FdStream(os.dup(told)) as stream:
        text = b""
        while not text.rstrip().endswith(b"}"):
            part = await stream.receive_some(_READ_BYTES)
            if not part:
                raise SandboxFailed("bwrap has ended")
            text += part
    pid = loads_object(text)["child-pid"]
    assert isinstance(pid, int)
    return pid


async def _built(pid: int, process: StartedProcess) -> None:
    """Wait until all is mounted: until then, the process has no /proc of its own."""
    ours = os.stat("/proc").st_dev  # noqa: PTH116
    while process.returncode is None:
        with suppress(FileNotFoundError):
            if os.stat(f"/proc/{pid}/root/proc").st_dev != ours:  # noqa: PTH116
                return
        await trio.sleep(_LOOK_SECONDS)
    raise SandboxFailed("bwrap has ended")
