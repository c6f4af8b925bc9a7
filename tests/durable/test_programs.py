"""Any program of steps, emits, tasks and children, under any kills: as without them."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from arcp_trio.testing import TrioClock
from tests.durability.stores import copy_into
from tests.durable.mortal import MortalStore
from tests.durable.programs import LEASE, Interpreter, check, numbered, shapes
from tests.durable.stage import DurableStore, Life, result


@settings(max_examples=60)
@given(
    shape=st.lists(shapes, min_size=4, max_size=10),
    deaths=st.lists(st.integers(3, 16), min_size=1, max_size=3),
)
def test_any_program_under_any_kills(shape: list[Any], deaths: list[int]) -> None:
    """Results and streams are those of the program; finished steps are not done again."""
    program = numbered(shape, itertools.count())
    done: Counter[int] = Counter()

    async def effect(_key: str, number: int) -> None:
        done[number] += 1
        await trio.lowlevel.checkpoint()

    async def main() -> None:
        agents, clock = Interpreter(effect).agents, TrioClock()
        life: Life | None = None
        store = MortalStore(None)
        for died, dies_at in enumerate([*deaths, None]):
            store = copy_into(MortalStore(dies_at), store.left or store)
            before = Counter(done)
            finished = remembered(store)
            with trio.CancelScope() as scope:
                store.die = scope.cancel
                async with Life.begin(agents, store, before=life, clock=clock) as life:
                    accepted = await life.peer.submit(
                        "program", ["k", program], lease_request=LEASE, idempotency_key="k"
                    )
                    end = await life.peer.until_terminal(accepted["job_id"])
                    told = life.told(accepted["job_id"])
            assert all(done[each] == before[each] for each in finished), "a finished step ran again"
            if store.left is None:
                check(program, told, result(end), done, died)
                return

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def remembered(store: DurableStore) -> set[int]:
    """Return the numbers of the steps and tool calls that are remembered as done."""
    found: set[int] = set()
    for journal in store._tables.journals.values():
        for memo in journal.memos.values():
            if memo.kind in ("step", "tool call") and b'"done":' in memo.value:
                value = memo.value.partition(b'"done":')[2][:-1].lstrip(b"[")
                found.add(int(value.partition(b",")[0].rstrip(b"]")))
    return found
