"""An exporter that keeps its spans."""

from __future__ import annotations

import pytest

from tests.telemetry.spans import Spans


@pytest.fixture
def spans() -> Spans:
    """A provider of its own: the global one of OpenTelemetry can be set but once."""
    return Spans()
