"""The calls of a context that the store remembers: steps, tool calls as steps, sleeps, notes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from inspect import isawaitable
from typing import Final

import attrs

from arcp_trio.runtime.job.awaiting import awaited
from arcp_trio.runtime.job.desk import Desk
from arcp_trio.runtime.job.durable.keys import key_of
from arcp_trio.runtime.job.durable.places import go_live, inside
from arcp_trio.runtime.job.durable.retry import Retry
from arcp_trio.runtime.job.durable.steps import seconds_of
from arcp_trio.runtime.job.durable.values import decoded, encoded
from arcp_trio.runtime.job.job_view import JobView
from arcp_trio.runtime.job.notes import note_of
from arcp_trio.wire.json import Json, JsonValue, dumps

_ONCE: Final = Retry(attempts=1)


@attrs.frozen
class _Work:
    """The call of a step's function, and how its end is told to the job."""

    name: str
    path: tuple[str | int, ...]
    function: Callable[[], object]
    returns: type | None
    retry: Retry
    finish: Callable[[bytes], None]

    @property
    def key(self) -> str:
        """The step's key."""
        return key_of(self.path)


class DurableCalls(JobView):
    """What a context offers for work that is not to be done again after a restart, and notes.

    Agents that are not durable have the same calls, of which only notes are stored.
    """

    @awaited
    async def step(
        self,
        name: str,
        function: Callable[..., Json],
        /,
        *args: object,
        retry: Retry | None = None,
        returns: type | None = None,
        **kwargs: object,
    ) -> Json:
        """Await `function` and store its result, unless an earlier run has: then return that.

        The next run calls a function again that raised, or in which the process died. What is
        returned is always what was stored: a tuple has become a list. In tasks that
        run side by side, steps need names of their own.

        Args:
            name: the step's name; it may come again, one after the other.
            function: does the work.
            args: are passed on to it.
            retry: has it called again when it fails.
            returns: the type of the result, which cattrs makes JSON of; by default it is JSON.
            kwargs: are passed on, too.

        Raises:
            TypeError: the result cannot be stored.
            ValueError: a step of this name runs in another task, or did; or the name is invalid.
            RuntimeError: the call is inside of a `tool_call` block, or of a step that has ended.
            InternalError: the result is larger than `memo_bytes`, or all are than `memos_bytes`.
        """
        path = self._place().next_path(name)
        key = key_of(path)
        state = await self._link.do(Desk.begin_step, key)
        if state is None:
            self._go_live()
        elif "done" in state:
            return decoded(dumps(state["done"]), returns, name)

        def finish(result: bytes) -> None:
            self._link.ask(Desk.finish_step, key, result.decode())

        call = partial(function, *args, **kwargs)
        work = _Work(name, path, call, returns, retry or _ONCE, finish)
        result = await self._work(work, state or {})
        await self._link.do(Desk.memos_kept)
        return result

    @awaited
    async def call_tool(
        self,
        tool: str,
        function: Callable[..., Json],
        /,
        *,
        name: str | None = None,
        retry: Retry | None = None,
        returns: type | None = None,
        **arguments: Json,
    ) -> Json:
        """Call a tool as a step: authorise it, and emit `tool_call` and `tool_result`.

        After a restart, nothing of this is done for a call that has returned. One that was
        interrupted goes on under its id. See `step`.

        Raises:
            LeaseExpired, BudgetExhausted, PermissionDenied: the lease does not allow it.
        """
        name = name or tool
        path = self._place().next_path(name)
        key = key_of(path)
        state = await self._link.do(Desk.begin_tool, key, tool, arguments)
        if "done" in state:
            return decoded(dumps(state["done"]), returns, name)
        self._go_live()
        call_id = str(state["call_id"])

        def finish(result: bytes) -> None:
            self._link.ask(Desk.finish_tool, key, call_id, result.decode())

        call = partial(function, **arguments)
        work = _Work(name, path, call, returns, retry or _ONCE, finish)
        try:
            if state["asked"]:
                await self._link.do(Desk.decision, call_id)
            with self._link.span(call_id):
                result = await self._work(work, state)
        except BaseException as error:
            self._link.ask(Desk.fail_tool, key, call_id, error)
            raise
        await self._link.do(Desk.memos_kept)
        return result

    @awaited
    async def sleep(self, seconds: float, *, name: str = "sleep") -> None:
        """Sleep for so long; a restart lets the remainder be slept.

        Raises:
            ValueError: it is not a number of seconds, 0 or more.
        """
        if not 0 <= seconds < math.inf:  # refuses nan, too
            raise ValueError("expected a number of seconds, 0 or more")
        await self._sleep(name, float(seconds), None)

    @awaited
    async def sleep_until(self, time: datetime | float, *, name: str = "sleep") -> None:
        """Sleep until a time of day: an aware `datetime`, or seconds as `time.time()` has them.

        Raises:
            ValueError: the `datetime` has no time zone, or the number is not finite.
        """
        if isinstance(time, datetime):
            if time.tzinfo is None:
                raise ValueError("expected a datetime with a time zone")
            time = time.timestamp()
        if not math.isfinite(time):
            raise ValueError("expected seconds as time.time() has them, or a datetime")
        await self._sleep(name, None, float(time))

    async def _sleep(self, name: str, seconds: float | None, until: float | None) -> None:
        key = key_of(self._place().next_path(name))
        if not await self._link.do(Desk.sleep, key, seconds, until):
            self._go_live()

    # -- notes for later jobs

    @awaited
    async def keep(self, value: Json) -> None:
        """Store a note for later jobs, in place of the one before; see `kept`.

        It is stored when this returns, and kept for as long as the job is. No client is sent it.

        Raises:
            TypeError: it is not JSON.
            ValueError: it is larger than 64 KiB.
            InternalError: with it, the job remembers more than `memo_bytes` or `memos_bytes`.
        """
        await self._link.do(Desk.keep, note_of(value))

    @awaited
    async def kept(self, job_id: str) -> Json:
        """Return the note of an earlier job of the same principal, or of this one.

        None if it has kept no note, is not known, or belongs to another principal.
        """
        return await self._link.do(Desk.kept, job_id)

    # -- where the agent is

    @awaited
    async def authorize_or_ask(self, capability: str, target: str) -> None:
        """Return if the lease allows an operation, at once or because people do. Then do it.

        Where the lease says that it may be asked for, people are asked, and waited for.

        Raises:
            PermissionDenied: the lease does not allow it, somebody has denied it, or nobody can be
                asked.
            Unanswered: nobody has decided in time.
            LeaseExpired, BudgetExhausted: the lease does not allow it any longer.
        """
        key = self._key(f"{capability} {target}")
        await self._link.do(Desk.authorize_or_ask, capability, target, key)

    def _go_live(self) -> None:
        go_live(self._place())

    async def _work(self, work: _Work, state: Mapping[str, JsonValue]) -> Json:
        """Call a step's function until it returns or is not to be called again."""
        failed = int(seconds_of(state.get("failed", 0)))
        again_at = seconds_of(state["again_at"]) if "again_at" in state else None
        while True:
            if again_at is not None:
                await self._link.do(Desk.pause, again_at, work.retry.most)
            try:
                with inside(self._link.task(), work.path):
                    value = work.function()
                    if isawaitable(value):
                        value = await value
            except Exception as error:
                failed += 1
                if not work.retry.wants(error, failed):
                    raise
                pause = work.retry.pause(failed)
                again_at = self._link.ask(Desk.fail_step, work.key, failed, pause)
                continue
            data = encoded(value, work.returns, work.name)
            result = decoded(data, work.returns, work.name)
            work.finish(data)
            return result
