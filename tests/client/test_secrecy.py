"""A client shows its two tokens, the bearer token and the resume token, nowhere (§6.2, §14)."""

from __future__ import annotations

import logging
import re

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import connect
from tests.client.support import TOKEN, Network, Wire, real_runtime, scripted


@pytest.mark.spec("1.0/6.2-2")
async def test_tokens_are_told_to_nobody(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    """Neither the log at level DEBUG nor the repr of any object shows a token."""
    caplog.set_level(logging.DEBUG)
    async with real_runtime() as runtime:
        network = Network(runtime)
        async with connect(network.open, token=TOKEN) as client:
            job = await client.submit("paced", 3)
            await trio.sleep(1.5)
            await network.cut()
            assert await job.result() == {"n": 3}
            shown = [repr(each) for each in _within(client, job)]
    told = caplog.text + "".join(shown)
    assert "session" in told
    assert TOKEN not in told
    assert not re.search(r"rt_[0-9a-f]{8}", told)


def _within(*roots: object) -> list[object]:
    """Return the objects, and the objects of this package that they refer to."""
    found: dict[int, object] = {}
    waiting = list(roots)
    while waiting:
        each = waiting.pop()
        if id(each) in found or not type(each).__module__.startswith("arcp_trio"):
            continue
        found[id(each)] = each
        names = [*getattr(each, "__dict__", ()), *getattr(type(each), "__slots__", ())]
        waiting += [getattr(each, name) for name in names if hasattr(each, name)]
    return list(found.values())


@pytest.mark.spec("1.0/11-1")
async def test_a_submit_carries_the_callers_trace(autojump_clock: MockClock) -> None:
    """A submit carries the caller's trace id, or a fresh one."""
    traces: list[object] = []

    async def script(wire: Wire) -> None:
        await wire.welcome()
        for number in range(3):
            submit = await wire.receive("job.submit")
            traces.append(submit["trace_id"])
            await wire.accept(f"job_{number}", submit)
        await wire.end()

    async with (
        scripted(script) as runtime,
        connect(runtime.open, token=TOKEN) as client,
    ):
        await client.submit("echo", trace_id="ab" * 16)
        await client.submit("echo")
        await client.submit("echo")
    assert traces[0] == "ab" * 16
    assert all(re.fullmatch(r"[0-9a-f]{32}", str(trace)) for trace in traces)
    assert len(set(traces)) == 3
