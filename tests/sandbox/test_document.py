"""What the document says of containment: its program looks around, and sees what is said there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.processes import ROOT
from tests.documents.stories import pattern, play

SECTION = re.compile(r"^### What contains them\n(.*?)^## ", re.MULTILINE | re.DOTALL)


@pytest.mark.sandbox
@pytest.mark.real_tcp
def test_commands_show_what_is_printed(tmp_path: Path) -> None:
    """Each command of the section shows the output that the document has after it."""
    section = SECTION.search((ROOT / "docs/operating.md").read_text())
    assert section is not None
    story = section[1].replace("```\n# ", "```python\n# ").replace("```\n$ ", "```console\n$ ")
    steps = list(play(story, tmp_path))
    assert [step.command.split()[0] for step, _ in steps] == ["mkdir", "arcp-trio"]
    for step, shown in steps:
        assert pattern(step.output).fullmatch(shown), f"$ {step.command}\n{shown}"
