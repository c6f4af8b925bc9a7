"""`[ceiling.PRINCIPAL]` in the configuration file of `serve`."""

from __future__ import annotations

from pathlib import Path

import pytest

from arcp_trio import Ceiling, Lease
from arcp_trio.cli.errors import CommandError
from arcp_trio.cli.serve.config import settle


def settled(tmp_path: Path, text: str) -> dict[str, Ceiling]:
    """Return the ceilings of a file with this text."""
    path = tmp_path / "arcp.toml"
    path.write_text(text, encoding="utf-8")
    return dict(settle({"config": str(path)}).ceilings)


def test_a_ceiling_is_written_like_a_lease_request(tmp_path: Path) -> None:
    """Capabilities may stand with or without quotes; `expires_in` bounds the time."""
    text = """
        [ceiling."*"]
        fs.read = ["/srv/**"]
        "tool.call" = ["search.*"]
        cost.budget = ["USD:5"]
        expires_in = 3600
        [ceiling.alice]
    """
    request = {"fs.read": ["/srv/**"], "tool.call": ["search.*"], "cost.budget": ["USD:5"]}
    assert settled(tmp_path, text) == {
        "*": Ceiling(lease=Lease.read(request), expires_in=3600),
        "alice": Ceiling(lease=Lease()),
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("ceiling.a = 1", r"\[ceiling\.a\] must be a table"),
        ("[ceiling.a]\nfs.raed = ['/a']", r"\[ceiling\.a\] expected a capability"),
        ("[ceiling.a]\nfs.read = '/a'", r"fs\.read must be a list of strings"),
        ("[ceiling.a]\nfs.read = [1]", r"fs\.read must be a list of strings"),
        ("[ceiling.a]\nfs.read = ['/a//b']", "empty segment"),
        ("[ceiling.a]\ncost.budget = ['5']", "expected currency:amount"),
        ("[ceiling.a]\nexpires_in = 0", "expires_in must be a number of seconds above 0"),
        ("[ceiling.a]\nexpires_in = 'day'", "expires_in must be a number of seconds above 0"),
        ("[ceilings.a]", r"unknown key ceilings; the tables are .*\[ceiling\.PRINCIPAL\]"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, problem: str) -> None:
    """A table that is not a ceiling ends the start, with the place and the mistake."""
    with pytest.raises(CommandError, match=problem):
        settled(tmp_path, text)
