"""Events are decoded by a way of their own, which agrees with the one for all frames."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arcp_trio.client.events import decode_event, read_event
from arcp_trio.wire import envelope

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
FRAMES = st.fixed_dictionaries(
    {
        "arcp": st.sampled_from(["1.1", "1"]),
        "session_id": st.just("sess_1"),
        "event_seq": st.integers(1, 2**63 - 1),
        "type": st.sampled_from(["job.event", "job.result"]),
        "id": st.just("an-id"),
        "job_id": st.text(max_size=40) | st.none(),
        "payload": st.fixed_dictionaries(
            {},
            optional={
                "kind": st.text() | VALUES,
                "ts": st.text() | VALUES,
                "body": VALUES,
                "type": st.just("job.event"),
            },
        ),
    }
)


@given(FRAMES)
def test_both_ways_agree(frame: dict[str, object]) -> None:
    """What is decoded as an event is the event in the frame's envelope."""
    text = msgspec.json.encode(frame).decode()
    event = decode_event(text)
    if event is not None:
        decoded = envelope.decode(text)
        assert decoded.type == "job.event"
        assert read_event(decoded) == event


def event_frame(**fields: object) -> str:
    """Return the text of an ordinary event, with other fields instead."""
    payload = {"kind": "log", "ts": "2026-01-01T00:00:00Z", "body": {"message": "hello"}}
    frame = {"arcp": "1.1", "event_seq": 7, "type": "job.event", "id": "e", "job_id": "job_1"}
    return msgspec.json.encode({**frame, "payload": payload, **fields}).decode()


def test_an_ordinary_event_is_decoded() -> None:
    """An event of any kind takes the short way."""
    event = decode_event(event_frame())
    assert event is not None
    assert (event.seq, event.job_id, event.kind, event.body) == (
        7,
        "job_1",
        "log",
        {"message": "hello"},
    )


@pytest.mark.parametrize(
    "frame",
    [
        event_frame(type="job.result"),
        event_frame(event_seq=None),
        event_frame(payload={"kind": 5}),
        event_frame(arcp="3"),
        event_frame()[:-1],
        event_frame(payload="\ud800".encode(errors="surrogatepass").decode(errors="replace")),
    ],
)
def test_everything_else_is_looked_at_closer(frame: str) -> None:
    """What is not an ordinary event is left to the way that names what is wrong."""
    assert decode_event(frame) is None
