"""How much of one principal's work is under way at once, whatever number of sessions it has.

Trio gives every task that can run one step in each pass of its scheduler. So a principal with more
tasks at work than others would get more of the loop, and its steps would make each pass longer. A
principal's workload is bounded instead: few of its commands are at work, and the others wait and
cost no step.
"""

from __future__ import annotations

from collections import deque
from typing import Final
from weakref import WeakValueDictionary

import trio

from arcp_trio.store.queue import Group

COMMANDS: Final = 2
"""Commands of one principal that are at work at once, and so in one pass of the scheduler."""

LISTINGS: Final = 1
"""Listings beside them: if one were read while another is encoded, the store would always be
reading for this principal, and each read of others would wait."""

UNSTORED: Final = 8
"""Acceptances of one principal in the store's queue, at most: a group that is small is stored soon,
and with it what others have put into it."""


class WorkPlaces:
    """Places for work of one kind: `async with places:` waits for one, and has it for the block.

    They are given in the order in which they were asked for. If one is free, there is no
    checkpoint.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting = trio.lowlevel.ParkingLot()

    async def __aenter__(self) -> None:
        if self._free:
            self._free -= 1
        else:
            await self._waiting.park()  # the place that is given back is handed over

    async def __aexit__(self, *_: object) -> None:
        if not self._waiting.unpark():
            self._free += 1


class Workload:
    """The work of one principal."""

    def __init__(self) -> None:
        self.commands = WorkPlaces(COMMANDS)
        """For all commands but listings, which may take long: no other command waits for one."""
        self.listings = WorkPlaces(LISTINGS)
        self._newest: deque[Group] = deque(maxlen=UNSTORED)
        """The groups of the newest acceptances, which are stored in this order."""

    def count(self, acceptance: Group) -> None:
        """Count an acceptance until it is stored."""
        self._newest.append(acceptance)

    async def room_for_acceptance(self) -> None:
        """Wait until fewer than `UNSTORED` acceptances are in the store's queue."""
        while len(self._newest) == UNSTORED and not self._newest[0].stored.is_set():
            await self._newest[0].committed()


class Workloads:
    """The workloads of all principals."""

    def __init__(self) -> None:
        self._workloads: WeakValueDictionary[str, Workload] = WeakValueDictionary()

    def of(self, principal: str) -> Workload:
        """Return a principal's workload; its sessions keep it."""
        workload = self._workloads.get(principal)
        if workload is None:
            workload = self._workloads[principal] = Workload()
        return workload
