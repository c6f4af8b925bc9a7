"""How many worker processes there are, and how they are held."""

from __future__ import annotations

import os
from collections.abc import Mapping

import attrs


@attrs.frozen(kw_only=True)
class Workers:
    """The worker processes of a runtime, for agents with `process=True`."""

    count: int = attrs.field(factory=lambda: os.cpu_count() or 1)
    """How many jobs run at the same time, beside those that wait for their children in workers.

    Further ones wait for a worker. The children of a job that waits for them may need one more
    process at each level of delegation.
    """
    jobs_per_worker: int = 100
    """A worker is replaced by a new one after that many jobs."""
    environment: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """The whole environment of a worker."""
    user: int | None = None
    """The user id, and group id, that they change to; the runtime must be root."""
    memory_bytes: int | None = None
    """The address space of a worker, at most."""
    descriptors: int = 1_024
    """How many files and sockets a worker may have open."""

    def __attrs_post_init__(self) -> None:
        for name in ("count", "jobs_per_worker", "descriptors"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        if self.user is not None and os.geteuid() != 0:
            raise ValueError("only a runtime of root can give its workers another user")
