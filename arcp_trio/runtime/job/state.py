"""The states of a job in memory, and which may follow which."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class JobState(Enum):
    """What a job is about to do; how it ends is decided apart from that."""

    DRAFTED = "drafted"
    """Counted among those alive, and not accepted yet: credentials may be waited for."""
    ACCEPTED = "accepted"
    """Its acceptance is stored, or in the store's queue."""
    RUNNING = "running"
    """Its agent was called, perhaps by an earlier runtime."""
    INTERRUPTED = "interrupted"
    """The process of its agent has died, and what that waited for is being given up."""
    ENDING = "ending"
    """Its end is decided: its agent has stopped, or has a bounded time for that."""
    ENDED = "ended"
    """Its terminal is in the journal: nothing with its id follows."""
    SUSPENDED = "suspended"
    """Its agent is cancelled, and the next runtime calls it again: until then only results of steps
    are taken."""
    LOST = "lost"
    """Without an end here: it was given up before its acceptance, the store has refused it, or
    nothing can be stored any longer."""

    def then(self, state: JobState) -> JobState:
        """Return the state that follows this one.

        Raises:
            RuntimeError: it cannot follow.
        """
        if state not in _NEXT[self]:
            raise RuntimeError(f"a job that is {self.value} cannot be {state.value} next")
        return state


GONE: Final = (JobState.SUSPENDED, JobState.LOST)
"""The states of a job that goes on, or ends, in another runtime."""

TO_END: Final = (JobState.ACCEPTED, JobState.RUNNING)
"""The states of a job that has yet to end here."""

_NEXT: Final[Mapping[JobState, tuple[JobState, ...]]] = {
    JobState.DRAFTED: (JobState.ACCEPTED, JobState.LOST),
    JobState.ACCEPTED: (JobState.RUNNING, JobState.ENDING, *GONE),
    JobState.RUNNING: (JobState.INTERRUPTED, JobState.ENDING, *GONE),
    JobState.INTERRUPTED: (JobState.RUNNING, *GONE),
    JobState.ENDING: (JobState.ENDED, JobState.LOST),
    JobState.ENDED: (),
    JobState.SUSPENDED: (JobState.LOST,),
    JobState.LOST: (),
}
