"""`arcp-trio bench`: what the runtime takes that it is pointed at, measured in a few seconds.

It is a look at one installation, with its disk and its network in between. `make bench` compares
versions of the code.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Final

import attrs
import trio

from arcp_trio.cli.client.connecting import connected
from arcp_trio.cli.client.options import BenchOptions
from arcp_trio.cli.client.output import Output, json_line, stdout
from arcp_trio.cli.client.runner import Interrupts, run_client
from arcp_trio.cli.errors import CommandError
from arcp_trio.client import Client

_SECONDS: Final = 1.0
"""How long each figure is measured, but for the last."""
_ABREAST: Final = 20
_EVENTS: Final = 20_000
_NEEDED: Final = frozenset({"echo", "chatty"})


@attrs.frozen(kw_only=True)
class Figure:
    """One thing that was measured."""

    figure: str
    value: float
    unit: str


def run(given: Mapping[str, object]) -> int:
    """Measure and return the exit code."""
    options = BenchOptions(**given)  # type: ignore[arg-type]  # the parser held each to its kind

    async def measure(interrupts: Interrupts) -> int:
        out = stdout()
        async with connected(options, interrupts) as client:
            missing = _NEEDED - {agent.name for agent in client.agents}
            if missing:
                raise CommandError(
                    f"this runtime has no agent {' and no '.join(sorted(missing))}; a serve without"
                    " --no-demo-agents has",
                    exit_code=1,
                )
            async for figure in _figures(client):
                await _show(figure, out, as_json=options.json)
        return 0

    return run_client(options, measure)


async def _show(figure: Figure, out: Output, *, as_json: bool) -> None:
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
    """Submit small jobs one after the other, in so many tasks; return what each took."""
    times: list[float] = []
    end = trio.current_time() + _SECONDS

    async def submit_again_and_again() -> None:
        while (begun := trio.current_time()) < end:
            job = await client.submit("echo", len(times))
            await job.result()
            times.append(trio.current_time() - begun)

    async with trio.open_nursery() as nursery:
        for number in range(abreast):
            nursery.start_soon(submit_again_and_again, name=f"submitter {number}")
    return times


async def _event_rate(client: Client) -> float:
    """Have one job say much, and read all of it."""
    begun = trio.current_time()
    job = await client.submit("chatty", {"n": _EVENTS, "size": 100})
    count = 0
    async for _ in job.events():
        count += 1
    await job.result()
    return round(count / (trio.current_time() - begun), 1)
