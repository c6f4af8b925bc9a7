"""Whatever trees of jobs and their clients do, each session sees the same, in order.

Trees and clients are generated, carried out in virtual time, and compared with what the agents
did. The recorder also checks that a child is accepted after its parent's `delegate` and before any
of its events, and that it ends before its parent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import trio
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests import defects
from tests.inside import no_watchdog, small_steps
from tests.jobs.tree_schedules import Schedule, carry_out, schedules

EXAMPLES = 300
DEFECT_EXAMPLES = 3_000
"""Enough to find the rarest defect, which shows in one of several hundred schedules."""


@pytest.fixture(autouse=True, scope="module")
def _small_steps() -> Iterator[None]:
    """Make batches so small that a few dozen events cross their bounds, and schedules repeatable.

    A schedule that fails is carried out again, and has to fail again.
    """
    with pytest.MonkeyPatch.context() as patch:
        small_steps(patch)
        no_watchdog(patch)
        yield


_examples = settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.timeout(600)  # shrinking a failing schedule takes long
@pytest.mark.spec("8.3-1", "8.3-2", "9.4-3", "9.6-4", "10-1")
@_examples
@given(schedules, st.random_module())
def test_any_tree(schedule: Schedule, turns: object) -> None:
    """Both sessions see every line in the order of emission, and the end of every job."""
    carry_out(schedule)


# -- variants with a defect: the model must find each


@pytest.mark.parametrize(
    "defect", [defects.read_past_a_delegation, defects.spend_alone, defects.end_without_children]
)
def test_the_model_finds(defect: Callable[[pytest.MonkeyPatch], None]) -> None:
    """Each defect, put into the runtime, makes one of the schedules fail."""

    @settings(
        _examples,
        max_examples=DEFECT_EXAMPLES,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
    )
    @given(schedules, st.random_module())
    def any_tree(schedule: Schedule, turns: object) -> None:
        carry_out(schedule)

    with pytest.MonkeyPatch.context() as patch:
        defect(patch)
        with pytest.raises((AssertionError, trio.TooSlowError)):
            any_tree()
