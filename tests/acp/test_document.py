"""docs/acp.md says what the package has."""

from __future__ import annotations

import re

import attrs

from arcp_trio import acp
from tests.cli.processes import ROOT

DOCUMENT = (ROOT / "docs" / "acp.md").read_text()


def test_limits_are_documented() -> None:
    """The table of limits has each of them, with its default."""
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", DOCUMENT, re.MULTILINE)
    fields = attrs.fields(acp.Limits)
    assert rows == [(field.name, str(getattr(acp.Limits(), field.name))) for field in fields]


def test_errors_are_documented() -> None:
    """The table of errors has each of them."""
    errors = {
        name
        for name in acp.__all__
        if isinstance(found := getattr(acp, name), type) and issubclass(found, acp.AcpFailure)
    }
    rows = set(re.findall(r"^\| `(\w+)` \| [a-z ]", DOCUMENT, re.MULTILINE))
    assert errors - {"AcpFailure"} <= rows
