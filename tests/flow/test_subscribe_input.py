"""What an observer is told of a job beyond §7.6: when it was created, and perhaps its input."""

from __future__ import annotations

import json

import pytest
from trio.testing import MockClock

from arcp_trio import Policy
from arcp_trio.runtime.session.observing import MOST_INPUT_BYTES
from arcp_trio.wire.features import Feature
from arcp_trio.wire.json import Json
from arcp_trio.wire.rules import VENDOR
from tests.flow.observing import FEATURES, listing, open_scene, subscribe
from tests.stage import AUDITOR

OURS = (*FEATURES, Feature.QUESTIONS)
"""What a client offers that knows a feature of this project."""


@pytest.mark.parametrize("given", [None, {"n": [1, 2]}, "x" * (MOST_INPUT_BYTES - 2)])
async def test_the_input_while_the_job_lives(given: Json, autojump_clock: MockClock) -> None:
    """Its own principal is told a live job's input, null too, and later only when it began."""
    async with open_scene() as scene:
        owner = await scene.welcomed()
        watcher, late = [await scene.welcomed(features=OURS) for _ in range(2)]
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
        owner, watcher = await scene.welcomed(), await scene.welcomed(features=OURS)
        job_id = (await owner.submit("teller", "x" * MOST_INPUT_BYTES))["job_id"]
        assert set((await subscribe(watcher, job_id))[VENDOR]) == {"created_at"}


async def test_another_principal_is_not_told_it(autojump_clock: MockClock) -> None:
    """Those who may observe everybody's jobs are not told their inputs."""
    async with open_scene(policy=Policy(observers={"auditor"})) as scene:
        owner, watcher = await scene.welcomed(), await scene.welcomed(token=AUDITOR, features=OURS)
        job_id = (await owner.submit("teller", "secret"))["job_id"]
        assert set((await subscribe(watcher, job_id))[VENDOR]) == {"created_at"}


async def test_other_clients_are_told_what_the_specification_says(
    autojump_clock: MockClock,
) -> None:
    """A client that knows no feature of this project gets no field that only we know."""
    async with open_scene() as scene:
        owner, ours = await scene.connect(), await scene.connect()
        welcome = await owner.hello(features=FEATURES)
        assert VENDOR not in welcome["payload"]
        assert (await ours.hello(features=OURS))["payload"][VENDOR] == {"store": "memory"}
        job_id = (await owner.submit("teller"))["job_id"]
        watcher = await scene.welcomed()
        assert VENDOR not in await subscribe(watcher, job_id)
