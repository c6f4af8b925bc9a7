"""What a job is given of the lease that it asks for, and the files that no lease opens."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import attrs

from arcp_trio.reserved import Reserved
from arcp_trio.runtime.job.events import add_event
from arcp_trio.wire.errors import ArcpError, InternalError

if TYPE_CHECKING:
    from arcp_trio.authority.lease import Lease
    from arcp_trio.runtime.access import Policy
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.agent import Agent
    from arcp_trio.runtime.job.job import Job
    from arcp_trio.store.interface import Store

log = logging.getLogger(__name__)

_SYSTEM: Final = ("/proc", "/sys", "/dev")
"""Folders through which a process reads and changes others, and the machine."""


def granted(core: Core, principal: str, agent: Agent, asked: Lease) -> Lease:
    """Return the lease of a submitted job: within its principal's ceiling, as the policy decides.

    Raises:
        ArcpError: there is to be no such job.
    """
    policy = core.policy
    ceiling = policy.ceiling(principal)
    if ceiling is not None:
        asked = ceiling.cap(asked, now=core.clock.now(), any_model=policy.any_model)
    return decided_lease(core, principal, agent, asked)


def decided_lease(core: Core, principal: str, agent: Agent, requested: Lease) -> Lease:
    """Return what the policy makes of a lease.

    Raises:
        ArcpError: the policy's refusal; of any other error the log has the traceback.
    """
    try:
        decided = core.policy.lease_for(principal, agent.ref, requested)
    except ArcpError:
        raise
    except Exception as error:  # a fence: the policy is the program's
        log.exception("policy failed", extra={"principal": principal, "agent": agent.ref})
        raise InternalError("the runtime has a fault") from error
    # A policy may require a sandbox; it cannot do without one that the client requires.
    return attrs.evolve(decided, sandbox=True) if requested.sandbox else decided


def warn_of_idle_grants(job: Job) -> None:
    """Tell the job's clients of grants that allow nothing: most likely they are mistakes."""
    idle = job.authority.lease.idle()
    if idle is not None:
        with suppress(ArcpError):  # frames may have to be smaller than the warning
            add_event(job, "log", {"level": "warn", "message": idle})


def reserved(policy: Policy, store: Store) -> Reserved:
    """Return what no lease opens."""
    return Reserved([*_SYSTEM, *policy.reserved_paths, *store.files()])
