"""Fingerprints of submissions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arcp_trio.wire.envelope import decode
from arcp_trio.wire.fingerprint import fingerprint
from arcp_trio.wire.json import JsonObject
from arcp_trio.wire.messages import Submit, parse


def digest(payload: dict[str, Any] | str) -> bytes:
    """Return the fingerprint of a submit's payload, as it comes over the wire."""
    text = payload if isinstance(payload, str) else json.dumps(payload)
    message = parse(decode(f'{{"arcp":"1.1","id":"r","type":"job.submit","payload":{text}}}'))
    assert isinstance(message, Submit)
    return fingerprint(message)


OLD_DIGEST = "23ce041cc0f2f40b2e8a187c23812b8b9a2072f9b58359c5002d8606aa817dc3"
"""What version 0.1.0 stores for the following submit."""
FULL = {
    "agent": "a@1",
    "input": {"x": 1, "y": [1, {"z": "ü"}]},
    "lease_request": {"fs.read": ["/a/**"], "fs.write": ["/b"]},
    "lease_constraints": {"expires_at": "2030-01-01T00:00:00Z"},
    "max_runtime_sec": 60,
}


@pytest.mark.spec("7.2-1")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"agent":"a","input":{"x":1,"y":2}}', '{ "input": {"y":2, "x":1},\n "agent": "a" }'),
        ('{"agent":"a","input":1.0}', '{"agent":"a","input":1}'),
        ('{"agent":"a","input":[100, 0]}', '{"agent":"a","input":[1e2, -0.0]}'),
        ('{"agent":"a","input":0.10}', '{"agent":"a","input":1e-1}'),
        ('{"agent":"a","input":"ü😀"}', r'{"agent":"\u0061","input":"\u00fc\ud83d\ude00"}'),
        ('{"agent":"a","input":null}', '{"agent":"a"}'),
        ('{"agent":"a","lease_request":{}}', '{"agent":"a","lease_request":null}'),
        ('{"agent":"a","lease_constraints":{}}', '{"agent":"a"}'),
        ('{"agent":"a","lease_constraints":{"expires_at":null}}', '{"agent":"a"}'),
        (
            '{"agent":"a","lease_constraints":{"expires_at":"2030-01-01T00:00:00Z"}}',
            '{"agent":"a"}',
        ),
        ('{"agent":"a","unknown":1,"parent_job_id":"x"}', '{"agent":"a"}'),
        ('{"agent":"a","idempotency_key":"k"}', '{"agent":"a"}'),
    ],
)
def test_the_same_request_in_other_words(one: str, other: str) -> None:
    """Spelling, and fields that are not parameters, make no difference."""
    assert digest(one) == digest(other)


@pytest.mark.spec("7.2-2", "1.0/7.2-4")
@pytest.mark.parametrize(
    "change",
    [
        {"agent": "a@2"},
        {"input": {"x": 2, "y": [1, {"z": "ü"}]}},
        {"input": {"x": "1", "y": [1, {"z": "ü"}]}},
        {"input": {"x": True, "y": [1, {"z": "ü"}]}},
        {"input": {"x": 1, "y": [{"z": "ü"}, 1]}},
        {"input": None},
        {"lease_request": {"fs.read": ["/a/**"]}},
        {"lease_request": {"fs.read": ["/a/**"], "fs.write": ["/c"]}},
        {"max_runtime_sec": 61},
        {"max_runtime_sec": None},
    ],
)
def test_one_field_makes_another_request(change: dict[str, Any]) -> None:
    """Requests that differ in one parameter have different fingerprints."""
    assert digest(FULL) != digest({**FULL, **change})


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 9)))
def test_the_order_of_keys_never_matters(fields: JsonObject) -> None:
    """Objects with their keys in another order have the same fingerprint."""
    turned = dict(reversed(fields.items()))
    assert fingerprint(Submit(agent="a", input=fields)) == fingerprint(
        Submit(agent="a", input=turned)
    )


def test_the_digest_of_an_older_version() -> None:
    """With the expiry of the job, the digest is the one that an older version has stored."""
    fields: dict[str, Any] = {**FULL, "lease_constraints": {"expires_at": "2031-01-01T00:00:00Z"}}
    frame = {"arcp": "1.1", "id": "r", "type": "job.submit", "payload": fields}
    message = parse(decode(json.dumps(frame)))
    assert isinstance(message, Submit)
    old = fingerprint(message, expires_at="2030-01-01T00:00:00Z")
    assert old.hex() == OLD_DIGEST
    assert old != fingerprint(message)
