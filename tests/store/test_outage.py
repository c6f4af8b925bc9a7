"""What a store cannot do for a while is logged once for each cause, however often it is tried."""

from __future__ import annotations

import logging

import pytest
import trio
from trio.testing import MockClock

from arcp_trio.log_lines import fields_of
from arcp_trio.store.errors import Fenced, StoreError
from arcp_trio.store.outage import CAUSE_SECONDS, Outage

log = logging.getLogger("arcp_trio.outage")


def attempt(outage: Outage, error: Exception | None = None) -> bool:
    """Try something; return whether it was done."""
    with outage:
        if error is not None:
            raise error
        return True
    return False


async def test_an_outage_is_said_once_and_so_is_its_end(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    """However many tries fail, the log has a warning, and later a line that it is over."""
    caplog.set_level(logging.INFO)
    outage = Outage(log, "nothing is read", {"node": "a"})
    assert attempt(outage)
    for _ in range(2):
        for reason in ("away", "away", "full", "away", "away"):
            assert not attempt(outage, StoreError(reason))
            await trio.sleep(CAUSE_SECONDS / 4)
        assert attempt(outage)
        assert attempt(outage)
    said = [(each.levelname, each.getMessage(), fields_of(each)) for each in caplog.records]
    assert (
        said
        == [
            ("WARNING", "nothing is read", {"node": "a", "error": "away"}),
            ("INFO", "nothing is read: over", {"node": "a"}),
        ]
        * 2
    )


async def test_the_cause_that_is_said_is_the_latest(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    """A cause that has changed is said, too, and causes that take turns are said now and then."""
    outage = Outage(log, "nothing is read", {"node": "a"})
    for reason in ("away", *["wrong password"] * 60, *["full", "away"] * 30):
        assert not attempt(outage, StoreError(reason))
        await trio.sleep(CAUSE_SECONDS / 20)
    said = [(each.getMessage(), fields_of(each)["error"]) for each in caplog.records]
    assert said[:3] == [("nothing is read", each) for each in ("away", "wrong password", "full")]
    assert 4 <= len(said) <= 6


async def test_other_errors_are_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    """What trying again does not help is raised, and neither begins nor ends an outage."""
    outage = Outage(log, "nothing is read")
    attempt(outage, StoreError("away"))
    for error in (Fenced("gone"), KeyError("k")):
        with pytest.raises(type(error)):
            attempt(outage, error)
    attempt(outage, StoreError("away"))
    assert [each.getMessage() for each in caplog.records] == ["nothing is read"]


async def test_an_outage_is_outlasted(autojump_clock: MockClock) -> None:
    """What is to be done is tried again each second until it is done, and its value returned."""
    began, tries = trio.current_time(), list[float]()

    async def read() -> str:
        tries.append(trio.current_time() - began)
        if len(tries) < 3:
            raise StoreError("away")
        return "read"

    assert await Outage(log, "nothing is read").outlast(read) == "read"
    assert tries == [0, 1, 2]
