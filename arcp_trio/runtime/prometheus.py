"""The metrics as Prometheus reads them (text format 0.0.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from arcp_trio.runtime.usage import KINDS
from arcp_trio.store.records import Status

if TYPE_CHECKING:
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.job.written import OtherJournals
    from arcp_trio.runtime.ledger import Ledger
    from arcp_trio.runtime.metrics import Histogram, Metrics
    from arcp_trio.runtime.session.sessions import Sessions
    from arcp_trio.runtime.usage import Usages

LARGEST: Final = 5
"""How many principals are named for each pool, and for each kind of use."""

Labels = Mapping[str, str]
Sample = tuple[Labels, float]


def exposition(core: Core, sessions: Sessions, connections: int) -> str:
    """Return every metric as of now: gauges are computed, counters were counted."""
    return "".join(f"{line}\n" for line in _lines(core, sessions, connections))


def _lines(core: Core, sessions: Sessions, connections: int) -> Iterator[str]:
    metrics, jobs = core.metrics, sessions.jobs
    yield from _gauge("arcp_connections", "Open ARCP connections.", connections)
    yield from _family(
        "arcp_sessions",
        "gauge",
        "Sessions with a connection, and those that can be resumed.",
        _by("state", {"connected": sessions.attached, "parked": sessions.left_alone}),
    )
    yield from _family(
        "arcp_jobs", "gauge", "Jobs that have not ended.", _by("state", _states(jobs))
    )
    yield from _family(
        "arcp_agent_threads",
        "gauge",
        "Threads of agents: of running jobs, and those that go on after their jobs' ends.",
        _by("state", _threads(jobs)),
    )
    yield from _family(
        "arcp_jobs_finished_total",
        "counter",
        "Jobs that have ended, by their final status.",
        _by("outcome", metrics.finished),
    )
    yield from _family(
        "arcp_jobs_at_stop",
        "gauge",
        "What a stop does to the jobs; those that wait for people are among those that end.",
        _by("what", jobs.unfinished()),
    )
    yield from _family(
        "arcp_durable_jobs",
        "gauge",
        "Durable jobs that have not ended.",
        _by("state", _durable_states(jobs)),
    )
    yield from _counter(
        "arcp_jobs_begun_again_total",
        "Durable jobs that went on after a restart of the runtime.",
        metrics.begun_again,
    )
    yield from _counter("arcp_events_total", "Events that jobs have emitted.", metrics.events)
    yield from _counter("arcp_event_bytes_total", "Bytes of these events.", metrics.event_bytes)
    yield from _gauge(
        "arcp_session_lag_events_max",
        "Events that the connected session furthest behind has not been sent, or acknowledged.",
        sessions.most_lag,
    )
    yield from _counter(
        "arcp_evicted_events_total",
        "Events given up to keep to journal_bytes, numbers to unacked_frames and log_bytes.",
        metrics.evicted_events,
    )
    yield from _counter(
        "arcp_loop_stalls_total",
        "How often the event loop was held for more than 200 ms.",
        metrics.loop_stalls,
    )
    yield from _gauge(
        "arcp_tail_bytes",
        "Bytes numbered for sessions and not sent yet.",
        core.ledger.unsent.held,
    )
    yield from _family(
        "arcp_held",
        "gauge",
        "What all principals together hold of each pool, which its limits bound.",
        _by("pool", {pool.name: pool.held for pool in core.ledger}),
    )
    yield from _family(
        "arcp_held_most",
        "gauge",
        "What the principals that hold most of a pool hold of it.",
        _largest(core.ledger),
    )
    yield from _family(
        "arcp_used_most_total",
        "counter",
        "What the principals that have used most have used, by kind.",
        _most_used(core.usages),
    )
    yield from _histogram(
        "arcp_store_commit_seconds",
        "Seconds to store a group of writes, including failed attempts.",
        metrics.commits,
    )
    yield from _family(
        "arcp_refusals_total",
        "counter",
        "Requests of clients and agents that were refused, by limit or error code.",
        _by("reason", metrics.refusals),
    )
    yield from _family(
        "arcp_connection_failures_total",
        "counter",
        "Connections that failed, by cause.",
        _by("reason", metrics.connection_failures),
    )
    yield from _gauge(
        "arcp_credentials_outstanding",
        "Credentials that are not revoked, including those of running jobs.",
        jobs.revoker.outstanding,
    )
    if core.store.shared is not None:
        yield from _nodes(core.metrics)
    if jobs.other_journals is not None:
        yield from _followed(core, jobs.other_journals)
    yield from _family(
        "arcp_build_info", "gauge", "The version of the runtime.", [({"version": core.version}, 1)]
    )


def _nodes(metrics: Metrics) -> Iterator[str]:
    yield from _family(
        "arcp_nodes",
        "gauge",
        "Nodes that share the store, as this one has seen them last.",
        _by("state", {state: metrics.nodes.get(state, 0) for state in ("up", "draining")}),
    )
    yield from _counter(
        "arcp_adoptions_total",
        "How often this node has taken over from a dead one.",
        metrics.adoptions,
    )
    yield from _family(
        "arcp_sessions_moved_total",
        "counter",
        "Sessions that have come to this node, by how.",
        _by("how", metrics.sessions_moved),
    )
    yield from _counter(
        "arcp_refused_writes_total",
        "Writes about sessions and jobs that are another node's.",
        metrics.refused_writes,
    )
    yield from _histograms(
        "arcp_engine_seconds",
        "Seconds until the database has answered, failed tries left out.",
        "what",
        metrics.engine,
    )
    yield from _histogram(
        "arcp_command_seconds",
        "Seconds until another node has answered what it was asked to do.",
        metrics.commands,
    )
    yield from _gauge(
        "arcp_clock_offset_seconds",
        "Seconds that the clock of the database is ahead of this machine's.",
        metrics.clock_offset,
    )


def _followed(core: Core, journals: OtherJournals) -> Iterator[str]:
    yield from _gauge(
        "arcp_followed_jobs", "Jobs of other nodes that sessions here watch.", len(journals)
    )
    yield from _gauge(
        "arcp_follow_behind_entries",
        "Entries of one of these jobs that the session furthest behind is owed.",
        journals.most_owed,
    )
    yield from _family(
        "arcp_wakes_total",
        "counter",
        "How often new entries of other nodes' jobs were found, by what led to the look.",
        _by("by", core.metrics.wakes),
    )


def _largest(ledger: Ledger) -> Iterable[Sample]:
    return [
        ({"pool": pool.name, "principal": share.principal}, share.held)
        for pool in ledger
        for share in pool.largest(LARGEST)
    ]


def _most_used(usages: Usages) -> Iterable[Sample]:
    return [
        ({"kind": kind, "principal": usage.principal}, getattr(usage, kind))
        for kind in KINDS
        for usage in usages.largest(kind, LARGEST)
    ]


def _states(jobs: Jobs) -> Mapping[str, int]:
    counted = Counter(job.status for job in jobs.live.values() if job.accepted)
    return {status: counted[status] for status in (Status.PENDING, Status.RUNNING)}


def _durable_states(jobs: Jobs) -> Mapping[str, int]:
    durable = [job for job in jobs.live.values() if job.accepted and job.memory.durable]
    suspended = sum(job.suspended for job in durable)
    waiting = sum(job.memory.waits and not job.suspended for job in durable)
    running = len(durable) - suspended - waiting
    return {"running": running, "waiting": waiting, "suspended": suspended}


def _threads(jobs: Jobs) -> Mapping[str, int]:
    abandoned = jobs.threads.abandoned
    return {"running": jobs.threads.total - abandoned, "abandoned": abandoned}


# -- the format


def _gauge(name: str, text: str, value: float) -> Iterator[str]:
    return _family(name, "gauge", text, [({}, value)])


def _counter(name: str, text: str, value: float) -> Iterator[str]:
    return _family(name, "counter", text, [({}, value)])


def _by(label: str, values: Mapping[str, float]) -> Iterable[Sample]:
    return [({label: key}, value) for key, value in values.items()]


def _family(name: str, kind: str, text: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield from _head(name, kind, text)
    for labels, value in samples:
        yield _sample(name, labels, value)


def _histogram(name: str, text: str, histogram: Histogram) -> Iterator[str]:
    yield from _head(name, "histogram", text)
    yield from _buckets(name, {}, histogram)


def _histograms(
    name: str, text: str, label: str, histograms: Mapping[str, Histogram]
) -> Iterator[str]:
    yield from _head(name, "histogram", text)
    for key, histogram in histograms.items():
        yield from _buckets(name, {label: key}, histogram)


def _buckets(name: str, labels: Labels, histogram: Histogram) -> Iterator[str]:
    *up_to, total = accumulate(histogram.counts)
    for bound, count in zip(histogram.bounds, up_to, strict=True):
        yield _sample(f"{name}_bucket", {**labels, "le": f"{bound:g}"}, count)
    yield _sample(f"{name}_bucket", {**labels, "le": "+Inf"}, total)
    yield _sample(f"{name}_sum", labels, histogram.total)
    yield _sample(f"{name}_count", labels, total)


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


def _sample(name: str, labels: Labels, value: float) -> str:
    pairs = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{pairs}}} {value!r}" if pairs else f"{name} {value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
