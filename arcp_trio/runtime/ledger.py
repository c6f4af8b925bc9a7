"""What each principal holds of what all share, and how much of it may be held.

Memory is counted in bytes, work in pieces. Code that holds something takes it from its principal's
share of a pool, and gives it back when it is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from arcp_trio.runtime.limits import limit_hit

if TYPE_CHECKING:
    from arcp_trio.runtime.limits import Limits
    from arcp_trio.runtime.wake import Wake


class Pool:
    """One kind of what is held, with a bound for each principal and one for all together.

    When the bound for all is reached, only those principals are held up that have an equal part of
    it or more: a principal that holds little goes on.
    """

    def __init__(self, limits: Limits, name: str, each: str, total: str) -> None:
        """Make a pool that is bounded by the limits named `each` and `total`.

        Args:
            name: the label of the pool in the metrics.
        """
        self.name = name
        self.held = 0
        """By all principals."""
        self.most_each: int = getattr(limits, each)
        self.most: int = getattr(limits, total)
        self.holders: dict[str, Share] = {}
        """The shares of which something is held."""
        self.waiting: dict[str, Share] = {}
        """The shares in which something waits for room."""
        self._names = (each, total)
        self._shares: WeakValueDictionary[str, Share] = WeakValueDictionary()

    def share(self, principal: str) -> Share:
        """Return a principal's share; keep it for as long as something is held of it."""
        share = self._shares.get(principal)
        if share is None:
            share = self._shares[principal] = Share(self, principal)
        return share

    def refuse_if_full(self, principal: str, amount: int = 1) -> None:
        """Refuse to hold `amount` more for a principal, unless it holds nothing.

        Raises:
            InternalError: a limit is reached.
        """
        share = self.holders.get(principal)
        if share is None:
            return
        each, total = self._names
        if share.held + amount > self.most_each:
            raise limit_hit(each, self.most_each)
        if share.full:
            raise limit_hit(total, self.most)

    def set_all(self, held: Mapping[str, int]) -> None:
        """Replace what is held by what was counted elsewhere."""
        for principal in self.holders.keys() | held.keys():
            share = self.share(principal)
            change = held.get(principal, 0) - share.held
            if change > 0:
                share.take(change)
            else:
                share.give(-change)

    def wake_all(self) -> None:
        """Wake all that wait for room."""
        for share in self.waiting.values():
            share.wake()

    def largest(self, count: int) -> list[Share]:
        """Return the shares of which most is held."""
        return sorted(self.holders.values(), key=lambda share: -share.held)[:count]


class Share:
    """What one principal holds of one pool."""

    __slots__ = ("__weakref__", "_pool", "_waiting", "held", "principal")

    def __init__(self, pool: Pool, principal: str) -> None:
        self.principal = principal
        self.held = 0
        self._pool = pool
        self._waiting: set[Wake] = set()

    @property
    def full(self) -> bool:
        """Whether the principal may hold no more for now."""
        pool, held = self._pool, self.held
        return held >= pool.most_each or (
            pool.held >= pool.most and held * len(pool.holders) >= pool.most
        )

    def take(self, amount: int) -> None:
        """Hold `amount` more. A share may pass its bound by one piece: look at `full` before."""
        if not amount:
            return
        pool = self._pool
        pool.held += amount
        if not self.held:
            pool.holders[self.principal] = self
        self.held += amount

    def give(self, amount: int) -> None:
        """Hold `amount` less, and wake those that wait if there is room for them now."""
        if not amount:
            return
        pool = self._pool
        was_full, was_tight = self.full, pool.held >= pool.most
        pool.held -= amount
        self.held -= amount
        if not self.held:
            del pool.holders[self.principal]
        if was_tight and (pool.held < pool.most or not self.held):
            pool.wake_all()  # there is room again, or each one's equal part has grown
        elif was_full and not self.full:
            self.wake()

    async def wait(self, wake: Wake) -> None:
        """Wait until `wake` is set, by its owner or because there may be room."""
        self._pool.waiting[self.principal] = self
        self._waiting.add(wake)
        try:
            await wake.wait()
        finally:
            self._waiting.discard(wake)
            if not self._waiting:
                self._pool.waiting.pop(self.principal, None)

    def wake(self) -> None:
        """Wake all that wait for room in this share."""
        for wake in self._waiting:
            wake.set()


class Ledger:
    """The pools of one runtime."""

    def __init__(self, limits: Limits) -> None:
        self.received = Pool(
            limits, "received_bytes", "received_bytes_per_principal", "received_bytes_total"
        )
        """Bytes of frames that are not executed yet, including submits being decided."""
        self.unsent = Pool(limits, "tail_bytes", "tail_bytes_per_principal", "tail_bytes_total")
        """Bytes of frames that wait to be numbered or sent."""
        self.inputs = Pool(limits, "input_bytes", "input_bytes_per_principal", "input_bytes_total")
        """Bytes of the inputs of jobs that have not ended."""
        self.submits = Pool(
            limits, "waiting_submits", "waiting_submits_per_principal", "waiting_submits"
        )
        """Submits that wait for another one with the same key."""
        self.stored = Pool(
            limits, "stored_bytes", "stored_bytes_per_principal", "stored_bytes_total"
        )
        """Bytes of jobs, sessions and keys in the store, as they were a moment ago."""

    def __iter__(self) -> Iterator[Pool]:
        return iter((self.received, self.unsent, self.inputs, self.submits, self.stored))
