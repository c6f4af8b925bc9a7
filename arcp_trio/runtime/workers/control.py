"""The runtime's end of the socket to a zygote: what it is asked to do."""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import socket
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import trio

from arcp_trio.runtime.workers.wire import Wire, WorkerLost
from arcp_trio.runtime.workers.zygote import MOST_REQUEST

ANSWER_SECONDS: Final = 30.0
"""How long the zygote may take for an answer on a slow machine; then another one is started."""

log = logging.getLogger(__name__)

_MISSING: Final[Mapping[int, str]] = {
    errno.EAGAIN: (
        "no further process is allowed; a higher bound (ulimit -u, or pids.max of the "
        "container) or fewer --workers help"
    ),
    errno.ENOMEM: "memory is short; more of it, or fewer --workers help",
    errno.EMFILE: "the runtime may open no further socket; a higher bound (ulimit -n) helps",
}


class ForkRefused(Exception):  # noqa: N818 - it says what happened
    """There cannot be another worker now; the text says what is missing, and what helps."""


@attrs.define(eq=False)
class Worker:
    """A worker process."""

    process_id: int
    wire: Wire
    jobs: int = 0
    begun: bool = False
    """Whether it has given a sign of life."""
    ended: bool = False
    """Whether its process was seen to end."""
    asked: float = -math.inf
    """When it was asked for a sign of life for a job."""
    heard: float = -math.inf
    """When it gave a sign of life that no job was there to hear."""

    @property
    def facts(self) -> dict[str, object]:
        """What the log says of it."""
        return {"process_id": self.process_id, "jobs": self.jobs}


class ZygoteControl:
    """The socket to a zygote. Requests go one after the other."""

    def __init__(self, control: trio.socket.SocketType) -> None:
        self._control = control

    async def fork(self) -> Worker:
        """Have a worker forked.

        Raises:
            ForkRefused: that is not possible now.
            WorkerLost: the zygote has ended.
        """
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise _refusal(error.errno or 0) from error
        try:
            with theirs:
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [theirs.fileno()]))]
                answer = await self.answer_to({"fork": True}, rights)
        except BaseException:
            ours.close()
            raise
        if "error" in answer:
            ours.close()
            raise _refusal(answer["error"])
        return Worker(answer["child"], Wire(trio.socket.from_stdlib_socket(ours)))

    async def end(self, worker: Worker) -> None:
        """Have a worker ended, with its process group.

        Raises:
            WorkerLost: the zygote has ended.
        """
        answer = await self.answer_to({"end": worker.process_id})
        log.info("worker ended", extra=worker.facts | {"exit_status": answer.get("status")})

    async def seconds_to_answer(self) -> float:
        """Return how long the zygote needs for an answer.

        Raises:
            WorkerLost: it has ended.
        """
        began = trio.current_time()
        await self.answer_to({})
        return trio.current_time() - began

    async def answer_to(
        self,
        request: Mapping[str, object],
        rights: Sequence[tuple[int, int, array[int]]] = (),
        *,
        within: float | None = None,
    ) -> dict[str, Any]:
        """Send the zygote a request, and return its answer, if it comes `within` these seconds.

        Raises:
            WorkerLost: the zygote has ended, or stands still.
        """
        seconds = ANSWER_SECONDS if within is None else within
        data: bytes | None = None
        with trio.move_on_after(seconds):
            await self._control.sendmsg([json.dumps(request).encode()], rights)
            data = await self._control.recv(MOST_REQUEST)
        if data is None:
            raise WorkerLost(f"the zygote gives no answer within {seconds:g} s")
        if not data:
            raise WorkerLost("the zygote ended")
        answer: dict[str, Any] = json.loads(data)
        return answer


def _refusal(number: int) -> ForkRefused:
    return ForkRefused(_MISSING.get(number) or os.strerror(number))
