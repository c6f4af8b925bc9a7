"""The two ways to show a job: to people, and as JSON to programs."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Final, Protocol, cast

import trio

from arcp_trio import Event, JobHandle, ObservedJob
from arcp_trio.authority.lease import BUDGET
from arcp_trio.cli.client.event_lines import Teller
from arcp_trio.cli.client.output import Output, json_line, stderr, stdout
from arcp_trio.cli.client.screen import Screen
from arcp_trio.cli.text import safe_json, safe_line, safe_lines
from arcp_trio.wire.json import Json, JsonObject, dumps

_REDRAW_SECONDS: Final = 0.1


class Display(Protocol):
    """How a job is shown."""

    @property
    def screen(self) -> Screen:
        """Where notices and questions are shown."""
        ...

    async def begin(self, job: JobHandle | ObservedJob) -> None:
        """Show which job it is."""
        ...

    async def event(self, event: Event) -> None:
        """Show an event."""
        ...

    async def keep_up(self) -> None:
        """Show what changes, until cancelled."""
        ...

    async def end(self, terminal: JsonObject, value: Json) -> bool:
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

    async def begin(self, job: JobHandle | ObservedJob) -> None:
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

    async def end(self, terminal: JsonObject, value: Json) -> bool:  # noqa: ARG002 - terminal has it
        """Write the message that ended the job."""
        kind = {"type": terminal["type"], "job_id": self._job_id}
        await self._out.write(json_line(kind | terminal))
        return True


class PeopleDisplay:
    """Writes the result to standard output, and everything else to standard error."""

    def __init__(self, out: Output, screen: Screen) -> None:
        self.screen = screen
        self._out = out
        self._teller = Teller(live=screen.live, colours=screen.colours, shorten=screen.shorten)

    async def begin(self, job: JobHandle | ObservedJob) -> None:
        """Show the id of the job and its agent."""
        self._teller.budget(_granted(job.lease), job.budget)
        await self.screen.add([f"{safe_line(job.id)}  {safe_line(job.agent)}".rstrip()])

    async def event(self, event: Event) -> None:
        """Show an event as lines, or as part of the live line."""
        if lines := self._teller.tell(event):
            # The live line is drawn anew each time: in a burst of lines it would become outdated.
            await self.screen.add(lines, self._teller.live_line(self.screen.columns))

    async def keep_up(self) -> None:
        """Draw the live line at intervals: events may come faster than a person can read."""
        while True:
            await self.screen.change(self._teller.live_line(self.screen.columns))
            await trio.sleep(_REDRAW_SECONDS)

    async def end(self, terminal: JsonObject, value: Json) -> bool:
        """Write the result, if there is one."""
        await self.screen.add(self._teller.closing(), "")
        if terminal["type"] != "job.result":
            return False
        if isinstance(value, bytes) and self._out.is_terminal:
            await self.screen.add(
                [f"the result is {len(value):,} bytes and not text; send the output to a file"]
            )
        else:
            await self._out.write(self._shown(value, streamed="result_id" in terminal))
        return True

    def _shown(self, value: Json, *, streamed: bool) -> str | bytes:
        if isinstance(value, bytes):
            return value
        if isinstance(value, str):
            text = "\n".join(safe_lines(value)) if self._out.is_terminal else value
            # A streamed result is written to a file as it is; any other text ends with a newline.
            whole = streamed and not self._out.is_terminal
            return text if whole or text.endswith("\n") else f"{text}\n"
        line = safe_json(dumps(value).decode())
        if self._out.is_terminal and len(line) >= self._out.columns:
            line = safe_json(json.dumps(value, indent=2, ensure_ascii=False))
        return f"{line}\n"


def _granted(lease: Mapping[str, Json]) -> dict[str, Decimal]:
    """Return the amounts of a lease's budget by currency, as far as they can be read."""
    patterns: object = lease.get(BUDGET)
    granted: dict[str, Decimal] = {}
    for pattern in cast("Sequence[object]", patterns) if isinstance(patterns, list) else ():
        currency, _, amount = str(pattern).partition(":")
        with suppress(InvalidOperation):
            if (value := Decimal(amount)).is_finite():
                granted[currency] = value
    return granted
