"""Timestamps on the wire."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arcp_trio.wire.timestamps import parse_rfc3339, parse_utc, rfc3339


@given(st.floats(0, 4e9))
def test_what_is_written_is_read_back(moment: float) -> None:
    """A timestamp is read back to the millisecond, rounded down."""
    text = rfc3339(moment)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", text)
    assert moment - 0.0011 < parse_utc(text) <= moment + 1e-6


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (0.9999, "1970-01-01T00:00:00.999Z"),
        (1778701333.02, "2026-05-13T19:42:13.020Z"),
    ],
)
def test_known_moments(moment: float, text: str) -> None:
    """Known moments have their known text."""
    assert rfc3339(moment) == text


def test_offsets_and_fractions() -> None:
    """Offsets and fractions of any length are read."""
    assert parse_rfc3339("1970-01-01T02:00:01.5+02:00") == 1.5
    assert parse_rfc3339("1970-01-01T00:00:00.123456789Z") == pytest.approx(0.123456789)
    assert parse_utc("1969-12-31T23:59:59Z") == -1


@pytest.mark.spec("9.5-3")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "not-a-date",
        "2026-13-45T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "2026-05-13T24:00:01Z",
        "2026-05-13",
        "2026-05-13T00:00:00",
        "2026-05-13 00:00:00Z",
        "2026-05-13t00:00:00Z",
        "2026-05-13T00:00:00.Z",
        "2026-05-13T00:00:00Z\n",
        "\uff12\uff10\uff12\uff16-05-13T00:00:00Z",
        "1778701333",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    """Other text raises a ValueError in both readers."""
    for parse in (parse_rfc3339, parse_utc):
        with pytest.raises(ValueError, match=r"."):
            parse(text)


@pytest.mark.spec("9.5-1")
@pytest.mark.parametrize("zone", ["+00:00", "-00:00", "+02:00", "z"])
def test_utc_is_written_with_a_capital_z(zone: str) -> None:
    """`parse_utc` accepts only Z."""
    with pytest.raises(ValueError, match="Z"):
        parse_utc(f"2026-05-13T00:00:00{zone}")
