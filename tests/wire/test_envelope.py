"""Frames: reading, writing, splicing."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arcp_trio.wire.envelope import (
    Envelope,
    MalformedFrame,
    decode,
    encode,
    numbered_head,
    plain_head,
    tail,
)
from arcp_trio.wire.json import dumps

FRAME = {"arcp": "1.1", "id": "r1", "type": "job.submit", "payload": {"agent": "a"}}
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def frame(**changes: Any) -> str:
    """Return a valid frame with some fields changed."""
    return json.dumps({**FRAME, **changes})


def without(name: str) -> str:
    """Return a valid frame but for one field."""
    return json.dumps({key: value for key, value in FRAME.items() if key != name})


def refusal(raw: str | bytes) -> MalformedFrame:
    """Return the error that decoding the frame must raise."""
    with pytest.raises(MalformedFrame) as caught:
        decode(raw)
    assert len(caught.value.message) < 2000
    caught.value.message.encode()
    return caught.value


# --- round trips -----------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
payloads = st.dictionaries(
    texts, st.none() | st.integers(-9, 9) | texts | st.lists(texts), max_size=4
)
seqs = st.integers(1, 2**63 - 1)
traces = st.from_regex(r"[0-9a-f]{31}[1-9a-f]", fullmatch=True)


@given(
    texts,
    texts,
    payloads,
    st.none() | texts,
    st.none() | traces,
    st.none() | texts,
    st.none() | seqs,
)
def test_a_frame_comes_back(
    id: str,  # noqa: A002
    type: str,  # noqa: A002
    payload: dict[str, Any],
    session_id: str | None,
    trace_id: str | None,
    job_id: str | None,
    event_seq: int | None,
) -> None:
    """What is encoded decodes to the same envelope, from text and from bytes."""
    sent = Envelope(
        arcp="1.1",
        id=id,
        type=type,
        payload=payload,
        session_id=session_id,
        trace=trace_id,
        job_id=job_id,
        event_seq=event_seq,
    )
    raw = encode(
        type,
        dumps(payload),
        session_id=session_id,
        id=id,
        trace_id=trace_id,
        job_id=job_id,
        event_seq=event_seq,
    )
    assert decode(raw) == sent
    assert decode(raw.decode()) == sent


@given(texts, texts, payloads, texts, seqs, st.none() | texts, st.none() | traces)
def test_a_spliced_frame_is_the_encoded_one(
    id: str,  # noqa: A002
    type: str,  # noqa: A002
    payload: dict[str, Any],
    session_id: str,
    seq: int,
    job_id: str | None,
    trace_id: str | None,
) -> None:
    """Head, number and tail are together the bytes that encode() returns."""
    body = dumps(payload)
    end = tail(type, body, id=id, job_id=job_id, trace_id=trace_id)
    whole = {"session_id": session_id, "id": id, "job_id": job_id, "trace_id": trace_id}
    numbered = b"%b%d%b" % (numbered_head(session_id, "1"), seq, end)
    assert numbered == encode(type, body, event_seq=seq, arcp="1", **whole)
    assert plain_head(session_id) + end == encode(type, body, **whole)  # type: ignore[arg-type]
    assert end.startswith(b',"type":')


@pytest.mark.spec("5-1", "8.1-1", "1.0/5.1-6", "1.0/5.1-7")
def test_the_bytes_of_an_event() -> None:
    """One frame, letter by letter."""
    end = tail("job.event", b'{"kind":"log"}', id="01X", job_id="job_1", trace_id=TRACE)
    assert b"%b%d%b" % (numbered_head("sess_1", "1.1"), 7, end) == (
        b'{"arcp":"1.1","session_id":"sess_1","event_seq":7,"type":"job.event","id":"01X",'
        b'"trace_id":"4bf92f3577b34da6a3ce929d0e0e4736","job_id":"job_1",'
        b'"payload":{"kind":"log"}}'
    )


@pytest.mark.spec("1.0/5.1-2", "1.0/5.1-3")
def test_a_frame_gets_an_id_of_its_own() -> None:
    """A frame without a given id gets a new ULID."""
    first, second = decode(encode("session.ping", b"{}")), decode(encode("session.ping", b"{}"))
    assert re.fullmatch(r"[0-9A-HJKMNP-TV-Z]{26}", first.id)
    assert first.id != second.id


# --- what is tolerated -----------------------------------------------------------------------


@pytest.mark.spec("5-2")
def test_unknown_fields_are_ignored() -> None:
    """Other fields of the envelope change nothing."""
    extras = {"timestamp": "x", "span_id": None, "extensions": {"x-vendor.a.b": [1]}, "": {}}
    assert decode(frame(**extras)) == decode(frame())


@pytest.mark.spec("1.0/5.1-1")
def test_both_versions_are_read() -> None:
    """A 1.0 peer says "1", a 1.1 peer says "1.1"."""
    assert decode(frame(arcp="1")).arcp == "1"
    assert decode(frame(arcp="1.1")).arcp == "1.1"


def test_a_null_optional_field_is_absent() -> None:
    """Null in an optional field is as good as absent."""
    nulls = dict.fromkeys(["session_id", "trace_id", "job_id", "event_seq"])
    assert decode(frame(**nulls)) == decode(frame())


@pytest.mark.spec("11-1")
@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (TRACE, TRACE),
        (f"00-{TRACE}-00f067aa0ba902b7-01", TRACE),
        (f"cc-{TRACE}-00f067aa0ba902b7-01-more", TRACE),
        ("0" * 32, None),
        (f"00-{'0' * 32}-00f067aa0ba902b7-01", None),
        (TRACE.upper(), None),
        (TRACE[:-1], None),
        (f"{TRACE}\n", None),
        ("4bf92f35-77b3-4da6-a3ce-929d0e0e4736", None),
        ("", None),
        (5, None),
        ({"a": []}, None),
    ],
)
def test_trace_ids(sent: Any, read: str | None) -> None:
    """A trace id is read as it is or from a traceparent; any other value is ignored."""
    assert decode(frame(trace_id=sent)).trace_id == read


# --- what is refused -------------------------------------------------------------------------


@pytest.mark.spec("12-5", "1.0/5.1-1", "1.0/5.1-4", "1.0/5.1-8")
@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (without("arcp"), "missing @ $.arcp"),
        (without("type"), "missing @ $.type"),
        (without("payload"), "missing @ $.payload"),
        (frame(arcp=None), "null @ $.arcp"),
        (frame(arcp=1.1), "expected a string, got a number @ $.arcp"),
        (frame(arcp="2"), "expected one of 1.1, 1 @ $.arcp"),
        (frame(arcp="9" * 200), "expected one of 1.1, 1 @ $.arcp"),
        (frame(type=""), "expected 1 to 256 characters @ $.type"),
        (frame(type=5), "expected a string, got an integer @ $.type"),
        (frame(type="t" * 10_000), "expected 1 to 256 characters @ $.type"),
        (frame(payload=None), "null @ $.payload"),
        (frame(payload=[]), "expected an object, got an array @ $.payload"),
        (frame(payload="{}"), "expected an object, got a string @ $.payload"),
        (frame(session_id=5), "expected a string, got an integer @ $.session_id"),
        (frame(session_id="s" * 10_000), "expected 0 to 256 characters @ $.session_id"),
        (frame(job_id=[]), "expected a string, got an array @ $.job_id"),
        (frame(job_id="j" * 10_000), "expected 0 to 256 characters @ $.job_id"),
        (frame(event_seq="1"), "expected an integer, got a string @ $.event_seq"),
        (frame(event_seq=1.5), "expected an integer, got a number @ $.event_seq"),
        (frame(event_seq=True), "expected an integer, got a boolean @ $.event_seq"),
        (frame(event_seq=2**63), "integer beyond 64 bits @ $.event_seq"),
        (frame(payload={"a": {"b": 10**400}}), "integer beyond 64 bits @ $.payload.a.b"),
        (frame(payload={"a": float("nan")}), "number is not finite @ $.payload.a"),
        (frame(payload={"a": "\ud800"}), "lone surrogate @ $.payload.a"),
        (frame(extra=float("inf")), "number is not finite @ $.extra"),
        (frame(payload={"a": "X"}).replace('"X"', "1e999"), "number is not finite @ $.payload.a"),
        (frame(trace_id="X").replace('"X"', "1e999"), "number is not finite @ $.trace_id"),
        (frame(payload={"a": "X"}).replace("X", "\ud800"), "lone surrogate @ $.payload.a"),
        (frame(payload={"a": "X"}).encode().replace(b"X", b"\xff"), "not valid UTF-8"),
        (frame(other="X").encode().replace(b"X", b"\xff"), "not valid UTF-8"),
        (frame()[:-1], "not valid JSON"),
        (frame() + "}", "not valid JSON"),
        (frame().replace("{", "{,", 2), "not valid JSON"),
    ],
)
def test_a_malformed_frame_names_its_fault_and_its_id(raw: str | bytes, problem: str) -> None:
    """The error names each fault with its path, and has the id of the request."""
    error = refusal(raw)
    assert problem in error.message
    assert error.request_id == "r1"
    assert error.code == "INVALID_REQUEST"


@pytest.mark.spec("1.0/5.1-2")
@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ("", "not valid JSON"),
        ("null", "a frame is one JSON object"),
        ("[]", "a frame is one JSON object"),
        ('"id":"r1"', "not valid JSON"),
        ("{}", "missing @ $.id"),
        (without("id"), "missing @ $.id"),
        (frame(id=""), "expected 1 to 256 characters @ $.id"),
        (frame(id=7), "expected a string, got an integer @ $.id"),
        (frame(id=None), "null @ $.id"),
        (frame(id="i" * 257), "expected 1 to 256 characters @ $.id"),
        (frame(id="\ud800"), "lone surrogate @ $.id"),
        ('{"payload":{"id":"inner"}', "not valid JSON"),
        ('{"x":"\\"id\\":\\"r1\\"",', "not valid JSON"),
        ('{"id":5,"x":', "not valid JSON"),
        ('{"id":"a\\q","x":', "not valid JSON"),
        (b"\xff\xfe\x00", "not valid UTF-8"),
    ],
)
def test_without_a_usable_id_there_is_none(raw: str | bytes, problem: str) -> None:
    """Without a readable id on the envelope the error has none, whatever the payload contains."""
    error = refusal(raw)
    assert problem in error.message
    assert error.request_id is None


def test_all_problems_are_named_at_once() -> None:
    """One error names everything that is wrong with the header."""
    error = refusal('{"id": "r1", "type": 5, "payload": null, "event_seq": "x", "job_id": 1}')
    assert error.message.split("; ") == [
        "missing @ $.arcp",
        "expected a string, got an integer @ $.type",
        "expected an object, got null @ $.payload",
        "expected a string, got an integer @ $.job_id",
        "expected an integer, got a string @ $.event_seq",
    ]


def deep(levels: int) -> str:
    """Return nested arrays."""
    return "[" * levels + "]" * levels


def test_nesting_is_counted_from_the_frame() -> None:
    """A frame of 64 levels, counting frame and payload, is read; one of 65 levels is refused."""
    raw = frame(payload={"a": "X"})
    assert decode(raw.replace('"X"', deep(62))).payload["a"]
    assert refusal(raw.replace('"X"', deep(63))).message.startswith(
        "nested too deeply @ $.payload.a"
    )
    assert decode(raw.replace('"X"', deep(63)), max_depth=65).payload["a"]


@pytest.mark.parametrize("where", ["payload", "extra", "trace_id", "session_id", "type"])
def test_endless_nesting_is_refused_anywhere(where: str) -> None:
    """A hundred thousand levels are refused, in fields that are read and in ignored ones."""
    raw = frame(**{where: "X"}).replace('"X"', deep(100_000))
    error = refusal(raw)
    assert error.message == "nested too deeply"
    assert error.request_id == "r1"


def test_of_two_ids_the_last_counts() -> None:
    """Of two equal keys the last one counts."""
    assert decode(frame().replace('"id"', '"id": "first", "id"', 1)).id == "r1"


@given(st.binary(max_size=80) | st.text(max_size=80))
def test_noise_is_only_ever_malformed(raw: bytes | str) -> None:
    """No input makes decoding fail with another error."""
    with pytest.raises(MalformedFrame):
        decode(raw)


@given(st.integers(0, 120), st.sampled_from(['"', "{", "]", ",", "\\", "\x00", "1", "null", "é"]))
def test_one_wrong_character_is_only_ever_malformed(place: int, noise: str) -> None:
    """A valid frame with an insertion is read, or refused as malformed."""
    raw = frame(session_id="sess_1", payload={"a": [1, {"b": "c"}]})
    try:
        decode(raw[:place] + noise + raw[place:])
    except MalformedFrame as error:
        assert error.message  # noqa: PT017 - either outcome is right
