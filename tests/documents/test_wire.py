"""docs/wire.md shows a conversation that a real server has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents.conversation import BLOCK, DOCUMENT, have_conversation


@pytest.mark.real_tcp
def test_the_conversation_is_as_shown(tmp_path: Path) -> None:
    """Each frame of a conversation with a server is the one that the document has there."""
    said = have_conversation(tmp_path)
    shown = BLOCK.findall(DOCUMENT.read_text(encoding="utf-8"))
    assert shown == said, "python -m tests.documents.conversation writes the frames anew"
