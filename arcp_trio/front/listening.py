"""Opening and closing listening sockets: on addresses, on names, and on paths of Unix sockets."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import trio

from arcp_trio.addresses import UNIX_PREFIX, WEBSOCKET_PATH, is_loopback

FREE_PORT_TRIES: Final = 10
"""How often a free port is tried: one that is free on one address may be taken on another."""
LOCK_SECONDS: Final = 2.0
"""How long to wait for the lock of a folder, which another server holds for an instant only."""
_LOCK_PAUSE_SECONDS: Final = 0.01
_BACKLOG: Final = 1_024
_OWNER_ONLY: Final = 0o600


class CannotListen(OSError):  # noqa: N818 - says what it is
    """Listening on `host` is not possible, or no longer; `strerror` says why."""

    def __init__(self, number: int, reason: str, host: str, port: int | None = None) -> None:
        super().__init__(number, reason)
        self.host: Final = host
        self.port: Final = port
        """The port that was asked for, if one was."""

    def __str__(self) -> str:
        where = self.host if self.port is None else f"{self.host} port {self.port}"
        return f"{where}: {self.strerror}"


async def listen(hosts: Sequence[str], port: int) -> list[trio.SocketListener]:
    """Listen on every address of each of `hosts`; port 0 becomes the same free port on all.

    Close them with `close`, which removes the files of Unix sockets.

    Raises:
        CannotListen: one of them cannot be listened on; none is left open then.
    """
    for _ in range(FREE_PORT_TRIES):
        listeners = await _open(hosts, port)
        first, *others = {_port(listener) for listener in listeners if not is_unix(listener)} or {0}
        if not others:
            return listeners
        # The system has chosen another port for each address.
        close(listeners)
        with suppress(CannotListen):
            return await _open(hosts, first)
    raise CannotListen(errno.EADDRINUSE, "no port is free on all of its addresses", hosts[0])


async def _open(hosts: Sequence[str], port: int) -> list[trio.SocketListener]:
    listeners: list[trio.SocketListener] = []
    try:
        for host in hosts:
            listeners += await _open_one(host, port)
    except BaseException:
        close(listeners)
        raise
    return listeners


async def _open_one(host: str, port: int) -> list[trio.SocketListener]:
    try:
        if host.startswith(UNIX_PREFIX):
            return [_open_unix(Path(host.removeprefix(UNIX_PREFIX)))]
        return await _open_tcp(host, port)
    except OSError as error:
        number = error.errno or errno.EINVAL
        asked = None if host.startswith(UNIX_PREFIX) else port or None
        raise CannotListen(number, error.strerror or str(error), host, asked) from error
    except ValueError as error:
        raise CannotListen(errno.EINVAL, "not an address or a name", host) from error


async def _open_tcp(host: str, port: int) -> list[trio.SocketListener]:
    """Listen on each address of a name, except those that this machine does not have.

    `localhost` often resolves to `::1` as well on a machine without IPv6.
    """
    listeners: list[trio.SocketListener] = []
    missing: OSError | None = None
    try:
        for address in await _addresses(host, port):
            try:
                listeners += await trio.open_tcp_listeners(port, host=address)
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL:
                    raise
                missing = error
    except BaseException:
        close(listeners)
        raise
    if missing is not None and not listeners:
        raise missing
    return listeners


async def _addresses(host: str, port: int) -> list[str]:
    if "%" in host:
        return [host]  # an address with an interface, which getaddrinfo would drop
    found = await trio.socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


def _open_unix(path: Path) -> trio.SocketListener:
    path = path.absolute()  # the process may change its folder before it removes the file
    with _alone_in(path.parent):
        _remove_stale(path)
        unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            unix.bind(str(path))
            # Nobody can connect before listen(2), so other users never can.
            path.chmod(_OWNER_ONLY)
            unix.listen(_BACKLOG)
            return trio.SocketListener(trio.socket.from_stdlib_socket(unix))
        except BaseException:
            unix.close()
            raise


@contextmanager
def _alone_in(folder: Path) -> Generator[None]:
    """Lock a folder against other servers for the length of the block.

    A socket that is bound and does not listen yet looks like one that a dead process left. The
    lock is on the folder itself: a lock file could not be removed safely.
    """
    patience = time.monotonic() + LOCK_SECONDS
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= patience:
                    raise OSError(errno.EBUSY, "its folder is locked") from error
                time.sleep(_LOCK_PAUSE_SECONDS)
        yield
    finally:
        os.close(lock)


def _remove_stale(path: Path) -> None:
    """Remove a socket on which no process listens; raise OSError if anything else is at `path`."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(errno.EEXIST, "the path exists and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0)  # connecting would wait for a full backlog
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except BlockingIOError:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE)) from None
        else:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def close(listeners: Sequence[trio.SocketListener]) -> None:
    """Close listeners and remove the files of Unix sockets; closed ones are skipped."""
    for listener in listeners:
        if listener.socket.fileno() < 0:
            continue
        path = listener.socket.getsockname() if is_unix(listener) else None
        listener.socket.close()
        if path is not None:
            with suppress(OSError), _alone_in(Path(path).parent):  # another server may have it
                _remove_stale(Path(path))


def is_unix(listener: trio.SocketListener) -> bool:
    """Return whether a listener is a Unix socket."""
    return listener.socket.family == socket.AF_UNIX


def is_local(listener: trio.SocketListener) -> bool:
    """Return whether only this machine can connect to a listener."""
    return is_unix(listener) or is_loopback(listener.socket.getsockname()[0])


def _port(listener: trio.SocketListener) -> int:
    port: int = listener.socket.getsockname()[1]
    return port


def url(listener: trio.SocketListener, *, encrypted: bool) -> str:
    """Return the address that clients of a listener connect to."""
    if is_unix(listener):
        return UNIX_PREFIX + str(listener.socket.getsockname())
    host, port = listener.socket.getsockname()[:2]
    scheme = "wss" if encrypted else "ws"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{WEBSOCKET_PATH}"
