"""A node is dead if its beats stand still while the judge's own go through."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from arcp_trio import Limits
from arcp_trio.runtime.cluster.judging import NodeJudge
from arcp_trio.store.nodes import NodeRow, NodeState, RollCall

ME, OTHER = 1, 2
SECONDS = Limits().node_seconds


def call(at: float, beats: int, *, took: float = 0.01) -> RollCall:
    """Return what this node sees when the other one has beaten that often."""
    return RollCall(
        began=at,
        ended=at + took,
        nodes=[row(ME, int(at)), row(OTHER, beats)],
        ahead=0,
    )


def row(node: int, beats: int) -> NodeRow:
    """Return the row of a node that is up."""
    return NodeRow(
        node=node, name=f"n{node}", state=NodeState.UP, version="1", beats=beats, since=0
    )


def dead_after(calls: Sequence[RollCall | None]) -> list[float | None]:
    """Return when the other node is found dead, each time."""
    judge = NodeJudge(ME, SECONDS)
    return [
        each.began if each is not None else None
        for each in calls
        if [found.node for found in judge.dead(each)] == [OTHER]
    ]


def test_a_node_without_beats_is_dead_after_its_time() -> None:
    """It is found dead at the first look that begins so long after it was first seen to stand."""
    assert dead_after([call(2.0 * n, 7) for n in range(8)])[0] == 12.0


def test_a_node_that_beats_lives() -> None:
    """However rarely it does within its time."""
    assert dead_after([call(2.0 * n, n // 4) for n in range(50)]) == []


def test_the_judge_is_never_dead() -> None:
    """It sees its own beats, and they count for nothing."""
    judge = NodeJudge(ME, SECONDS)
    assert not any(ME in [found.node for found in judge.dead(call(2.0 * n, 0))] for n in range(20))


def test_a_beat_that_fails_voids_what_was_seen() -> None:
    """A judge that was cut off accuses nobody until it has looked on for the whole time again."""
    calls = [call(2.0 * n, 7) for n in range(5)]
    assert dead_after([*calls, None, *(call(12.0 + 2 * n, 7) for n in range(5))]) == []


def test_a_beat_that_is_late_voids_what_was_seen() -> None:
    """The same holds for an answer that comes late, and for a judge that stood still."""
    before = [call(2.0 * n, 7) for n in range(5)]
    late = call(10.0, 7, took=5.0)
    assert dead_after([*before, late, *(call(16.0 + 2 * n, 7) for n in range(4))]) == []
    assert dead_after([*before, *(call(30.0 + 2 * n, 7) for n in range(5))]) == []


@given(st.lists(st.tuples(st.floats(0.1, 9), st.floats(0, 9), st.booleans(), st.booleans())))
def test_nobody_is_accused_within_its_time(
    looks: list[tuple[float, float, bool, bool]],
) -> None:
    """Whatever fails and whenever: it takes that time without a beat, all of it seen."""
    judge = NodeJudge(ME, SECONDS)
    now, beats, quiet_since = 0.0, 0, 0.0
    for pause, took, fails, beaten in looks:
        now += pause
        beats += beaten
        began, now = now, now + took
        if fails or beaten:
            quiet_since = now
        seen = None if fails else call(began, beats, took=took)
        if judge.dead(seen):
            assert began - quiet_since >= SECONDS
            assert took <= SECONDS / 2
