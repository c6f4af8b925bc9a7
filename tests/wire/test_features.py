"""Feature names and their negotiation."""

from __future__ import annotations

import pytest

from arcp_trio.wire.features import ALL_FEATURES, SUPPORTED, negotiate


@pytest.mark.spec("6.2-3")
def test_in_effect_is_what_both_list() -> None:
    """Negotiation drops unknown, repeated and one-sided features."""
    assert negotiate(["ack", "ack", "telepathy", "progress"], ["progress", "heartbeat", "ack"]) == {
        "ack",
        "progress",
    }
    assert negotiate([], ALL_FEATURES) == frozenset()


def test_the_features_are_those_of_the_specification() -> None:
    """There are eleven features, in the order of §6.2."""
    assert ALL_FEATURES == (
        "heartbeat",
        "ack",
        "list_jobs",
        "subscribe",
        "lease_expires_at",
        "cost.budget",
        "model.use",
        "provisioned_credentials",
        "progress",
        "result_chunk",
        "agent_versions",
    )
    assert set(SUPPORTED) <= set(ALL_FEATURES)
