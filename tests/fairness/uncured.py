"""A runtime without what keeps an attack from being felt.

`python -m tests.fairness.uncured ATTACK serve …` is `arcp-trio serve …` without the cures of that
attack. `UNCURED` is the table of attacks and cures; where two cures back each other up, both are
taken out. `test_cures.py` shows that each attack is felt then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

from arcp_trio.cli import main
from arcp_trio.front.waiting import Visitor, WaitingRoom
from arcp_trio.rounds import Rounds
from arcp_trio.runtime import workload
from arcp_trio.runtime.connection import reader
from arcp_trio.runtime.job import jobs
from arcp_trio.runtime.ledger import Share
from arcp_trio.runtime.session import record
from arcp_trio.runtime.session.outbox import Outbox
from arcp_trio.store import naps
from arcp_trio.transport import frames, stream
from arcp_trio.transport.pace import Pace

ENDLESS: Final = 10**12


def answers_wait_for_nobody() -> None:
    """Have commands executed however many bytes of answers wait to be sent."""

    async def room_for_answers(self: Outbox) -> None:
        del self

    _replace(Outbox, room_for_answers)
    Share.full = property(lambda _: False)  # type: ignore[assignment, method-assign]


def first_come_first_served() -> None:
    """Have any number of one principal's listings at work, and the store read in their order."""
    workload.LISTINGS = ENDLESS  # type: ignore[misc]
    by_principal = Rounds.turn

    def turn(self: Rounds, principal: str, **how: Any) -> Any:
        del principal
        return by_principal(self, "", **how)

    _replace(Rounds, turn)


def much_is_at_work() -> None:
    """Have any number of one principal's commands at work, and acceptances in the store's queue."""
    workload.COMMANDS = ENDLESS  # type: ignore[misc]
    workload.UNSTORED = ENDLESS  # type: ignore[misc]


def much_is_at_work_without_naps() -> None:
    """Have much at work, and the loop go on without a nap for the store's threads."""
    much_is_at_work()
    naps.BUSY_SECONDS = ENDLESS  # type: ignore[misc]


def large_steps_take_no_turns() -> None:
    """Have large frames and inputs decoded as soon as they come, with no rest between them."""
    reader.LARGE_FRAME = ENDLESS  # type: ignore[misc]
    jobs.LARGE = ENDLESS  # type: ignore[misc]


def logs_have_any_size() -> None:
    """Keep all promises of a session for a resume."""
    bounded = record.LogSize.__init__

    def __init__(self: record.LogSize, most: int, *args: int) -> None:  # noqa: N807
        del most
        bounded(self, ENDLESS, *args)

    _replace(record.LogSize, __init__)


def fragments_have_no_pace() -> None:
    """Have fragments handled as they come, however many."""

    async def wait_for(self: Pace, parts: float) -> None:
        del self, parts

    _replace(Pace, wait_for)
    stream.FRAMES_A_TURN = ENDLESS  # type: ignore[misc]


def strangers_may_send_fragments() -> None:
    """Treat a stranger's fragments as those of a session, without a pace."""
    fragments_have_no_pace()
    frames.FIRST_FRAGMENTS = frames.MAX_FRAGMENTS = ENDLESS  # type: ignore[misc]
    bounded = stream.FrameStream.__init__

    def __init__(self: stream.FrameStream, below: Any, **how: Any) -> None:  # noqa: N807
        bounded(self, below, **how | {"first_bytes": None})

    _replace(stream.FrameStream, __init__)


def newcomers_make_room() -> None:
    """Have a full waiting room turn away its newest visitor, wherever that comes from."""

    def _to_evict(self: WaitingRoom) -> Visitor:
        everybody = [each for beside in self._waiting.values() for each in beside]
        return max(everybody, key=lambda each: each.place)

    _replace(WaitingRoom, _to_evict)


UNCURED: Final[dict[str, Callable[[], None]]] = {
    "big_inputs": large_steps_take_no_turns,
    "connects": newcomers_make_room,
    "echoes": much_is_at_work,
    "fragments": strangers_may_send_fragments,
    "fragments_in_sessions": fragments_have_no_pace,
    "listings": first_come_first_served,
    "one_key": much_is_at_work_without_naps,
    "silent_reader": answers_wait_for_nobody,
    "subscriptions": logs_have_any_size,
}
"""By attack: what takes its cures out."""


def _replace(owner: type, method: Callable[..., object]) -> None:
    setattr(owner, method.__name__, method)


if __name__ == "__main__":
    UNCURED[sys.argv.pop(1)]()
    sys.exit(main())
