"""Events in words: lines, and the live line."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arcp_trio import Event
from arcp_trio.cli.client.columns import in_columns
from arcp_trio.cli.client.event_lines import Teller
from arcp_trio.cli.text import cells
from arcp_trio.wire.event_bodies import KINDS
from tests.cli.clients import HOSTILE


def event(kind: str, body: Any) -> Event:
    """Return an event of a job."""
    return Event(seq=1, job_id="job_1", kind=kind, body=body, ts="2026-01-01T00:00:00.000Z")


def plain() -> Teller:
    """Return a teller without a live line."""
    return Teller(live=False, colours=False)


def live(*events: tuple[str, Any], columns: int = 80) -> str:
    """Return the live line after these events."""
    teller = Teller(live=True, colours=False)
    for kind, body in events:
        teller.tell(event(kind, body))
    return teller.live_line(columns)


@pytest.mark.parametrize(
    ("kind", "body", "lines"),
    [
        ("log", {"level": "info", "message": "a\nb"}, ["info: a", "  b"]),
        ("thought", {"text": "hm"}, ["thought: hm"]),
        ("thought", {"text": "\nwhat?\nwell. \n"}, ["thought: what?", "  well."]),
        ("status", {"phase": "loading"}, ["status: loading"]),
        ("status", {"phase": "loading", "message": "a"}, ["status: loading: a"]),
        ("progress", {"current": 1.5}, ["progress: 1.5"]),
        (
            "progress",
            {"current": 1, "total": 3, "units": "m", "message": "up"},
            ["progress: 1/3 m up"],
        ),
        ("tool_call", {"tool": "t", "call_id": "c", "args": {"q": 1}}, ['tool call: t {"q":1}']),
        (
            "tool_result",
            {"call_id": "c", "error": {"code": "X", "message": "no"}},
            ["tool failed: X: no"],
        ),
        ("tool_result", {"call_id": "c", "result": 1}, ["tool result: 1"]),
        ("metric", {"name": "n", "value": 0.1 + 0.2, "unit": "s"}, ["metric: n 0.3 s"]),
        (
            "metric",
            {"name": "cost.budget.remaining", "value": -0.5, "unit": "USD"},
            ["budget: 0.00 USD left, 0.50 overspent"],
        ),
        ("artifact_ref", {"uri": "u", "content_type": "t"}, ["artifact: u (t)"]),
        (
            "metric",
            {"name": "cost.budget.remaining", "value": "?"},
            ['metric: cost.budget.remaining "?"'],
        ),
        ("delegate", {"agent": "a", "delegate_id": "d"}, ["delegating to: a"]),
        ("delegate", {"agent": "a", "input": [1]}, ["delegating to: a [1]"]),
        ("result_chunk", {"data": "abc"}, []),
        ("x-vendor.a.b", {"a": 1}, ['x-vendor.a.b: {"a":1}']),
        ("", None, ["event: null"]),
    ],
)
def test_lines(kind: str, body: Any, lines: list[str]) -> None:
    """Without a live line, each kind of event has lines."""
    assert plain().tell(event(kind, body)) == lines


def test_the_live_line() -> None:
    """The live line has progress, budget, status, tool, and the size of the result."""
    progress = ("progress", {"current": 1, "total": 2, "units": "steps"})
    call = ("tool_call", {"tool": "search", "call_id": "a"})
    assert live(progress) == "[##########----------] 1/2 steps"
    assert live(progress, columns=40) == "[#####-----] 1/2 steps"
    assert live(("progress", {"current": 7, "units": "files"})) == "7 files"
    assert live(("progress", {"current": 9, "total": 0})) == "[####################] 9/0"
    assert live(("progress", {"current": 9, "total": 3})) == "[####################] 9/3"
    left = ("metric", {"name": "cost.budget.remaining", "value": 4.2, "unit": "USD"})
    status = ("status", {"phase": "loading", "message": "a"})
    assert live(left, status, call) == "4.20 USD left  loading: a  tool search"
    assert live(call, ("tool_call", {"tool": "b", "call_id": "b"})) == "tool b (+1)"
    assert live(call, ("tool_result", {"call_id": "a", "result": 1})) == ""
    assert live(("result_chunk", {"data": "x" * 1234})) == "result: 1,234 characters"
    assert live(("status", {"phase": "漢" * 50}), columns=40) == "漢" * 19 + "…"
    assert live() == ""


@pytest.mark.parametrize(
    ("current", "total", "bar"),
    [
        (1e308, 1e308, "[####################]"),
        (1e308, 1e-300, "[####################]"),
        (-1e308, 1e-300, "[--------------------]"),
    ],
)
def test_a_share_that_no_float_can_hold(current: float, total: float, bar: str) -> None:
    """Numbers at the limits of a float fill the bar or leave it empty."""
    assert live(("progress", {"current": current, "total": total})).startswith(bar)


def test_what_there_is_to_spend_is_known_from_the_start() -> None:
    """The granted budget is shown before anything is spent, and what is left of it at the end."""
    teller = Teller(live=True, colours=False)
    granted = {"USD": Decimal(2), "credits": Decimal("0.125"), "XAU": Decimal("1E+999999")}
    teller.budget(granted, granted)
    left = ["2.00 of 2.00 USD left", "0.125 of 0.125 credits left"]
    vast = "1e+999999 of 1e+999999 XAU left"
    assert teller.live_line(200) == "  ".join([*left, vast])
    teller.tell(event("metric", {"name": "cost.budget.remaining", "value": 0.95, "unit": "USD"}))
    assert teller.closing() == ["0.95 of 2.00 USD left", left[1], vast]
    assert plain().closing() == []


@pytest.mark.parametrize("is_live", [True, False])
def test_tool_calls_have_short_lines(is_live: bool) -> None:  # noqa: FBT001
    """A call, its result and a delegation have a line each that is as short as the screen is."""
    teller = Teller(live=is_live, colours=False, shorten=lambda line: line[:20])
    long = "x" * 50
    for kind, body in [
        ("tool_call", {"tool": "t", "call_id": "c", "args": long}),
        ("tool_result", {"call_id": "c", "result": {"a\n": [long]}}),
        ("delegate", {"agent": "a", "delegate_id": "d", "input": long}),
    ]:
        (line,) = teller.tell(event(kind, body))
        assert len(line) == 20


@pytest.mark.parametrize(
    "message", ["no grant", "delegation refused: agent echo: no grant"], ids=["other", "own"]
)
def test_a_refused_delegation(message: str) -> None:
    """The line says to whom, and why, also where another vendor's message does not."""
    teller = plain()
    teller.tell(event("delegate", {"agent": "echo", "delegate_id": "d"}))
    error = {"code": "PERMISSION_DENIED", "message": message}
    refused = teller.tell(event("tool_result", {"call_id": "d", "error": error}))
    assert refused == ["delegation refused: agent echo: no grant (PERMISSION_DENIED)"]


def test_colours() -> None:
    """Warnings and errors are coloured, each line by itself."""
    teller = Teller(live=False, colours=True)
    said = teller.tell(event("log", {"level": "error", "message": "a\nb"}))
    assert said == ["\x1b[31merror: a\x1b[0m", "\x1b[31m  b\x1b[0m"]
    assert teller.tell(event("log", {"level": "info", "message": "a"})) == ["info: a"]


bodies = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.just(HOSTILE)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=2)
    | st.dictionaries(
        st.sampled_from(
            ["message", "level", "text", "phase", "current", "total", "tool", "call_id", "error",
             "code", "name", "value", "unit", "uri", "byte_size", "agent", "data", HOSTILE]
        ),
        inner,
        max_size=5,
    ),
    max_leaves=8,
)  # fmt: skip


@given(
    st.lists(st.tuples(st.sampled_from([*KINDS, HOSTILE]), bodies), max_size=4),
    st.booleans(),
    st.sampled_from([20, 40, 80]),
)
def test_anything_can_be_told(events: list[tuple[str, Any]], is_live: bool, columns: int) -> None:  # noqa: FBT001
    """For any event, each line is printable, and the live line fits."""
    teller = Teller(live=is_live, colours=False)
    for kind, body in events:
        assert all(line.isprintable() for line in teller.tell(event(kind, body)))
        line = teller.live_line(columns)
        assert line.isprintable()
        assert cells(line) < columns


def test_columns() -> None:
    """Rows stand in columns where they fit; on a narrow terminal each cell has a line."""
    rows = [("A", "B"), ("漢字", "x\x1b[2J"), ("c", "long words")]
    laid_out = ["A     B", "漢字  x", "c     long words"]
    assert in_columns(rows, 16).splitlines() == laid_out
    assert in_columns(rows, None).splitlines() == laid_out
    assert in_columns(rows, 15).splitlines() == ["漢字", "  x", "c", "  long words"]


def test_an_approval_that_is_decided() -> None:
    """The live line says that a call waits for approval until the call has its result."""
    waits = ("status", {"phase": "approval", "message": "Allow fs.write of /a?"})
    assert "approval: Allow" in live(waits)
    assert live(waits, ("tool_result", {"call_id": "c", "result": {"decision": "allow"}})) == ""
    loading = ("status", {"phase": "loading"})
    assert live(loading, ("tool_result", {"call_id": "c", "result": 1})) == "loading"
