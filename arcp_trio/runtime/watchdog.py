"""The watchdog: notices that the loop is held, and by what, and for whom the loop works."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import Final

import attrs
import trio

from arcp_trio.code_places import callers, code_place
from arcp_trio.lateness import LATE_SECONDS
from arcp_trio.runtime.metrics import Metrics
from arcp_trio.runtime.usage import Usages, principal_of

log = logging.getLogger(__name__)

PERIOD_SECONDS: Final = 0.1
"""The time between two looks at the loop."""

PIECE_SECONDS: Final = LATE_SECONDS / 10
"""The loop's answer is waited for in pieces of this length."""


class Watchdog:
    """A thread that regularly asks the loop for a sign of life.

    A loop that gives none for more than `LATE_SECONDS` is held: by code that computes or blocks
    where it should give way, most often an agent's. The loop itself does nothing but answer.

    Each look also finds out for which principal the loop is at work, and counts the time until the
    answer as its own. That costs nothing per event, and is right on average.
    """

    def __init__(self, metrics: Metrics, usages: Usages) -> None:
        self._metrics = metrics
        self._usages = usages
        self._end = threading.Event()
        self._answered = threading.Event()

    async def run(self) -> None:
        """Watch the loop that this task runs in until the task is cancelled."""
        token, loop_thread = trio.lowlevel.current_trio_token(), threading.get_ident()
        thread = threading.Thread(
            target=self._watch, args=(token, loop_thread), name="watchdog", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # the system has no further thread
            log.warning("no watchdog", extra={"error": str(error)})
        try:
            await trio.sleep_forever()
        finally:
            self._end.set()

    def _answer(self, principal: str | None, asked: float) -> None:
        if principal is not None:
            seconds = PERIOD_SECONDS + time.monotonic() - asked
            self._usages.of(principal).loop_seconds += seconds
        self._answered.set()

    # -- in the thread

    def _watch(self, token: trio.lowlevel.TrioToken, loop_thread: int) -> None:
        with suppress(trio.RunFinishedError):
            while not self._end.wait(PERIOD_SECONDS):
                self._answered.clear()
                asked = time.monotonic()
                found = _running_task(callers(_frame_of(loop_thread)))
                principal = None if found is None else principal_of(found[0])
                token.run_sync_soon(self._answer, principal, asked)
                if not self._answers_in_time():
                    self._loop_is_late(asked, loop_thread)

    def _answers_in_time(self) -> bool:
        """Wait for the loop's answer; return whether it has come.

        A piece may take longer, as this thread has no turn while other code keeps Python's lock:
        the processor time that is used meanwhile counts. Time in which the whole process is stopped
        does not count, as the loop can do nothing then.
        """
        left = LATE_SECONDS
        while left > 0:
            began, used = time.monotonic(), time.process_time()
            if self._answered.wait(PIECE_SECONDS):
                return True
            took = min(time.monotonic() - began, time.process_time() - used)
            left -= max(PIECE_SECONDS, took)
        return False

    def _loop_is_late(self, asked: float, loop_thread: int) -> None:
        stall = _stall(_frame_of(loop_thread))
        if stall is None:
            return  # this process was not running, and the loop is about to answer
        self._metrics.loop_stalls += 1
        facts = attrs.asdict(stall)
        log.warning("event loop held", extra=facts)
        while not self._answered.wait(PERIOD_SECONDS):
            if self._end.is_set():
                return
        seconds = round(time.monotonic() - asked, 3)
        log.warning("event loop free again", extra=facts | {"seconds": seconds})


def _frame_of(thread: int) -> FrameType | None:
    """Return what a thread is executing."""
    return sys._current_frames().get(thread)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


@attrs.frozen
class _Stall:
    """What holds the loop."""

    job_id: str | None
    task: str | None
    place: str | None


def _stall(frame: FrameType | None) -> _Stall | None:
    """Return what the loop's thread is doing, or None if it waits for something to do."""
    frames = callers(frame)
    found = _running_task(frames)
    if found is None:
        return None
    task, within = found
    return _Stall(_job_of(task), task.name, code_place(within))


def _running_task(
    frames: Sequence[FrameType],
) -> tuple[trio.lowlevel.Task, Sequence[FrameType]] | None:
    """Return the task that runs, and its frames, innermost first.

    Another thread can learn this only from the frame of Trio's own loop.
    """
    for depth, frame in enumerate(frames):
        if frame.f_code.co_name == "unrolled_run" and frame.f_globals.get("__name__") == _TRIOS:
            if any(each.f_code.co_name == "get_events" for each in frames[:depth]):
                return None  # it waits
            task = frame.f_locals.get("task")
            return (task, frames[:depth]) if isinstance(task, trio.lowlevel.Task) else None
    return None


_TRIOS: Final = "trio._core._run"


def _job_of(task: trio.lowlevel.Task) -> str | None:
    """Return the id of the job whose agent a task belongs to, by the names of its tasks."""
    each: trio.lowlevel.Task | None = task
    while each is not None:
        kind, _, job_id = each.name.partition(" ")
        if kind == "job":
            return job_id
        each = None if each.parent_nursery is None else each.parent_nursery.parent_task
    return None
