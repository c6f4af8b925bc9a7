"""What an agent asks for, decided by the lease of its job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from arcp_trio import acp
from arcp_trio.proxies.acp.calls import Calls
from arcp_trio.proxies.acp.workplace import Workplace
from arcp_trio.runtime.limits import Limits
from arcp_trio.wire.errors import PermissionDenied

if TYPE_CHECKING:
    from arcp_trio.runtime.job.context import JobContext


class Requests:
    """Answers the requests of one job's agent, each at its place in the order."""

    def __init__(
        self,
        job: JobContext,
        calls: Calls,
        nursery: trio.Nursery,
        place: Workplace,
        limits: Limits,
    ) -> None:
        self._job = job
        self._calls = calls
        self._nursery = nursery
        self._place = place
        self._limits = limits
        self._closed = False

    async def take(self, request: acp.Request) -> None:
        """Decide a request, and answer it at once or later."""
        if self._closed:
            request.give_up()
            return
        refusal = PermissionDenied(f"PERMISSION_DENIED: the lease does not allow {request.method}")
        call_id = await self._calls.begin(request.method, {})
        await self._calls.fail(call_id, refusal)
        if isinstance(request, acp.PermissionRequest):
            request.refuse()
        else:
            request.fail(-32603, refusal.message)

    async def close(self) -> None:
        """Answer what is open, and refuse what still comes: the job is ending."""
        self._closed = True
