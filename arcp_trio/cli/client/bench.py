"""`arcp-trio bench`: a few seconds of measurements at a runtime.

They show what one installation can do, with its disk and the network up to it. `make bench` is what
compares versions of the code. The jobs leave the list at their end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import attrs
import trio

from arcp_trio import Client
from arcp_trio.cli.client.connecting import connected
from arcp_trio.cli.client.options import OutputOptions
from arcp_trio.cli.client.output import Output, json_line, stdout
from arcp_trio.cli.client.runner import run_client
from arcp_trio.cli.client.signals import Interrupts
from arcp_trio.cli.errors import CommandError, ExitCode

_SECONDS: Final = 1.0
"""How long each figure but the last is measured."""
_ABREAST: Final = 20
_EVENTS: Final = 20_000
_NEEDED: Final = frozenset({"echo", "chatty"})


@attrs.frozen(kw_only=True)
class Figure:
    """One result of a measurement."""

    figure: str
    value: float
    unit: str


def run(options: OutputOptions) -> int:
    """Measure, and return the exit code."""
    return run_client(_measure, options)


async def _measure(options: OutputOptions, interrupts: Interrupts) -> int:
    out = stdout()
    async with connected(options, interrupts) as client:
        missing = _NEEDED - {agent.name for agent in client.agents}
        if missing:
            raise CommandError(
                f"this runtime has no agent {' and no '.join(sorted(missing))}; run serve with"
                " --demo-agents",
                exit_code=ExitCode.FAILED,
            )
        async for figure in _figures(client):
            await _write(figure, out, as_json=options.json)
    return ExitCode.SUCCESS


async def _write(figure: Figure, out: Output, *, as_json: bool) -> None:
    if as_json:
        await out.write(json_line(attrs.asdict(figure)))
    else:
        await out.write(f"{figure.figure:28} {figure.value:>10,.1f} {figure.unit}\n")


async def _figures(client: Client) -> AsyncIterator[Figure]:
    times = sorted(await _round_trips(client, abreast=1))
    yield Figure(figure="one job, submit to result", value=_ms(times[len(times) // 2]), unit="ms")
    slow = times[len(times) * 99 // 100]
    yield Figure(figure="the slowest of a hundred", value=_ms(slow), unit="ms")
    many = await _round_trips(client, abreast=_ABREAST)
    yield Figure(figure=f"jobs, {_ABREAST} at a time", value=len(many) / _SECONDS, unit="1/s")
    yield Figure(figure="events of one job", value=await _event_rate(client), unit="1/s")


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


async def _round_trips(client: Client, *, abreast: int) -> list[float]:
    """Submit small jobs, `abreast` at a time; return the seconds that each took."""
    times: list[float] = []
    end = trio.current_time() + _SECONDS

    async def submit_again_and_again() -> None:
        while (begun := trio.current_time()) < end:
            job = await client.submit("echo", len(times), forget=True)
            await job.result()
            times.append(trio.current_time() - begun)

    async with trio.open_nursery() as nursery:
        for number in range(abreast):
            nursery.start_soon(submit_again_and_again, name=f"submitter {number}")
    return times


async def _event_rate(client: Client) -> float:
    """Read all events of one job that logs much; return how many there were per second."""
    begun = trio.current_time()
    job = await client.submit("chatty", {"n": _EVENTS, "size": 100}, forget=True)
    count = 0
    async for _ in job.events():
        count += 1
    await job.result()
    return round(count / (trio.current_time() - begun), 1)
