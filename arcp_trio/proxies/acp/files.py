"""Text files that an agent has its client read and write."""

from __future__ import annotations

from functools import partial
from typing import IO, TYPE_CHECKING

import trio

from arcp_trio import acp
from arcp_trio.acp.requests import READ_FILE
from arcp_trio.proxies.acp.calls import Calls
from arcp_trio.proxies.acp.edits import Edit
from arcp_trio.proxies.acp.named import Need, absolute
from arcp_trio.proxies.acp.operation import Clearance, Operation
from arcp_trio.proxies.acp.workplace import Workplace
from arcp_trio.runtime.limits import Limits, limit_hit
from arcp_trio.wire.errors import InternalError, clip
from arcp_trio.wire.json import JsonObject

if TYPE_CHECKING:
    from arcp_trio.runtime.job.context import JobContext


class Files:
    """Reads and writes the files that one job's agent asks for."""

    def __init__(self, job: JobContext, calls: Calls, place: Workplace, limits: Limits) -> None:
        self._job = job
        self._calls = calls
        self._place = place
        self._most = limits.agent_file_bytes

    def operation(self, request: acp.FileRequest) -> Operation:
        """Return what a request asks for.

        Raises:
            ValueError: it asks for nothing that can be done.
        """
        path, params = absolute(request.path, self._place.cwd), request.params
        if request.method == READ_FILE:
            first, count = _number(params, "line"), _number(params, "limit")
            perform = partial(self._read, request, path, first or 1, count)
            capability, edits = "fs.read", []
        else:
            content = params.get("content")
            if not isinstance(content, str):
                raise ValueError("the content is not a string")
            perform = partial(self._write, request, path, content)
            capability, edits = "fs.write", [Edit(path, content)]
        return Operation(
            args={"path": request.path},
            shown={"cwd": self._place.cwd},
            edits=edits,
            needs=[Need(capability, [path])],
            perform=perform,
        )

    async def _read(
        self,
        request: acp.FileRequest,
        path: str,
        first: int,
        count: int | None,
        cleared: Clearance,
    ) -> None:
        async with self._job.open(path, "rb", approved=cleared.approved) as file:
            # In one piece of work of a thread, which reads no more than is kept.
            data = await trio.to_thread.run_sync(_lines, file.wrapped, first, count, self._most)
        if data is None:
            raise self._too_large()
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise InternalError(f"{clip(repr(path))} is not UTF-8 text") from None
        await self._calls.end(cleared.call_id, {"bytes": len(data), **cleared.decision})
        request.answer({"content": text})

    async def _write(
        self, request: acp.FileRequest, path: str, content: str, cleared: Clearance
    ) -> None:
        data = content.encode()
        if len(data) > self._most:
            raise self._too_large()
        with trio.CancelScope(shield=True):  # no part of it is left out; a thread does the work
            async with self._job.open(path, "wb", approved=cleared.approved) as file:
                await file.write(data)
        await self._calls.end(cleared.call_id, {"bytes": len(data), **cleared.decision})
        request.answer({})

    def _too_large(self) -> InternalError:
        return limit_hit("agent_file_bytes", self._most)


def _lines(file: IO[bytes], first: int, count: int | None, most: int) -> bytes | None:
    """Return lines of a file from the first one on, None if that means to read too much."""
    if first == 1 and count is None:
        data = file.read(most + 1)
        return data if len(data) <= most else None
    kept: list[bytes] = []
    left, number = most, 0
    while count is None or number < first - 1 + count:
        line = file.readline(left + 1)
        if not line:
            break
        left -= len(line)
        if left < 0:
            return None
        number += 1
        if number >= first:
            kept.append(line)
    return b"".join(kept)


def _number(params: JsonObject, name: str) -> int | None:
    value = params.get(name)
    if value is None:
        return None
    if type(value) is not int or value < 0:
        raise ValueError(f"the {name} is not a number from 0 on")
    return value
