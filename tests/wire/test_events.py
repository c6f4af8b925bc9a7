"""Event bodies: which ones an agent may emit, and their form on the wire."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arcp_trio.wire.event_bodies import KINDS, LogBody, ProgressBody, ResultChunkBody
from arcp_trio.wire.events import InvalidEvent, encode_event, feature_of, read_body

TS = "2026-05-13T19:42:13.000Z"
ERROR = {"code": "PERMISSION_DENIED", "message": "no", "retryable": False}
CHUNK = {"result_id": "res_1", "chunk_seq": 0, "data": "", "encoding": "utf8", "more": False}


def sent(kind: str, body: Mapping[str, Any]) -> Any:
    """Return the body as it stands on the wire."""
    payload = json.loads(encode_event(kind, body, TS))
    assert payload["kind"] == kind
    assert payload["ts"] == TS
    return payload["body"]


def test_the_bytes_of_a_payload() -> None:
    """One payload, letter by letter."""
    assert (
        encode_event("log", {"level": "info", "message": "ü"}, TS)
        == (
            '{"kind":"log","ts":"2026-05-13T19:42:13.000Z","body":{"level":"info","message":"ü"}}'
        ).encode()
    )


@pytest.mark.spec("8.2-1", "8.2.1-1", "8.2.1-2", "8.4-1", "8.4-2", "8.4-4", "8.4-5", "8.4-7")
@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("log", {"level": "info", "message": ""}),
        ("log", {"level": "critical", "message": "m", "attributes": {"a": [1]}}),
        ("thought", {"text": "hm"}),
        ("tool_call", {"tool": "t", "args": {"q": 1}, "call_id": "c"}),
        ("tool_call", {"tool": "t", "call_id": "c"}),
        ("tool_result", {"call_id": "c", "result": {"hits": 3}}),
        ("tool_result", {"call_id": "c", "result": None}),
        ("tool_result", {"call_id": "c", "error": ERROR}),
        ("tool_result", {"call_id": "c", "error": {**ERROR, "details": {"a": 1}}}),
        ("status", {"phase": "running"}),
        ("status", {"phase": "credential_rotated", "id": "cred_1", "value": "v"}),
        ("metric", {"name": "tokens", "value": -3}),
        ("metric", {"name": "cost.llm", "value": 0.42, "unit": "USD", "dimensions": {"m": "x"}}),
        ("metric", {"name": "cost.llm", "value": 0}),
        ("artifact_ref", {"uri": "file:///a", "content_type": "text/plain"}),
        ("artifact_ref", {"uri": "u", "content_type": "c", "byte_size": 0, "sha256": "aB" * 32}),
        ("delegate", {"delegate_id": "d", "agent": "a@1", "input": [1]}),
        ("delegate", {"delegate_id": "d", "agent": "a", "lease_request": {"fs.read": ["/a"]}}),
        ("progress", {"current": 0}),
        ("progress", {"current": 47, "total": 120, "units": "files", "message": "m"}),
        ("progress", {"current": 0.5, "total": 1}),
        ("result_chunk", CHUNK),
        (
            "result_chunk",
            {**CHUNK, "chunk_seq": 9, "data": "QQ==", "encoding": "base64", "more": True},
        ),
        ("x-vendor.acme.anything", {"a": {"b": None}}),
        ("x-vendor.acme.deep.er", {}),
    ],
)
def test_what_the_table_allows_is_sent_as_it_is(kind: str, body: dict[str, Any]) -> None:
    """Bodies as §8.2 has them are sent unchanged, with any further fields."""
    assert sent(kind, body) == body


@pytest.mark.spec("8.2.1-3")
def test_progress_beyond_its_total_is_let_through() -> None:
    """Progress beyond its total is sent: §8.2.1 only advises against it."""
    assert sent("progress", {"current": 11, "total": 10}) == {"current": 11, "total": 10}


def test_an_optional_field_that_is_none_is_left_out() -> None:
    """An optional field that is None is left out, because some peers refuse null."""
    assert sent("progress", {"current": 1, "total": None, "units": None}) == {"current": 1}
    assert sent("tool_call", {"tool": "t", "call_id": "c", "args": None}) == {
        "tool": "t",
        "call_id": "c",
    }
    assert sent("tool_result", {"call_id": "c", "result": 1, "error": None}) == {
        "call_id": "c",
        "result": 1,
    }
    assert sent("tool_result", {"call_id": "c", "result": None, "error": ERROR}) == {
        "call_id": "c",
        "error": ERROR,
    }


def test_the_agents_body_is_left_alone() -> None:
    """Encoding does not change the object that the agent holds."""
    body = {"current": 1, "total": None}
    encode_event("progress", body, TS)
    assert body == {"current": 1, "total": None}


@pytest.mark.spec("8.2-1", "8.2.1-2", "9.6-5")
@pytest.mark.parametrize(
    ("kind", "body", "path"),
    [
        ("log", {"message": "m"}, "$.level"),
        ("log", {"level": "loud", "message": "m"}, "$.level"),
        ("log", {"level": ["info"], "message": "m"}, "$.level"),
        ("log", {"level": "info"}, "$.message"),
        ("log", {"level": "info", "message": 5}, "$.message"),
        ("log", {"level": "info", "message": None}, "$.message"),
        ("log", {"level": "info", "message": "m", "extra": [object()]}, "$.extra[0]"),
        ("log", {"level": "info", "message": "\ud800"}, "$.message"),
        ("thought", {}, "$.text"),
        ("tool_call", {"tool": "", "call_id": "c"}, "$.tool"),
        ("tool_call", {"tool": "t"}, "$.call_id"),
        ("tool_call", {"tool": "t", "call_id": "c", "args": b"x"}, "$.args"),
        ("tool_result", {"call_id": "c"}, "@ $"),
        ("tool_result", {"call_id": "c", "error": None}, "@ $"),
        ("tool_result", {"call_id": "c", "result": 1, "error": ERROR}, "@ $"),
        ("tool_result", {"call_id": "c", "error": "boom"}, "$.error"),
        ("tool_result", {"call_id": "c", "error": {**ERROR, "code": "OOPS"}}, "$.error.code"),
        ("tool_result", {"call_id": "c", "error": {**ERROR, "code": []}}, "$.error.code"),
        ("tool_result", {"call_id": "c", "error": {**ERROR, "message": 1}}, "$.error.message"),
        ("tool_result", {"call_id": "c", "error": {**ERROR, "retryable": 1}}, "$.error.retryable"),
        ("status", {"phase": ""}, "$.phase"),
        ("status", {"phase": "p", "message": 1}, "$.message"),
        ("metric", {"value": 1}, "$.name"),
        ("metric", {"name": "n"}, "$.value"),
        ("metric", {"name": "n", "value": None}, "$.value"),
        ("metric", {"name": "n", "value": True}, "$.value"),
        ("metric", {"name": "n", "value": "0.1"}, "$.value"),
        ("metric", {"name": "n", "value": float("nan")}, "$.value"),
        ("metric", {"name": "n", "value": float("-inf")}, "$.value"),
        ("metric", {"name": "n", "value": Decimal("NaN")}, "$.value"),
        ("metric", {"name": "n", "value": Decimal("sNaN")}, "$.value"),
        ("metric", {"name": "n", "value": Decimal("1e400")}, "$.value"),
        ("metric", {"name": "n", "value": 10**400}, "$.value"),
        ("metric", {"name": "cost.llm", "value": -1}, "$.value"),
        ("metric", {"name": "cost.llm", "value": Decimal("-0.01")}, "$.value"),
        ("metric", {"name": "n", "value": 1, "unit": 5}, "$.unit"),
        ("metric", {"name": "n", "value": 1, "dimensions": []}, "$.dimensions"),
        ("artifact_ref", {"uri": "u"}, "$.content_type"),
        ("artifact_ref", {"uri": "", "content_type": "c"}, "$.uri"),
        ("artifact_ref", {"uri": "u", "content_type": ""}, "$.content_type"),
        ("artifact_ref", {"uri": "u", "content_type": "c", "byte_size": -1}, "$.byte_size"),
        ("artifact_ref", {"uri": "u", "content_type": "c", "sha256": "ab" * 31}, "$.sha256"),
        ("artifact_ref", {"uri": "u", "content_type": "c", "sha256": "xy" * 32}, "$.sha256"),
        ("artifact_ref", {"uri": "u", "content_type": "c", "byte_size": 1.0}, "$.byte_size"),
        ("delegate", {"agent": "a"}, "$.delegate_id"),
        ("delegate", {"delegate_id": "d", "agent": "a", "lease_request": []}, "$.lease_request"),
        ("progress", {}, "$.current"),
        ("progress", {"current": -1}, "$.current"),
        ("progress", {"current": Decimal("-0.5")}, "$.current"),
        ("progress", {"current": True}, "$.current"),
        ("progress", {"current": "1"}, "$.current"),
        ("progress", {"current": float("nan")}, "$.current"),
        ("progress", {"current": float("inf")}, "$.current"),
        ("progress", {"current": 1, "total": -1}, "$.total"),
        ("progress", {"current": 1, "units": 1}, "$.units"),
        ("result_chunk", {**CHUNK, "chunk_seq": -1}, "$.chunk_seq"),
        ("result_chunk", {**CHUNK, "chunk_seq": 0.0}, "$.chunk_seq"),
        ("result_chunk", {**CHUNK, "chunk_seq": True}, "$.chunk_seq"),
        ("result_chunk", {**CHUNK, "encoding": "hex"}, "$.encoding"),
        ("result_chunk", {**CHUNK, "more": 1}, "$.more"),
        ("result_chunk", {**CHUNK, "data": b"x"}, "$.data"),
        ("result_chunk", {**CHUNK, "result_id": ""}, "$.result_id"),
        ("x-vendor.acme.x", {"a": {1: 2}}, "$.a"),
    ],
)
def test_what_breaks_the_table_is_refused(kind: str, body: dict[str, Any], path: str) -> None:
    """A wrong body raises a ValueError that names kind and path."""
    with pytest.raises(InvalidEvent) as caught:
        encode_event(kind, body, TS)
    assert str(caught.value).startswith(f"{kind}: ")
    assert str(caught.value).endswith(path)


@pytest.mark.spec("1.0/8.2-1")
@pytest.mark.parametrize(
    "kind",
    [
        "",
        "logs",
        "Log",
        "vendor.a.b",
        "x-vendor",
        "x-vendor.acme",
        "x-vendor.acme.",
        "x-vendor..x",
        "x-vendor.a.b\n",
        "x-vendor.a.b c",
        'x-vendor.a."',
        "x-vendor.a." + "b" * 10_000,
    ],
)
def test_kinds_of_ones_own_live_under_x_vendor(kind: str) -> None:
    """A kind that is not in §8.2 and has not the form of a vendor's kind is refused."""
    with pytest.raises(InvalidEvent) as caught:
        encode_event(kind, {}, TS)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("body", [None, [], "text", 5])
def test_a_body_is_an_object(body: Any) -> None:
    """A body that is not a mapping is refused, for every kind."""
    for kind in ("log", "x-vendor.acme.x"):
        with pytest.raises(InvalidEvent, match="expected an object"):
            encode_event(kind, body, TS)


class Named(StrEnum):
    """Strings with names."""

    INFO = "info"


class Numbered(IntEnum):
    """Numbers with names."""

    HALF = 5


def test_members_of_enumerations_are_sent_as_their_values() -> None:
    """A member of an enumeration is sent as the string or the number that it is."""
    assert sent("log", {"level": Named.INFO, "message": Named.INFO}) == {
        "level": "info",
        "message": "info",
    }
    assert sent("progress", {"current": Numbered.HALF, "total": 10})["current"] == 5
    with pytest.raises(InvalidEvent, match=r"a string, got an integer @ \$\.message"):
        encode_event("log", {"level": "info", "message": Numbered.HALF}, TS)
    with pytest.raises(InvalidEvent, match=r"@ \$\.current"):
        encode_event("progress", {"current": True}, TS)


def test_any_mapping_will_do() -> None:
    """A mapping that is not a dict is sent as an object."""
    assert sent("thought", OrderedDict(text="hm")) == {"text": "hm"}


def test_a_body_leaves_room_for_its_frame() -> None:
    """The bound on nesting leaves room for the levels of the frame around the body."""
    body: dict[str, Any] = {}
    for _ in range(61):
        body = {"a": body}
    assert sent("x-vendor.acme.x", body)
    with pytest.raises(InvalidEvent, match="nested too deeply"):
        encode_event("x-vendor.acme.x", {"a": body}, TS)


@given(
    st.decimals(-(10**9), 10**9, places=6)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-(2**63), 2**63 - 1)
)
def test_metrics_are_exact(value: Decimal | float) -> None:
    """The value of a metric keeps its digits."""
    raw = encode_event("metric", {"name": "n", "value": value}, TS)
    read = json.loads(raw, parse_float=Decimal)["body"]["value"]
    assert Decimal(read) == Decimal(repr(value) if isinstance(value, float) else value)


def test_features_of_kinds() -> None:
    """Only progress, chunks, and what is left of a budget need a feature."""
    body = {"name": "cost.tool"}
    assert {kind: feature_of(kind, body) for kind in KINDS if feature_of(kind, body)} == {
        "progress": "progress",
        "result_chunk": "result_chunk",
    }
    assert feature_of("x-vendor.acme.x", {}) is None
    assert feature_of("metric", {"name": "cost.budget.remaining"}) == "cost.budget"


def test_bodies_become_objects() -> None:
    """A body is made into the object of its kind, or refused."""
    assert read_body("log", {"level": "info", "message": "m", "x": 1}) == LogBody(
        level="info", message="m"
    )
    assert read_body("progress", {"current": 1, "total": None}) == ProgressBody(current=1)
    assert read_body("result_chunk", CHUNK) == ResultChunkBody(
        result_id="res_1", chunk_seq=0, data="", encoding="utf8", more=False
    )
    with pytest.raises(InvalidEvent):
        read_body("result_chunk", {**CHUNK, "encoding": "hex"})
