"""What contained processes are given, and how they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import trio

from arcp_trio.sandbox.bwrap import SANDBOX_USER
from arcp_trio.sandbox.containment import Containment, NoSandbox
from tests.footprint import descriptors
from tests.processes import has_children
from tests.sandbox.inside import Inside

pytestmark = [pytest.mark.sandbox, pytest.mark.real_tcp]


def files_of(program: str, name: str) -> list[bytes]:
    """Return what is in a file in /proc of each process of a program; an empty name: of all."""
    found: list[bytes] = []
    for path in Path("/proc").glob(f"[0-9]*/{name}"):
        try:
            if not program or path.with_name("comm").read_text() == f"{program}\n":
                found.append(path.read_bytes())
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def marked(status: bytes, name: bytes) -> bool:
    """Return whether what is in /proc/PID/status is of a process with this command line."""
    (pid,) = [line.split()[1] for line in status.splitlines() if line.startswith(b"Pid:")]
    try:
        return Path(f"/proc/{int(pid)}/cmdline").read_bytes().startswith(name)
    except (FileNotFoundError, ProcessLookupError):
        return False


def command_lines() -> list[bytes]:
    """Return the command lines of all processes, as `ps` shows them."""
    return files_of("", "cmdline")


async def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program has the variables that it is given, and no others; `ps` does not show them.

    Bubblewrap itself, outside of the sandbox, has none of them.
    """
    monkeypatch.setenv("SECRET_OF_THE_SERVER", "1")
    inside = Inside(environment={"KEY": "the-key-of-a-job"})
    with trio.fail_after(60):
        async with inside.started("sh", "-c", "env; sleep 1000") as process:
            said = b""
            while b"KEY=the-key-of-a-job" not in said:
                said += await process.stdout.receive_some()
            assert b"SECRET" not in said
            assert not any(b"the-key-of-a-job" in each for each in command_lines())
            assert not any(b"the-key-of-a-job" in each for each in files_of("bwrap", "environ"))
            while not any(b"sleep\0001000" in each for each in command_lines()):  # noqa: ASYNC110
                await trio.sleep(0.01)
            assert not any(b"the-key-of-a-job" in each for each in command_lines())


async def test_descriptors_and_rights() -> None:
    """A program has its three streams and no other descriptor, no rights, and makes no namespaces.

    It leaves no core, and has 4,096 files open at most.
    """
    said = await Inside().run(
        "ls /proc/self/fd; ulimit -n; ulimit -c; grep -E 'CapEff|NoNewPrivs' /proc/self/status;"
        "unshare -U true; mount -t tmpfs none /tmp; hostname"
    )
    lines = said.split("\n")
    assert lines[:6] == ["0", "1", "2", "3", "4096", "0"], said
    assert lines[6].split() == ["CapEff:", "0" * 16]
    assert lines[7].split() == ["NoNewPrivs:", "1"]
    assert "unshare failed" in said
    assert "agent" in lines


async def test_the_machines_settings() -> None:
    """No file of /proc can be opened for writing, also by root: some of them change the machine."""
    said = await Inside().run(
        "for each in sys/kernel/core_pattern sys/vm/overcommit_memory sysrq-trigger mtrr irq/*/*"
        " bus/*/* self/oom_score_adj; do (: >> /proc/$each) && echo wrote $each; done 2>/dev/null;"
        "ls -d /proc/sys/kernel /sys"
    )
    assert "wrote" not in said
    assert "/proc/sys/kernel" in said


async def test_whose_processes_they_are() -> None:
    """A program never runs as root, nor in any group of root's; its files in /proc tell it."""
    is_root = os.geteuid() == 0
    before = os.getgroups()
    if is_root:
        os.setgroups([0, 4])
    try:
        with trio.fail_after(60):
            name = f"sleep\0{1000 + os.getpid()}".encode()
            async with Inside().started("sleep", str(1000 + os.getpid())):
                found: list[bytes] = []
                while not found:
                    await trio.sleep(0.01)
                    found = [each for each in files_of("sleep", "status") if marked(each, name)]
    finally:
        if is_root:
            os.setgroups(before)
    rows = [dict(line.split(b":", 1) for line in each.splitlines()) for each in found]
    uids = {int(uid) for row in rows for uid in row[b"Uid"].split()}
    assert uids == {SANDBOX_USER if is_root else os.geteuid()}
    if is_root:
        groups = {
            int(gid) for row in rows for name in (b"Gid", b"Groups") for gid in row[name].split()
        }
        assert groups == {SANDBOX_USER}


async def test_how_many_processes() -> None:
    """A sandbox has 4,096 processes and threads at most, whatever others of its user have."""
    said = await Inside().run("grep 'Max processes' /proc/self/limits")
    assert said.split()[2:4] == ["4096", "4096"]


async def test_all_ends_with_the_program() -> None:
    """When a sandbox is killed, so is what has left the group of its program, and holds its output.

    Nothing of it is left when `kill` returns.
    """
    name = f"sleep\0{1000 + os.getpid()}".encode()
    with trio.fail_after(60):
        script = f"setsid sleep {1000 + os.getpid()} & echo begun; wait"
        async with Inside().started("sh", "-c", script) as process:
            assert await process.stdout.receive_some() == b"begun\n"
            while not any(name in each for each in command_lines()):  # noqa: ASYNC110
                await trio.sleep(0.01)
            await process.kill()
            assert not any(name in each for each in command_lines())


@pytest.mark.parametrize(
    ("script", "code"), [("exit 3", 3), ("kill -TERM $$", -signal.SIGTERM), ("true", 0)]
)
async def test_the_exit_code(script: str, code: int) -> None:
    """The end of a program is known, also by which signal."""
    with trio.fail_after(60):
        async with Inside().started("sh", "-c", script) as process:
            await process.wait()
            assert process.returncode == code


async def test_a_contained_program_outlives_idle_threads() -> None:
    """A contained program works for longer than Trio keeps an idle thread."""
    assert await Inside().run("sleep 13; echo done") == "done\n"


async def test_nothing_stays_behind() -> None:
    """After fifty sandboxes there are no more descriptors, threads or processes."""
    await Inside().run("true")
    before = descriptors()
    for _ in range(50):
        assert await Inside().run("echo a") == "a\n"
    assert descriptors() == before
    assert not has_children()
    with trio.fail_after(10):
        while any("parent of" in each.name for each in threading.enumerate()):  # noqa: ASYNC110
            await trio.sleep(0.01)


async def test_a_start_that_is_cancelled() -> None:
    """A start that is cancelled at any time leaves nothing behind."""
    before = descriptors()
    for step in range(20):
        with trio.move_on_after(step * 0.002):
            await Inside().run("sleep 1000")
    assert descriptors() == before
    assert not has_children()


def test_without_bubblewrap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without bubblewrap, the reason is known, and a sandbox that is required is refused."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no program bwrap" in (Containment("auto", ["sh"]).reason or "")
    with pytest.raises(NoSandbox, match="no program bwrap"):
        Containment("require", ["sh"])
    bwrap = tmp_path / "bwrap"
    bwrap.write_text("#!/bin/sh\necho 'bwrap: Creating new namespace failed: ENOSPC' >&2; exit 1\n")
    bwrap.chmod(0o755)
    assert "namespace failed: ENOSPC" in (Containment("auto", ["sh"]).reason or "")
    assert Containment("off", ["sh"]).reason == "it is turned off"


def test_without_privileges() -> None:
    """Sandboxes need no privileges: they are built, and opened, by the user nobody as well."""
    script = Path(__file__).with_name("as_nobody.py")
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.stderr == ""
    if done.stdout == "no Python for nobody\n":
        pytest.skip("no Python that the user nobody can start")
    assert done.stdout == "writes\nreads only\nreplaced\n[][]\n"
