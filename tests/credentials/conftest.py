"""A check around every test here: no secret is logged."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.credentials.upstream import SECRET


class _Everything(logging.Handler):
    """A handler that keeps what is logged, with tracebacks."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))


@pytest.fixture(autouse=True)
def _no_secret_is_logged() -> Iterator[None]:
    """Fail a test during which a value was logged, at any level."""
    root, handler = logging.getLogger(), _Everything()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        root.setLevel(level)
        root.removeHandler(handler)
    told = [text for text in handler.texts if SECRET in text]
    assert not told, f"a secret was logged: {told[0]}"
