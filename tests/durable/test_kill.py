"""A durable job that is killed at any commit: its stream, its effects, its money and its result."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

import pytest
from trio.testing import MockClock

from arcp_trio.wire.json import loads_object
from tests.durable.comparing import FROM_INSIDE, outside
from tests.durable.mortal import Story
from tests.durable.script import EFFECTS, RESULT


async def check(story: Story, plain: Story) -> None:
    """Compare a story with deaths with one without any."""
    assert story.end is not None
    assert story.life is not None
    assert story.end["payload"]["final_status"] == "success", story.end
    told, usual = story.told, plain.told
    assert outside(told, ordered=True) == outside(usual, ordered=True)
    assert Counter(outside(told)) == Counter(outside(usual))
    counts = Counter(told)
    for text in FROM_INSIDE:
        assert 1 <= counts[text] <= 1 + story.deaths
    resumed = [text for text in told if text.startswith("resumed")]
    assert resumed == [f"resumed {run}" for run in range(2, 2 + len(resumed))]
    assert len(resumed) <= story.deaths
    assert story.result == plain.result == RESULT
    assert set(story.world.done) == EFFECTS
    assert max(story.world.done.values()) <= 1 + story.deaths
    for done in story.done_at_deaths:
        for effect in done:
            first_deaths = sum(effect not in each for each in story.done_at_deaths)
            assert story.world.done[effect] <= 1 + first_deaths, effect
    row = await story.life.store.job(story.end["job_id"])
    assert row is not None
    assert row.spent is not None
    spent = Decimal(str(loads_object(row.spent)["USD"]))
    assert spent == 2 + counts["cost.inner 1"]
    assert row.budget is not None
    assert Decimal(str(loads_object(row.budget)["USD"])) == 10 - spent


async def test_a_death_at_every_commit(autojump_clock: MockClock) -> None:
    """The stream is that of a life without a death, but for `resumed` and what steps say again."""
    plain = Story()
    await plain.live_through()
    assert plain.commits > 20
    assert set(plain.world.done.values()) == {1}
    for death in range(1, plain.commits + 1):
        story = Story()
        try:
            await story.live_through(death)
            await check(story, plain)
        except BaseException as error:
            error.add_note(f"at commit {death} of {plain.commits}")
            raise


@pytest.mark.parametrize("second", [1, 2, 3, 4, 6, 9, 13])
async def test_two_deaths_in_a_row(second: int, autojump_clock: MockClock) -> None:
    """A second death, soon after the start that followed the first, changes nothing of this."""
    plain = Story()
    await plain.live_through()
    for first in range(1, plain.commits + 1, 2):
        story = Story()
        try:
            await story.live_through(first, second)
            await check(story, plain)
        except BaseException as error:
            error.add_note(f"at commits {first} and {second}")
            raise
