"""What tests look up and change inside a runtime, so that its internals are named here only.

A test speaks the wire or the public API wherever it can, and reads figures from the metrics
(`tests.metrics`). The functions below are for what cannot be seen from outside, mostly that nothing
stays in memory, and for bounds and faults that no option sets. `tests.defects` has variants of the
runtime that a check must find. A unit test of one module imports that module.
"""

from __future__ import annotations

import gc
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Final

import attrs
import pytest

from arcp_trio import JobContext, Runtime
from arcp_trio.runtime import watchdog
from arcp_trio.runtime.cluster.moving import SharedParking
from arcp_trio.runtime.connection import sender
from arcp_trio.runtime.job import acceptance, events
from arcp_trio.runtime.job.job import Job
from arcp_trio.runtime.job.jobs import Jobs
from arcp_trio.runtime.job.link import DirectLink
from arcp_trio.runtime.session import batch, judge, publisher, record, scribe, sessions, sweeping
from arcp_trio.runtime.session.batch import Batch
from arcp_trio.runtime.session.outbox import Outbox
from arcp_trio.runtime.session.session import Session
from arcp_trio.runtime.session.watch import Watch
from arcp_trio.store.records import Entry
from arcp_trio.store.shared import Moves
from arcp_trio.transport.outgoing import Outgoing
from arcp_trio.wire.fingerprint import fingerprint


@attrs.frozen
class Inbox:
    """The requests of a session that are not answered yet."""

    waiting: int
    """How many commands the clerk has not begun."""
    held_bytes: int
    """How many bytes count towards `inbox_bytes`."""


# -- jobs


def live_jobs(runtime: Runtime) -> set[str]:
    """Return the ids of the jobs in memory, whose ends are not stored yet."""
    return set(runtime._lifetime.jobs.live)


def jobs_in_memory() -> int:
    """Return how many jobs there are in this process, ended or not."""
    gc.collect()
    return sum(isinstance(each, Job) for each in gc.get_objects())


def job_of(context: JobContext) -> Job:
    """Return what the runtime has of the job of an agent."""
    assert isinstance(context._link, DirectLink)
    return context._link.desk.job


def watching_sessions(runtime: Runtime, job_id: str) -> set[str]:
    """Return the ids of the sessions that get hints about a live job's events."""
    return set(runtime._lifetime.jobs.live[job_id].journal._watches)


def claimed_keys(runtime: Runtime) -> int:
    """Return how many idempotency keys are held by submits that are being decided."""
    return len(runtime._lifetime.sessions._submissions._judge.claims)


def hold_jobs(runtime: Runtime, patch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Keep jobs from starting; return a function that starts those held so far."""
    jobs = runtime._lifetime.jobs
    start, held = jobs.start, list[Callable[[], None]]()
    patch.setattr(jobs, "start", lambda *job: held.append(partial(start, *job)))

    def start_held() -> None:
        while held:
            held.pop(0)()

    return start_held


# -- sessions


def awake_sessions(runtime: Runtime) -> set[str]:
    """Return the ids of the sessions that have tasks."""
    return set(runtime._lifetime.sessions._awake)


def shared_parking(
    runtime: Runtime, moves: Moves, me: int, ask: Callable[[str, int], Awaitable[bool]]
) -> SharedParking:
    """Return what would take sessions from other nodes, if the runtime were a node."""
    return SharedParking(runtime._core, runtime._lifetime.jobs, moves, me, ask)


def unsent_bytes(runtime: Runtime, session_id: str | None) -> int:
    """Return how many bytes of numbered frames wait to be sent on a session's connection."""
    unsent = _awake_session(runtime, session_id).outbox.unsent
    assert unsent is not None, "no connection is attached"
    return unsent._bytes


def outbox_items(runtime: Runtime, session_id: str | None) -> int:
    """Return how many items wait for an awake session's scribe."""
    return _awake_session(runtime, session_id).outbox.send.statistics().current_buffer_used


def hints(runtime: Runtime, session_id: str | None) -> int:
    """Return how many hints wait for an awake session's scribe."""
    return _awake_session(runtime, session_id).outbox.hints


def hold_answers(runtime: Runtime, session_id: str | None) -> None:
    """Have the submits of an awake session wait for their turns to be answered."""
    _awake_session(runtime, session_id).line.take_place()


def inbox(runtime: Runtime, session_id: str | None) -> Inbox:
    """Return the inbox of an awake session."""
    found = _awake_session(runtime, session_id).inbox
    return Inbox(len(found), found._bytes)


def _awake_session(runtime: Runtime, session_id: str | None) -> Session:
    assert session_id is not None, "a session is open"
    return runtime._lifetime.sessions._awake[session_id]


# -- connections


def connected_principals(runtime: Runtime) -> dict[str, int]:
    """Return how many connections count towards `sessions_per_principal`, by principal."""
    return dict(runtime._lifetime.sessions._connected)


def counted_addresses(runtime: Runtime) -> int:
    """Return how many addresses have wrong tokens counted against them."""
    return len(runtime._core.wrong_tokens._counted)


# -- the runtime as a whole


WATCHDOG_LOG: Final = watchdog.log.name
"""The logger of lines that come when the machine is busy: the loop is held, and free again."""


def no_watchdog(patch: pytest.MonkeyPatch) -> None:
    """Have nobody look at the loop in real time.

    Each look wakes the loop, after which tasks run in another order for the same seed.
    """
    patch.setattr(watchdog, "PERIOD_SECONDS", threading.TIMEOUT_MAX)


def held(runtime: Runtime) -> dict[str, int]:
    """Return how many entries each table of the runtime has in memory, by owner and name.

    Tables that are empty are left out.
    """
    lifetime = runtime._lifetime
    submissions = lifetime.sessions._submissions
    owners = [runtime, lifetime, lifetime.jobs, lifetime.sessions, submissions, submissions._judge]
    return {
        f"{type(owner).__name__}.{name}": len(table)
        for owner in owners
        for name, table in vars(owner).items()
        if isinstance(table, dict | list | set) and table
    }


def shown_by_repr(runtime: Runtime) -> str:
    """Return the repr of everything the runtime's parts share."""
    return repr(runtime._core)


def set_version(runtime: Runtime, version: str) -> None:
    """Set the version that the runtime reports."""
    runtime._core.version = version


# -- bounds that cannot be configured


SWEEP_SECONDS: Final = sweeping.SWEEP_SECONDS
"""How late, at most, something past its retention is removed."""

MOST_SPARE_DIGESTS: Final = record.MOST_SPARE_DIGESTS
"""How many resume tokens besides the newest one are accepted."""


def small_steps(patch: pytest.MonkeyPatch) -> None:
    """Make batches so small that a few dozen events cross their bounds."""
    patch.setattr(scribe, "BATCH_FRAMES", 8)
    patch.setattr(events, "EMITS_PER_CHECKPOINT", 3)
    patch.setattr(sender, "WRITE_FRAMES", 4)


def no_writes_at_once(patch: pytest.MonkeyPatch) -> None:
    """Have all frames wait for a task that writes them, as with TLS."""
    patch.setattr(Outgoing, "takes_texts_at_once", False)


def set_back_pressure_lag(patch: pytest.MonkeyPatch, events: int) -> None:
    """Send back-pressure notices to clients that are this many events behind."""
    patch.setattr(publisher, "BACK_PRESSURE_LAG", events)


def set_batch_frames(patch: pytest.MonkeyPatch, frames: int) -> None:
    """Have a session number at most this many frames at once."""
    patch.setattr(scribe, "BATCH_FRAMES", frames)


def set_batch_bytes(patch: pytest.MonkeyPatch, size: int) -> None:
    """Have a session number events of about this many bytes at once."""
    patch.setattr(batch, "BATCH_BYTES", size)
    patch.setattr(scribe, "BATCH_BYTES", size)


def batch_bytes() -> int:
    """Return about how many bytes of events a session numbers at once."""
    return batch.BATCH_BYTES


# -- steps to replace, and what to do in between


Place = tuple[object, str]
"""An attribute of the runtime, for `pytest.MonkeyPatch.setattr`."""

ACCEPTANCE: Place = (acceptance, "_payload")
"""The step that makes the payload of an acceptance."""

ACCEPTANCE_FRAME: Place = (acceptance, "frame")
"""The step that encodes the frame of an acceptance."""

SESSION_CLOSE: Place = (Jobs, Jobs.remove_submitter.__name__)
"""The step that takes a closed session's rights over its jobs."""

NUMBERING: Place = (Batch, Batch.number_all.__name__)
"""The step that numbers what a session's jobs have emitted."""

TROUBLE_NOTICE: Place = (sessions.Sessions, sessions.Sessions.tell_of_trouble.__name__)
"""The step that ends connections whose sessions wait for a store in trouble."""

SENDING_AT_ONCE: Place = (Outgoing, Outgoing.send_texts_at_once.__name__)
"""The step that writes frames without waiting, in the task that hands them over."""

SENDING: Place = (Outgoing, Outgoing.send_texts.__name__)
"""How frames are written in the sender's task."""

AUTHORIZATION: Place = (Job, Job.authorize.__name__)
"""The step that checks an operation against a job's lease."""


def spend_after_each_authorization(patch: pytest.MonkeyPatch) -> None:
    """Spend a dollar of a job's budget right after each authorization."""
    authorize: Callable[..., None] = Job.authorize

    def spending(job: Job, capability: str, target: str, **more: object) -> None:
        authorize(job, capability, target, **more)
        events.add_event(job, "metric", {"name": "cost.own", "value": 1, "unit": "USD"})

    patch.setattr(Job, "authorize", spending)


def count_hints(patch: pytest.MonkeyPatch) -> Counter[str]:
    """Return a counter of the hints that sessions get from now on, by session id."""
    counted: Counter[str] = Counter()
    hint = Outbox.hint

    def counting(outbox: Outbox, watch: Watch, entry: Entry) -> None:
        counted[watch.session.id] += 1
        hint(outbox, watch, entry)

    patch.setattr(Outbox, "hint", counting)
    return counted


def store_older_fingerprints(patch: pytest.MonkeyPatch, expires_at: str) -> None:
    """Have keys stored as version 0.1.0 does it, where the expiry of a lease is a parameter."""
    patch.setattr(judge, "fingerprint", partial(fingerprint, expires_at=expires_at))


def decoding_turn(runtime: Runtime, principal: str) -> AbstractAsyncContextManager[None]:
    """Have a principal's turn for decoding for the block, so that others wait."""
    return runtime._core.long_steps.turn(principal)
