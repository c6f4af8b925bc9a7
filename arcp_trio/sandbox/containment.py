"""Whether the programs of an agent are contained, and the sandboxes of its jobs."""

from __future__ import annotations

import logging
import os
import platform
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal, TypeAlias

import trio
from attrs import frozen

from arcp_trio.authority.lease import Lease
from arcp_trio.authority.sites import at_and_below
from arcp_trio.reserved import Reserved
from arcp_trio.sandbox.bwrap import SANDBOX_USER, SHARED, TMP, build
from arcp_trio.sandbox.gate import start_inside
from arcp_trio.sandbox.network.network import Network
from arcp_trio.sandbox.network.reach import Reach
from arcp_trio.sandbox.pinning import Pin, pinned
from arcp_trio.sandbox.plan import Mount, leased, within
from arcp_trio.sandbox.program import program_mounts
from arcp_trio.sandbox.seccomp import filter_of_calls
from arcp_trio.transport.starting import Start, StartedProcess, start
from arcp_trio.wire.errors import clip

log = logging.getLogger(__name__)

TRY_SECONDS: Final = 30.0
"""How long the program may take with which sandboxes are tried."""

_HERE: Final = "http://127.0.0.1"
"""What a sandbox is made to reach to see whether its network can be entered."""

Mode: TypeAlias = Literal["auto", "require", "off"]
"""Contain programs where that is possible; nowhere else start them; or never contain them."""


class NoSandbox(Exception):  # noqa: N818 - says what is missing
    """Programs cannot be contained on this machine, and have to be."""


@frozen(kw_only=True)
class Sandbox:
    """Starts the programs of one job, each in a sandbox of its own."""

    bwrap: str
    calls: bytes
    """The filter of system calls."""
    lease: Lease
    reserved: Reserved
    own: Sequence[Mount]
    """What is mounted beside what is leased."""
    network: Network | None = None
    """What can be reached; None: nothing."""

    async def start(
        self,
        command: Sequence[str],
        *,
        cwd: str | Path | None,
        environment: Mapping[str, str] | None,
        stdin: int = subprocess.PIPE,
        stderr: int | None = None,
    ) -> StartedProcess:
        """Start a program; see `starting.start`."""
        given = {**(environment or {}), "TMPDIR": TMP}
        if self.network is not None:
            given |= self.network.variables()
        hidden = await trio.to_thread.run_sync(self.reserved.names)
        with pinned(leased(self.lease, hidden)) as found:
            pins = [pin for pin in found if pin.mount.is_tree or not self._is_reserved(pin)]
            mounts = [*self.own, *(pin.mount for pin in pins)]
            return await start_inside(
                command,
                build=build(self.bwrap, mounts, hidden, str(cwd or TMP), _user()),
                calls=self.calls,
                pins=pins,
                environment=given,
                stdin=stdin,
                stderr=stderr,
                at_the_gate=_nothing if self.network is None else self.network.open,
            )

    def _is_reserved(self, pin: Pin) -> bool:
        """Return whether a leased file is a reserved one under another name, as a hard link is."""
        return self.reserved.holds(os.fstat(pin.descriptor))


def _user() -> int | None:
    """Return the user of contained programs: None, this process's, unless that is root."""
    if os.geteuid() != 0:
        return None
    inside, outside, *_ = Path("/proc/self/uid_map").read_text().split()
    is_root = inside == outside == "0"  # and not somebody whom a container calls so
    return SANDBOX_USER if is_root else None


async def _nothing(pid: int, process: StartedProcess) -> None:
    del pid, process
    await trio.lowlevel.checkpoint()


class Containment:
    """Whether the programs of one agent are contained; this is found out when it is made."""

    def __init__(
        self,
        mode: Mode,
        command: Sequence[str],
        *,
        search: str | None = None,
        read: Sequence[str | Path] = (),
    ) -> None:
        """Try whether a sandbox can be built, unless none is wanted.

        Args:
            mode: whether to contain.
            command: the agent's program and its arguments: its files are seen in the sandbox.
            search: the folders in which its programs are looked for, as in PATH.
            read: what else is seen.

        Raises:
            NoSandbox: says why no sandbox can be built although the mode requires it.
        """
        self._bwrap: Final = shutil.which("bwrap") or ""
        self._calls: Final = filter_of_calls(platform.machine()) or b""
        self._own: Final = [
            *program_mounts(command, search),
            *(Mount(path=str(each), is_tree=Path(each).is_dir()) for each in read),
        ]
        self.reason: Final = "it is turned off" if mode == "off" else self._why_not()
        """Why programs are not contained; None if they are."""
        if mode != "off" and self.reason is not None:
            if mode == "require":
                raise NoSandbox(self.reason)
            facts = {"program": command[0], "why": self.reason}
            log.warning("agent's program will not be contained", extra=facts)

    def starter(
        self,
        lease: Lease,
        reserved: Reserved,
        own: Sequence[str],
        network: Network | None = None,
    ) -> Start:
        """Return what starts the programs of one job.

        Args:
            lease: what the job may do.
            reserved: what no lease opens.
            own: folders that are the job's own, and writable.
            network: what they can reach; None: nothing.
        """
        if self.reason is not None:
            return start_uncontained
        folders = [Mount(path=folder, writable=True) for folder in own]
        sandbox = Sandbox(
            bwrap=self._bwrap,
            calls=self._calls,
            lease=lease,
            reserved=reserved,
            own=[*self._own, *folders],
            network=network,
        )
        return sandbox.start

    def mounts(self, lease: Lease, reserved: Reserved, own: Sequence[str]) -> list[Mount]:
        """Return what the programs of a job see; see `starter`. Where some overlap, the deepest."""
        folders = [Mount(path=folder, writable=True) for folder in (*own, TMP, SHARED)]
        return [*self._own, *folders, *leased(lease, reserved.paths)]

    def shows(self, folder: str, lease: Lease, reserved: Reserved, own: Sequence[str]) -> bool:
        """Return whether the programs of a job see what is in a folder; see `starter`."""
        mounts = [*self._own, *leased(lease, reserved.paths)]
        trees = [mount.path for mount in mounts if mount.is_tree]
        return self.reason is not None or within(folder, [*own, *trees])

    def _why_not(self) -> str | None:
        if not self._bwrap:
            return "bubblewrap is not installed: there is no program bwrap on PATH"
        if not self._calls:
            return f"the system calls of {platform.machine()} are not known"
        found: list[str | None] = []

        def look() -> None:
            found.append(trio.run(self._try))

        # In a thread, as this one may run a loop already.
        thread = threading.Thread(target=look, name="trying a sandbox")
        thread.start()
        thread.join()
        return found[0]

    async def _try(self) -> str | None:
        network = Network(Reach(lease=Lease(), authorize=_allow, added=lambda: at_and_below(_HERE)))
        with TemporaryDirectory(prefix="arcp-sandbox-") as name:
            folder = str(await trio.Path(name).resolve())
            sandbox = Sandbox(
                bwrap=self._bwrap,
                calls=self._calls,
                lease=Lease(),
                reserved=Reserved(()),
                own=[*self._own, Mount(path=folder, writable=True)],
                network=network,
            )
            async with network.serving():
                return await _try(sandbox)


def _allow(url: str) -> None:
    del url


async def _try(sandbox: Sandbox) -> str | None:
    """Run a program that does nothing, and return why that is not possible."""
    try:
        process = await sandbox.start(
            ["true"], cwd=None, environment=None, stderr=subprocess.STDOUT
        )
    except OSError as error:
        return f"bwrap does not work here: {error}"
    words = b""
    with trio.move_on_after(TRY_SECONDS):
        words = b"".join([part async for part in process.stdout])
        await process.wait()
    await process.kill()
    await process.close()
    if process.returncode == 0:
        return None
    return f"bwrap does not work here: {clip(words.decode(errors='replace').strip())}"


async def start_uncontained(
    command: Sequence[str],
    *,
    cwd: str | Path | None,
    environment: Mapping[str, str] | None,
    stdin: int = subprocess.PIPE,
    stderr: int | None = None,
) -> StartedProcess:
    """Start a program without a sandbox; it leaves no core, in which its secrets would be."""
    path = os.pathsep.join(os.get_exec_path(environment))
    prlimit = shutil.which("prlimit")
    if prlimit is not None and shutil.which(command[0], path=path) is not None:
        command = [prlimit, "--core=0", "--", *command]
    return await start(command, cwd=cwd, environment=environment, stdin=stdin, stderr=stderr)
