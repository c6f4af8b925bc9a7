"""Events in words, as a listing tells them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arcp_trio.runtime.job.last_event import KEPT_BYTES, MOST_CHARACTERS, LastEvent
from arcp_trio.wire.events import encode_event
from arcp_trio.wire.json import Json

FAILED = {"code": "PERMISSION_DENIED", "message": "not in the lease", "retryable": False}


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        ("log", {"level": "info", "message": "begun"}, "begun"),
        ("log", {"level": "warn", "message": "two\nlines"}, "warn: two lines"),
        ("thought", {"text": "perhaps"}, "perhaps"),
        ("status", {"phase": "waiting"}, "waiting"),
        ("status", {"phase": "waiting", "message": "for you"}, "waiting: for you"),
        ("tool_call", {"tool": "shop.buy", "call_id": "c", "args": {}}, "calls shop.buy"),
        ("tool_result", {"call_id": "c", "result": 1}, "a tool has answered"),
        (
            "tool_result",
            {"call_id": "c", "error": FAILED},
            "a tool has failed: PERMISSION_DENIED: not in the lease",
        ),
        ("metric", {"name": "cost.shop", "value": 0.1, "unit": "USD"}, "cost.shop 0.1 USD"),
        ("metric", {"name": "hits", "value": 3}, "hits 3"),
        ("artifact_ref", {"uri": "file:///a", "content_type": "text/plain"}, "made file:///a"),
        ("delegate", {"delegate_id": "d", "agent": "echo"}, "delegates to echo"),
        ("progress", {"current": 3, "total": 10, "units": "steps"}, "3/10 steps"),
        ("progress", {"current": 0.5, "message": "slowly"}, "0.5 slowly"),
        ("x-vendor.acme.note", {"a": 1}, "x-vendor.acme.note"),
    ],
)
def test_each_kind_has_words(kind: str, body: dict[str, Json], words: str) -> None:
    """An event of each kind is told in words."""
    assert told(kind, body) == words


def test_before_the_first_event() -> None:
    """Before the first event there are no words."""
    assert LastEvent().words is None


@given(
    text=st.text(st.sampled_from("\x1b[31m\x9b\r\n\t\x00\u202e\u2028\u200d漢é a"), max_size=400),
    times=st.sampled_from([1, KEPT_BYTES]),
)
def test_the_words_are_plain(text: str, times: int) -> None:
    """Whatever an agent says, its words are one short line without controls, small or large."""
    words = told("log", {"level": "error", "message": text * times})
    assert words is not None
    assert len(words) <= MOST_CHARACTERS
    assert words.replace("\u200d", "").isprintable()
    assert words == words.strip()


def told(kind: str, body: dict[str, Json]) -> str | None:
    """Return the words for the second of two events."""
    last = LastEvent()
    for each, fields in (("log", {"level": "info", "message": "x" * KEPT_BYTES}), (kind, body)):
        last.note(each, fields, encode_event(each, fields, "2026-05-13T19:30:00Z"))
    return last.words
