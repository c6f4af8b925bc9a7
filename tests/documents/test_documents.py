"""The documents' files and commands do what the documents say."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from arcp_trio.cli.serve.config import settle
from tests.cli.processes import LIFETIME_SECONDS, ROOT
from tests.documents.stories import pattern, play, read

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
STORIES = [path for path in DOCUMENTS if read(path.read_text()).steps]
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
LINES_OF_THE_README = 150


@pytest.mark.real_tcp
@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.name)
def test_commands_show_what_is_printed(path: Path, tmp_path: Path) -> None:
    """Each command of a document shows the output that the document has after it."""
    for step, shown in play(path.read_text(), tmp_path):
        assert pattern(step.output).fullmatch(shown), f"$ {step.command}\n{shown}"


def test_frames_are_understood(tmp_path: Path) -> None:
    """The client's frames that a document shows are answered as it says."""
    frames = read((ROOT / "docs/protocol.md").read_text()).frames
    command = [sys.executable, "-m", "arcp_trio", "serve", "--stdio", "--memory", "--drain=9"]
    done = subprocess.run(
        [*command, "--token=alice=s3cret"],
        input="".join(f"{frame}\n" for frame in frames),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=LIFETIME_SECONDS,
    )
    answers = [json.loads(line)["type"] for line in done.stdout.splitlines()]
    assert answers == ["session.welcome", "job.accepted", *["job.event"] * 2, "job.result"]


def test_configurations_are_accepted(tmp_path: Path) -> None:
    """`serve` takes the configuration files that the documents show."""
    shown = read((ROOT / "docs/operating.md").read_text()).configurations
    for number, text in enumerate(shown):
        path = tmp_path / f"{number}.toml"
        path.write_text(text, encoding="utf-8")
        settle({"config": str(path)})
    assert shown


def texts_of_the_code() -> set[str]:
    """Return the texts of the package, with `%s` in place of their variables."""
    texts: set[str] = set()
    for path in (ROOT / "arcp_trio").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = [
                    each.value if isinstance(each, ast.Constant) else "%s" for each in node.values
                ]
                texts.add("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.add(node.value)
    return texts


def test_events_and_metrics_have_their_names() -> None:
    """What an operator would look for is what the code logs and counts."""
    text = (ROOT / "docs/operating.md").read_text()
    firsts = re.findall(r"^\| (`[a-z].*?) \|", text.partition("\n## Logs\n")[2], re.MULTILINE)
    events = [event for first in firsts for event in re.findall("`([^`]+)`", first)]
    metrics = re.findall(r"`(arcp_[a-z_]+)[`{]", text)
    texts = texts_of_the_code()
    made = [re.escape(each).replace("%s", ".+") for each in texts if re.search("[a-z]{4}", each)]
    assert len(events) > 50
    assert not [event for event in events if not re.fullmatch("|".join(sorted(made)), event)]
    assert len(metrics) > 20
    assert not {*metrics} - {*re.findall("arcp_[a-z_]+", "\n".join(sorted(texts)))}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    """The files and the headings that a document links to within the project exist."""
    missing = [
        f"{to}#{heading}"
        for to, heading in LINK.findall(path.read_text())
        if not (path.parent / to).exists()
        or (heading and heading not in anchors(path.parent / to if to else path))
    ]
    assert missing == []


def anchors(document: Path) -> set[str]:
    """Return the names under which a document's headings can be linked to."""
    headings = HEADING.findall(document.read_text())
    return {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings}


def test_readme_is_short() -> None:
    """The README leads to the documents instead of containing them."""
    lines = len((ROOT / "README.md").read_text().splitlines())
    assert lines <= LINES_OF_THE_README
