"""A program sees the same events and results, whatever happens to its network."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import Client, ConnectionFailed, InvalidRequest, JobCancelled, connect
from tests.client.faults import Fault, FaultyNetwork
from tests.client.support import TOKEN, real_runtime

EVENTS = 4
TWICE = (Fault.CUT, Fault.HALF_OPEN)


@asynccontextmanager
async def _connected(network: FaultyNetwork, **options: Any) -> AsyncGenerator[Client, None]:
    """Connect, as often as it takes: the client reconnects by itself only after the first time."""
    async with AsyncExitStack() as stack:
        while True:
            connecting = connect(network.open, token=TOKEN, **options)
            try:
                client = await stack.enter_async_context(connecting)
            except ConnectionFailed:
                continue
            break
        yield client


async def _program(network: FaultyNetwork) -> list[Any]:
    """Make a call of every kind, and return what the program sees."""
    seen: list[Any] = []
    async with _connected(network) as client:
        job = await client.submit("count", EVENTS)
        seen.append([event.body["message"] async for event in job.events()])
        seen.append(await job.result())
        slow = await client.submit("paced", 2)
        events = slow.events()
        seen.append((await anext(events)).body["message"])
        again = await client.subscribe(slow.id, history=True)
        seen.append([event.body["message"] async for event in events])
        seen.append([event.body["message"] async for event in again.events()])
        ended = await client.subscribe(slow.id, history=True)
        seen.append([event.body["message"] async for event in ended.events()])
        seen.append(await ended.result())
        endless = await client.submit("stuck")
        await endless.cancel("enough")
        with pytest.raises(JobCancelled):
            await endless.result()
        seen.append([event.kind async for event in _safely(endless.events())])
        seen.append([info.status async for info in client.jobs()])
        with pytest.raises(InvalidRequest):
            await job.cancel()
        curious = await client.submit("curious", 2, lease={"tool.call": ["human.ask"]})
        async for question in curious.questions():
            await question.answer(f"to {question.prompt}")
        seen.append(await curious.result())
    async with _connected(network) as client:
        observed = await client.subscribe(job.id, history=True)
        seen.append([event.body["message"] async for event in observed.events()])
        seen.append(await observed.result())
    return seen


async def _safely(events: Any) -> Any:
    async for event in events:
        yield event


async def _handled(network: FaultyNetwork) -> list[Any]:
    """Do the same with a slow event handler that submits a job itself."""
    seen: list[Any] = []

    async def on_event(event: Any) -> None:
        seen.append(event.body["message"])
        await trio.sleep(0.01)
        if event.body["message"] == "2":
            inner = await client.submit("echo", "from the handler")
            seen.append(await inner.result())

    async with _connected(network, on_event=on_event) as client:
        job = await client.submit("count", EVENTS)
        seen.append(await job.result())
    return seen


def _run(
    program: Any, fault: Fault | None = None, at: Collection[int] = (), *, to_client: bool = True
) -> Any:
    async def main() -> tuple[list[Any], list[int]]:
        async with real_runtime() as runtime, trio.open_nursery() as nursery:
            network = FaultyNetwork(runtime, nursery, fault, at, to_client)
            seen: list[Any] = []
            with trio.fail_after(3_600):
                seen = await program(network)
            nursery.cancel_scope.cancel()
        assert fault is None or network.hits > 0
        return seen, network.frames

    return trio.run(main, clock=MockClock(autojump_threshold=0))


@pytest.mark.parametrize("to_client", [True, False], ids=["to-client", "to-runtime"])
@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name.lower())
@pytest.mark.parametrize("program", [_program, _handled])
def test_a_program_sees_the_same_events(program: Any, fault: Fault, *, to_client: bool) -> None:
    """A fault at any frame changes neither events nor results nor answers.

    For some faults the frame after it meets one, too: often the first of the next connection.
    """
    right, frames = _run(program)
    total = frames[0 if to_client else 1]
    assert total > EVENTS
    for first in range(total):
        for at in [{first}, {first, first + 1}][: 1 + (fault in TWICE)]:
            seen, _ = _run(program, fault, at, to_client=to_client)
            assert seen == right, f"with frames {at} of {total}: {fault.value}"


def test_without_faults_the_program_sees_everything() -> None:
    """Without faults the program sees what the other tests compare with."""
    assert _run(_program)[0] == [
        ["0", "1", "2", "3"],
        {"n": 4},
        "0",
        ["1"],
        ["0", "1"],
        ["0", "1"],
        {"n": 2},
        ["status"],
        ["cancelled", "success", "success"],
        ["to question 0?", "to question 1?"],
        ["0", "1", "2", "3"],
        {"n": 4},
    ]
    assert _run(_handled)[0] == ["0", "1", "2", "from the handler", "3", {"n": 4}]
