"""The zygote: a process that has imported the agents and does nothing but fork workers.

It is started fresh, and is never a copy of the runtime: it has none of the runtime's memory,
descriptors, threads or environment. It has no threads of its own, so that a fork of it is sound.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
import sys
from contextlib import suppress
from typing import Final, NoReturn, TypedDict

from arcp_trio.runtime.workers.confinement import Confinement, confine, make_undumpable
from arcp_trio.runtime.workers.worker import serve

MOST_REQUEST: Final = 64 * 1024
"""Bytes of a request to the zygote, at most; also of its answers."""

BOOT: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from arcp_trio.runtime.workers.zygote import main; main(int(sys.argv[2]))"
)
"""The program of a zygote; its arguments are `sys.path` as JSON, and a descriptor."""


class ZygoteSettings(TypedDict):
    """What a zygote is told first."""

    modules: list[str]
    user: int | None
    memory_bytes: int | None
    descriptors: int


def main(descriptor: int) -> NoReturn:
    """Serve the runtime at the other end of a socket until it closes it."""
    control = socket.socket(fileno=descriptor)
    make_undumpable()
    settings: ZygoteSettings = json.loads(control.recv(MOST_REQUEST))
    held_to = Confinement(settings["user"], settings["memory_bytes"], settings["descriptors"])
    for module in settings["modules"]:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # the workers share these objects' memory
    control.send(b"{}")
    children: set[int] = set()
    try:
        with suppress(BrokenPipeError, ConnectionResetError):  # the runtime has ended
            _serve(control, held_to, children)
    finally:
        for child in children:
            _end(child)
    os._exit(0)


def _serve(control: socket.socket, held_to: Confinement, children: set[int]) -> None:
    zygote = os.getpid()
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, MOST_REQUEST, 1)
        if not data:
            return
        request = json.loads(data)
        answer: dict[str, int] = {}
        if "end" in request:
            child = request["end"]
            if child in children:
                children.remove(child)
                answer["status"] = _end(child)
        elif "fork" in request:
            sys.stdout.flush()
            try:
                child = os.fork()
            except OSError as error:
                answer["error"] = error.errno or 0
            else:
                if child == 0:
                    _work(control, descriptors[0], held_to, zygote)
                children.add(child)
                answer["child"] = child
            os.close(descriptors[0])
        control.send(json.dumps(answer).encode())


def _end(child: int) -> int:
    """End a worker with its process group, and return its exit status."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    with suppress(ProcessLookupError):  # it may not lead its group yet
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _work(control: socket.socket, descriptor: int, held_to: Confinement, zygote: int) -> NoReturn:
    status = 1
    try:
        control.close()
        confine(held_to, zygote)
        serve(socket.socket(fileno=descriptor))
        status = 0
    except BaseException as error:  # noqa: ASYNC103, BLE001 - a fork must not return
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
