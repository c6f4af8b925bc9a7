"""The two ways to show a job: to people, and as JSON to programs."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Final, Protocol, cast

import trio

from arcp_trio import Client, Event, JobHandle, ObservedJob
from arcp_trio.authority.lease import BUDGET
from arcp_trio.cli.client.event_lines import Teller, paint
from arcp_trio.cli.client.figures import duration
from arcp_trio.cli.client.output import Output, json_line, stderr, stdout
from arcp_trio.cli.client.screen import Screen
from arcp_trio.cli.client.streamed_result import StreamedResult
from arcp_trio.cli.errors import PROGRAM, CommandError, ExitCode
from arcp_trio.cli.text import fitted, safe_json, safe_line, safe_lines
from arcp_trio.wire.json import JsonObject, JsonValue, dumps, list_in

_REDRAW_SECONDS: Final = 0.1
_SILENT_SECONDS: Final = 1.0
"""How long a job may say nothing until the live line shows that it goes on."""
_UNDER_WAY: Final = ("pending", "running")
CONNECTION_LOST: Final = "connection lost, trying again"
NOTHING_MISSED: Final = "; nothing is missed"


class Display(Protocol):
    """How a job is shown."""

    @property
    def screen(self) -> Screen:
        """Where notices and questions are shown."""
        ...

    async def begin(self, client: Client, job: JobHandle | ObservedJob) -> None:
        """Show which job it is; from then on, a loss of the client's connection is shown."""
        ...

    async def event(self, event: Event) -> None:
        """Show an event."""
        ...

    async def keep_up(self) -> None:
        """Show what changes, until cancelled."""
        ...

    async def end(self, terminal: JsonObject, value: JsonValue) -> bool:
        """Show how the job ended; return whether that is all there is to say."""
        ...


def make_display(*, as_json: bool) -> Display:
    """Return the display that the options ask for."""
    out, err = stdout(), stderr()
    if as_json:
        return JsonDisplay(out, Screen(err, live=False))
    screen = Screen(err, live=out.obeys and err.obeys)
    for handler in logging.getLogger().handlers:
        handler.addFilter(screen.make_way)
    return PeopleDisplay(out, screen)


class JsonDisplay:
    """Writes one object per line to standard output."""

    def __init__(self, out: Output, screen: Screen) -> None:
        self.screen = screen
        self._out = out
        self._job_id = ""

    async def begin(self, client: Client, job: JobHandle | ObservedJob) -> None:  # noqa: ARG002
        """Write nothing: each line says which job it is about."""
        self._job_id = job.id
        await trio.lowlevel.checkpoint()

    async def event(self, event: Event) -> None:
        """Write an event."""
        await self._out.write(
            json_line(
                {
                    "seq": event.seq,
                    "job_id": event.job_id,
                    "kind": event.kind,
                    "body": event.body,
                    "ts": event.ts,
                }
            )
        )

    async def keep_up(self) -> None:
        """Write nothing."""
        await trio.sleep_forever()

    async def end(self, terminal: JsonObject, value: JsonValue) -> bool:  # noqa: ARG002 - terminal has it
        """Write the message that ended the job."""
        kind = {"type": terminal["type"], "job_id": self._job_id}
        await self._out.write(json_line(kind | terminal))
        return True


class PeopleDisplay:
    """Writes the result to standard output, and everything else to standard error."""

    def __init__(self, out: Output, screen: Screen) -> None:
        self.screen = screen
        self._out = out
        self._client: Client | None = None
        self._job_id = ""
        self._begun = math.inf
        self._at_work = ""
        self._result = StreamedResult(out, screen)
        self._teller = Teller(live=screen.live, colours=screen.colours, shorten=screen.shorten)

    async def begin(self, client: Client, job: JobHandle | ObservedJob) -> None:
        """Show the id of the job and its agent."""
        self._client = client
        self._job_id = safe_line(job.id)
        self._begun = trio.current_time()
        # When a job began that was submitted elsewhere is not known.
        self._at_work = "running" if isinstance(job, JobHandle) else "watching"
        self._teller.lease(job.lease)
        self._teller.budget(_granted(job.lease), job.budget)
        if isinstance(job, ObservedJob) and job.status not in _UNDER_WAY:
            self._result.wait_for_the_end()  # there are chunks of earlier runs, too
        await self.screen.add([f"{self._job_id}  {safe_line(job.agent)}".rstrip()])

    async def event(self, event: Event) -> None:
        """Show an event as lines, or as part of the live line."""
        if lines := self._teller.tell(event):
            # The live line is drawn anew each time: in a burst of lines it would become outdated.
            await self.screen.add(lines, self._live_line())
        if event.kind == "result_chunk":
            await self._result.add(event.body)

    async def keep_up(self) -> None:
        """Draw the live line at intervals: events may come faster than a person can read."""
        while True:
            await self.screen.change(self._live_line())
            await trio.sleep(_REDRAW_SECONDS)

    def _live_line(self) -> str:
        columns = self.screen.columns
        if self._client is not None and not self._client.connected:
            lost = _outage(self._client.next_attempt, columns)
            return paint(lost, "yellow", colours=self.screen.colours)
        # A result that grows on the screen shows by itself that something goes on.
        if self._result.on_screen:
            return ""
        return self._teller.live_line(columns) or self._silence()

    def _silence(self) -> str:
        """Return what shows that a job goes on of which nothing is known; at first, no text."""
        seconds = trio.current_time() - self._begun
        if seconds < _SILENT_SECONDS:
            return ""
        return paint(f"{self._at_work} {duration(seconds)}", "cyan", colours=self.screen.colours)

    async def end(self, terminal: JsonObject, value: JsonValue) -> bool:
        """Write the result, if there is one."""
        succeeded = terminal["type"] == "job.result"
        streamed = "result_id" in terminal and isinstance(value, str | bytes)
        if succeeded and streamed:
            await self._finish_streamed(cast("str | bytes", value))
        self._teller.refused(terminal)
        await self.screen.add(self._teller.closing(), "")
        if succeeded and not streamed:
            await self._out.write(self._shown(value))
        return succeeded

    async def _finish_streamed(self, value: str | bytes) -> None:
        if not await self._result.finish(value):
            raise CommandError(
                f"{self._job_id} succeeded, but its agent has begun the result anew,"
                " and what was written is the beginning of the other one;"
                f" {PROGRAM} watch {self._job_id} writes the result",
                exit_code=ExitCode.FAILED,
            )

    def _shown(self, value: JsonValue) -> str:
        if isinstance(value, str):
            text = "\n".join(safe_lines(value)) if self._out.is_terminal else value
            return text if text.endswith("\n") else f"{text}\n"
        line = safe_json(dumps(value).decode())
        if self._out.is_terminal and len(line) >= self._out.columns:
            line = safe_json(json.dumps(value, indent=2, ensure_ascii=False))
        return f"{line}\n"


def _outage(next_attempt: float | None, columns: int) -> str:
    """Return what stands in place of the live line while the connection is lost."""
    said = CONNECTION_LOST
    if next_attempt is not None:
        said += f" in {max(1, math.ceil(next_attempt - trio.current_time()))} s"
    whole = said + NOTHING_MISSED
    return whole if len(whole) < columns else fitted(said, columns - 1)


def _granted(lease: Mapping[str, JsonValue]) -> dict[str, Decimal]:
    """Return the amounts of a lease's budget by currency, as far as they can be read."""
    granted: dict[str, Decimal] = {}
    for pattern in list_in(lease.get(BUDGET)):
        currency, _, amount = str(pattern).partition(":")
        with suppress(InvalidOperation):
            if (value := Decimal(amount)).is_finite():
                granted[currency] = value
    return granted
