"""Whatever clients do and when, nothing is lost, doubled or swapped.

Schedules are generated, carried out in virtual time, and compared with a model: a session's numbers
are 1 to N, a repeated frame is the same frame, each job's events are those it emitted, in order and
with one end after them, and across jobs the order is the order of emission. A schedule that fails
is printed whole; `carry_out` repeats it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import trio
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import FlakyFailure

from tests import defects
from tests.inside import set_back_pressure_lag, small_steps
from tests.ordering.programs import (
    Bounds,
    Drop,
    Outlast,
    Pause,
    Program,
    Resume,
    observations,
    overflows,
    programs,
)
from tests.ordering.world import carry_out

EXAMPLES = 2_000
SOAK_EXAMPLES = 50_000

_schedules = settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(autouse=True, scope="module")
def _small_steps() -> Iterator[None]:
    """Make batches so small that schedules of a few dozen events cross their bounds."""
    with pytest.MonkeyPatch.context() as patch:
        small_steps(patch)
        set_back_pressure_lag(patch, 6)
        yield


_turns = st.random_module()
"""The seed of Trio's scheduler, which differs from example to example."""


@pytest.mark.timeout(600)  # shrinking a failing schedule takes long
@pytest.mark.spec("6.3-1", "6.3-3", "6.5-7", "6.7-2", "8.3-1", "8.3-2")
@_schedules
@given(programs, _turns)
def test_any_schedule(program: Program, turns: object) -> None:
    """Clients that drop, resume, take over, read slowly, cancel or stay away miss nothing."""
    carry_out(program)


@pytest.mark.soak
@settings(_schedules, max_examples=SOAK_EXAMPLES)
@given(programs, _turns)
def test_very_many_schedules(program: Program, turns: object) -> None:
    """The same holds for as many schedules as fit into some minutes."""
    carry_out(program)


_OVERTAKEN = Program(
    bounds=Bounds(1, 1, 1, 1, 1),
    features=(("ack",), ("ack",)),
    steps=(
        Drop(0, losing=True),
        Pause(0.01),
        Resume(0, 0, token_before=False, short=False, unheard=True),
        Resume(0, 0, token_before=False, short=False, unheard=False),
        Outlast(0),
    ),
)


@settings(_schedules, max_examples=100)
@given(_turns)
def test_a_resume_that_is_overtaken_takes_the_session_over(turns: object) -> None:
    """If two resumes arrive at once, the later one has the session, for as long as it is open."""
    carry_out(_OVERTAKEN)


@pytest.mark.timeout(600)
@pytest.mark.spec("6.2-4", "8.3-2")
@settings(_schedules, max_examples=EXAMPLES // 4)
@given(overflows, _turns)
def test_the_order_across_jobs_outlives_any_overflow(program: Program, turns: object) -> None:
    """Jobs too fast for outbox and client stay in the order of emission.

    A session without the feature `progress` gets no such event, and no gap in its place.
    """
    carry_out(program)


@pytest.mark.timeout(600)
@pytest.mark.spec("7.6-3", "7.6-4", "7.6-8", "8.3-2")
@settings(_schedules, max_examples=EXAMPLES // 2)
@given(observations, _turns)
def test_observers_see_each_event_once_and_in_order(program: Program, turns: object) -> None:
    """Clients that subscribe, unsubscribe, drop and resume see each event once, in order."""
    carry_out(program)


# -- variants with a defect: the model must find each


@pytest.mark.parametrize(
    ("defect", "schedules"),
    [
        (defects.end_jobs_with_their_connection, programs),
        (defects.forget_the_token_before, programs),
        (defects.replay_from_too_late, programs),
        (defects.forget_overflow, overflows),
        (defects.catch_up_job_by_job, overflows),
        (defects.number_hidden_events, overflows),
        (defects.repeat_the_boundary, observations),
        (defects.lose_the_boundary, observations),
        (defects.feed_twice, observations),
    ],
)
def test_the_model_finds(
    defect: Callable[[pytest.MonkeyPatch], None], schedules: st.SearchStrategy[Program]
) -> None:
    """Each defect, put into the runtime, makes one of the schedules fail."""

    @settings(_schedules, phases=[Phase.generate], derandomize=True, database=None)
    @given(schedules, _turns)
    def any_schedule(program: Program, turns: object) -> None:
        carry_out(program)

    with pytest.MonkeyPatch.context() as patch:
        defect(patch)
        with pytest.raises((AssertionError, trio.TooSlowError, FlakyFailure)) as found:
            any_schedule()
    if isinstance(found.value, FlakyFailure):
        # The runtime rests for as long as work has held the loop: a repetition may differ.
        assert found.group_contains((AssertionError, trio.TooSlowError))
