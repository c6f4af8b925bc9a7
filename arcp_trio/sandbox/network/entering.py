"""Opening listening sockets in the network namespace of another process."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

import trio

from arcp_trio.transport.starting import start
from arcp_trio.wire.errors import clip

LISTEN_SECONDS: Final = 20.0
"""How long opening the sockets may take."""
MOST_PORTS: Final = 64
"""Ports that a sandbox listens on, at most."""

# Run by a Python of its own, as a thread of this process cannot leave its namespaces for a while.
# Without privileges, the namespace of users that the network belongs to is entered first.
_PROGRAM: Final = """
import ctypes, fcntl, os, socket, sys
NEWUSER, NEWNET, GET_USERNS = 0x10000000, 0x40000000, 0xb701
libc = ctypes.CDLL(None, use_errno=True)
def enter(namespace, kind):
    if libc.setns(namespace, kind):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
pid, channel, *ports = map(int, sys.argv[1:])
net = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
try:
    enter(net, NEWNET)
except PermissionError:
    enter(fcntl.ioctl(net, GET_USERNS), NEWUSER)
    enter(net, NEWNET)
listeners = []
for port in ports:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    listeners.append(listener)
descriptors = [each.fileno() for each in listeners]
socket.send_fds(socket.socket(fileno=channel), [b"listeners"], descriptors)
"""


async def listeners_inside(pid: int, ports: Sequence[int]) -> list[trio.SocketListener]:
    """Listen on ports of 127.0.0.1 as it is for another process.

    Raises:
        OSError: that is not possible.
    """
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            ours.setblocking(False)  # noqa: FBT003
            words = [str(each) for each in (pid, theirs.fileno(), *ports)]
            helper = await start(
                [sys.executable, "-I", "-S", "-c", _PROGRAM, *words],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
            )
        try:
            with trio.fail_after(LISTEN_SECONDS):
                said = b"".join([part async for part in helper.stdout])
                await helper.wait()
            if helper.returncode != 0:
                why = said.decode(errors="replace").strip().rpartition("\n")[2]
                raise OSError(f"the sandbox's network cannot be entered: {clip(why)}")
            _, found, _, _ = socket.recv_fds(ours, 64, MOST_PORTS)
        finally:
            await helper.kill()  # noqa: ASYNC102 - bounds and shields itself
            await helper.close()  # noqa: ASYNC102 - does not wait
    return [_listener(each) for each in found]


def _listener(descriptor: int) -> trio.SocketListener:
    inner = socket.socket(fileno=descriptor)
    return trio.SocketListener(trio.socket.from_stdlib_socket(inner))
