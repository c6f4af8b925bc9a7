"""Fixtures of the tracers' tests."""

from __future__ import annotations

import pytest

from tests.telemetry.spans import Spans


@pytest.fixture
def spans() -> Spans:
    """Return an exporter with a provider of its own, as OpenTelemetry's global one is set once."""
    return Spans()
