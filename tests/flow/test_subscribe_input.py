"""What an observer is told of a job beyond §7.6: when it was created, and perhaps its input."""

from __future__ import annotations

import json

import pytest
from trio.testing import MockClock

from arcp_trio import Policy
from arcp_trio.runtime.session.observing import MOST_INPUT_BYTES
from arcp_trio.wire.json import Json
from arcp_trio.wire.rules import VENDOR
from tests.flow.observing import listing, open_scene, subscribe
from tests.stage import AUDITOR


@pytest.mark.parametrize("given", [None, {"n": [1, 2]}, "x" * (MOST_INPUT_BYTES - 2)])
async def test_the_input_while_the_job_lives(given: Json, autojump_clock: MockClock) -> None:
    """Its own principal is told a live job's input, null too, and later only when it began."""
    async with open_scene() as scene:
        owner, watcher, late = [await scene.welcomed() for _ in range(3)]
        job_id = (await owner.submit("teller", given))["job_id"]
        (entry,) = (await listing(watcher))["jobs"]
        told = (await subscribe(watcher, job_id))[VENDOR]
        assert told == {
            "created_at": entry["created_at"],
            "input": json.dumps(given, separators=(",", ":")),
        }
        await scene.end(owner, job_id)
        told = (await subscribe(late, job_id))[VENDOR]
        assert told == {"created_at": entry["created_at"]}


async def test_a_large_input_is_not_told(autojump_clock: MockClock) -> None:
    """An input of more than 64 KiB is left out."""
    async with open_scene() as scene:
        owner, watcher = await scene.welcomed(), await scene.welcomed()
        job_id = (await owner.submit("teller", "x" * MOST_INPUT_BYTES))["job_id"]
        assert set((await subscribe(watcher, job_id))[VENDOR]) == {"created_at"}


async def test_another_principal_is_not_told_it(autojump_clock: MockClock) -> None:
    """Those who may observe everybody's jobs are not told their inputs."""
    async with open_scene(policy=Policy(observers={"auditor"})) as scene:
        owner, watcher = await scene.welcomed(), await scene.welcomed(token=AUDITOR)
        job_id = (await owner.submit("teller", "secret"))["job_id"]
        assert set((await subscribe(watcher, job_id))[VENDOR]) == {"created_at"}
