"""The commands of docs/agents.md for an agent that other people wrote, where it is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agents.stage import AGENTS, SLOW, installed
from tests.cli.processes import ROOT
from tests.documents.stories import pattern, play


@SLOW
@pytest.mark.real_tcp
def test_from_nothing_to_an_approved_edit(tmp_path: Path) -> None:
    """fast-agent edits a file when a person agrees, by the commands that the document has."""
    installed("fast-agent/bin/fast-agent")
    (tmp_path / "fast").symlink_to(AGENTS / "fast-agent")
    document = (ROOT / "docs/agents.md").read_text(encoding="utf-8")
    section = document.partition("### fast-agent")[2].partition("### ")[0]
    for step, shown in play(section, tmp_path, "shell"):
        assert pattern(step.output).fullmatch(shown), f"$ {step.command}\n{shown}"
    assert (tmp_path / "work" / "a.txt").read_text() == "approved"
