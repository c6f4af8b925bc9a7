"""What people see of events, before the live line is drawn again by the clock."""

from __future__ import annotations

import os

from arcp_trio import Event
from arcp_trio.cli.client.display import PeopleDisplay
from arcp_trio.cli.client.output import Output
from arcp_trio.cli.client.screen import ERASE, Screen
from arcp_trio.wire.json import JsonObject


def event(kind: str, body: JsonObject) -> Event:
    """Return an event of a job."""
    return Event(seq=1, job_id="job_1", kind=kind, body=body, ts="2026-01-01T00:00:00.000Z")


async def shown(*, live: bool) -> str:
    """Return the output for two rounds of progress and a line of the log."""
    read, write = os.pipe()
    out = Output(write, {})
    view = PeopleDisplay(out, Screen(out, live=live))
    for step in (1, 2):
        await view.event(event("progress", {"current": step, "units": "steps"}))
        await view.event(event("log", {"level": "info", "message": f"did {step}"}))
    os.close(write)
    text = os.read(read, 4096).decode()
    os.close(read)
    return text


async def test_the_live_line_keeps_up_with_lines_that_stay() -> None:
    """Below each line of the log stands the live line as it was then."""
    assert await shown(live=True) == f"info: did 1\n1 steps{ERASE}info: did 2\n2 steps"


async def test_without_a_live_line_there_are_only_lines() -> None:
    """Without a live line, progress has lines of its own."""
    assert (
        await shown(live=False)
        == "progress: 1 steps\ninfo: did 1\nprogress: 2 steps\ninfo: did 2\n"
    )
