"""The feature flags of §6.2 and their negotiation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final


class Feature:
    """The names of the features, as they stand on the wire."""

    HEARTBEAT: Final = "heartbeat"
    ACK: Final = "ack"
    LIST_JOBS: Final = "list_jobs"
    SUBSCRIBE: Final = "subscribe"
    LEASE_EXPIRES_AT: Final = "lease_expires_at"
    COST_BUDGET: Final = "cost.budget"
    MODEL_USE: Final = "model.use"
    PROVISIONED_CREDENTIALS: Final = "provisioned_credentials"
    PROGRESS: Final = "progress"
    RESULT_CHUNK: Final = "result_chunk"
    AGENT_VERSIONS: Final = "agent_versions"
    STOP: Final = "x-vendor.arcp-trio.stop"
    """A feature of this project; its message has the same name."""
    QUESTIONS: Final = "x-vendor.arcp-trio.questions"
    """Another one: questions of jobs to people, and their answers."""
    TOKENS: Final = "x-vendor.arcp-trio.tokens"
    """Another one: short-lived tokens with which one can look at jobs."""


ALL_FEATURES: Final[tuple[str, ...]] = (
    Feature.HEARTBEAT,
    Feature.ACK,
    Feature.LIST_JOBS,
    Feature.SUBSCRIBE,
    Feature.LEASE_EXPIRES_AT,
    Feature.COST_BUDGET,
    Feature.MODEL_USE,
    Feature.PROVISIONED_CREDENTIALS,
    Feature.PROGRESS,
    Feature.RESULT_CHUNK,
    Feature.AGENT_VERSIONS,
)
"""All features of ARCP 1.1, in the order of §6.2."""

CLIENT_FEATURES: Final[tuple[str, ...]] = (
    *ALL_FEATURES,
    Feature.STOP,
    Feature.QUESTIONS,
    Feature.TOKENS,
)
"""The features that a client of this project offers."""

SUPPORTED: Final[tuple[str, ...]] = tuple(
    feature for feature in ALL_FEATURES if feature != Feature.PROVISIONED_CREDENTIALS
)
"""The features that every runtime offers; it offers credentials only with a provisioner (§9.8)."""


def negotiate(offered: Iterable[str], supported: Iterable[str]) -> frozenset[str]:
    """Return the features of a session: those that both sides have (§6.2)."""
    return frozenset(offered) & frozenset(supported)


def knows_ours(features: Iterable[str]) -> bool:
    """Whether a session has a feature of this project: then its client knows what is ours."""
    return not frozenset(features).issubset(ALL_FEATURES)
