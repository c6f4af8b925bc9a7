"""The beginning of an id finds its job without reading all of a listing."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import connect
from arcp_trio.cli.errors import CommandError
from arcp_trio.cli.ids import whole_job_id
from tests.client.support import TOKEN, Wire, scripted

PAGE = 100
NEWEST = 10**8 - 1


def id_of(number: int) -> str:
    """Return the id of a job; later jobs have greater numbers."""
    return f"job_01ARZ3NDEKTSV4RRF{number:08d}7"


async def endless(wire: Wire) -> None:
    """List jobs, the newest first, without an end; but three of them are not there."""
    await wire.welcome()
    number = NEWEST
    while True:
        asked = await wire.receive("session.list_jobs")
        numbers = [each for each in range(number, number - PAGE, -1) if each % 1000 > 2]
        number -= PAGE
        jobs = [{"job_id": id_of(each), "agent": "echo", "status": "success"} for each in numbers]
        listing = {"request_id": asked["id"], "jobs": jobs, "next_cursor": str(number)}
        await wire.send("session.jobs", listing)


async def meant(given: str) -> tuple[str, int]:
    """Return the id that is found, and how many pages were asked for."""
    with trio.fail_after(60):
        async with scripted(endless) as runtime, connect(runtime.open, token=TOKEN) as client:
            found = await whole_job_id(client, given)
            return found, sum(
                frame["type"] == "session.list_jobs" for frame in runtime.wires[0].seen
            )


async def test_no_more_is_read_than_is_needed(autojump_clock: MockClock) -> None:
    """The listing is read up to jobs that are older than the one that is meant."""
    wanted = id_of(NEWEST - 250)
    assert await meant(wanted[:-1].lower().removeprefix("job_")) == (wanted, 4)
    missing = id_of(NEWEST - 998)[:-1]
    assert await meant(missing) == (missing, 11)
    assert await meant("nope") == ("nope", 1)
    assert await meant("job") == ("job", 0)


async def test_two_are_enough(autojump_clock: MockClock) -> None:
    """Of several jobs that may be meant, the two newest are named, at once."""
    given = id_of(NEWEST)[:20]
    told = f"{given} is the beginning of several ids: {id_of(NEWEST)}, {id_of(NEWEST - 1)}"
    async with scripted(endless) as runtime, connect(runtime.open, token=TOKEN) as client:
        with pytest.raises(CommandError) as refused, trio.fail_after(60):
            await whole_job_id(client, given)
        assert str(refused.value) == told
