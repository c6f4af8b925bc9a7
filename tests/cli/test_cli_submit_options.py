"""The values of options of `submit`: times, leases and budgets."""

from __future__ import annotations

from pathlib import Path

import pytest

from arcp_trio.cli.client.submit import lease_items, parse_budget, parse_lease
from arcp_trio.cli.errors import CommandError
from arcp_trio.cli.value_kinds import DURATION, seconds_of


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("2d", 172_800), ("0.5h", 1800)],
)
def test_times(text: str, seconds: float) -> None:
    """A time is a number of seconds, or numbers with units."""
    assert seconds_of(text) == seconds
    assert DURATION.from_text(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "m", "10x", "-1", "1 h", "1m30", "inf", "1e3", "\u0661", "1.m"]
)
def test_what_is_no_time(text: str) -> None:
    """Any other text is refused."""
    with pytest.raises(ValueError):  # noqa: PT011 - the text is for argparse to replace
        seconds_of(text)


def test_a_lease() -> None:
    """Patterns are collected by capability; a pattern may have an = in it."""
    assert parse_lease(["tool.call=a.*", "net.fetch=https://a/?q=1", "tool.call=b"]) == {
        "tool.call": ["a.*", "b"],
        "net.fetch": ["https://a/?q=1"],
    }


def test_what_may_be_asked_for() -> None:
    """Paths are absolute; of one that is not, the error names the option and what was meant."""
    asks = ["fs.write=/a/**", "fs.read=**", "fs.read=**/b", "tool.call=terminal/*"]
    assert lease_items(asks) == [f"x-vendor.arcp-trio.ask.{each}" for each in asks]
    meant = f"fs.write={Path.cwd()}/work/**"
    with pytest.raises(CommandError) as caught:
        lease_items(["fs.write=work/**"])
    expected = f"--ask fs.write=work/**: paths are absolute, such as {meant}"
    assert str(caught.value) == expected


def test_a_budget() -> None:
    """An amount stays the text that it was."""
    assert parse_budget(["USD:5.00", "EUR:0"]) == {"USD": "5.00", "EUR": "0"}


@pytest.mark.parametrize("given", [["USD"], [":5"], ["USD:"], ["USD:nan"], ["USD:-1"]])
def test_what_is_no_budget(given: list[str]) -> None:
    """A malformed amount and a currency that is named twice are refused."""
    with pytest.raises(Exception, match="such as USD:5"):
        parse_budget(given)
    with pytest.raises(Exception, match="names USD twice"):
        parse_budget(["USD:1", "USD:2"])
