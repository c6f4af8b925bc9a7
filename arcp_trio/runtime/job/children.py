"""The children of a job, which does not end before them (§10)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from arcp_trio.runtime.job import outcome
from arcp_trio.runtime.wake import Wake

if TYPE_CHECKING:
    from arcp_trio.runtime.job.job import Job


MOST_ENDED: Final = 64
"""How many children that have ended are kept in memory."""


class Children:
    """The jobs that one job has delegated to and that have not ended."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._remembered: dict[str, Job] = {}
        """Children whose results the agent may still read."""
        self._one_left = Wake()
        self._abandoned = False

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(list(self._jobs.values()))

    def add(self, child: Job) -> None:
        """Count a child that is drafted: from here on its parent does not end before it."""
        self._jobs[child.id] = child

    def remove(self, child: Job) -> None:
        """Stop counting a child, which has ended or was given up."""
        del self._jobs[child.id]
        self._one_left.set()

    def remember(self, child: Job) -> None:
        """Keep a child in memory for its result, even after its end.

        Of children that have ended the newest are kept; results of others are read from the store.
        """
        self._remembered[child.id] = child
        if len(self._remembered) - len(self._jobs) > MOST_ENDED:
            ended = (each for each in self._remembered if each not in self._jobs)
            del self._remembered[next(ended)]

    def remembered(self, child_id: str) -> Job | None:
        """Return a child that this run of the agent has delegated to."""
        return self._remembered.get(child_id)

    def end_all(self, grace: float) -> None:
        """End the children, whose agents have at most `grace` seconds to stop in."""
        for child in self:
            child.agent_run.shorten_grace(grace)
            if child.lease_is_over:
                child.expire()
            else:
                child.end(outcome.cancelled("the parent job ended"))

    async def none_left(self) -> None:
        """Wait until there are no children, or nobody waits for them any longer."""
        while self._jobs and not self._abandoned:
            await self._one_left.wait()

    def abandon(self) -> None:
        """Wait no longer for children: the runtime is over."""
        self._abandoned = True
        self._one_left.set()
