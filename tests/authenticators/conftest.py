"""Fixtures of the authenticators' tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.authenticators.issuer import jwk, key_set


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Write a file with a key for ES256 whose id is `first`."""
    path = tmp_path / "keys.json"
    path.write_bytes(key_set(jwk("ES256")))
    return path
