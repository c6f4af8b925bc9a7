"""The comparison of submissions under one idempotency key: "identical parameters" (§7.2)."""

from __future__ import annotations

import hashlib

import msgspec

from arcp_trio.wire.json import JsonValue
from arcp_trio.wire.messages import Submit
from arcp_trio.wire.payloads import to_json


def fingerprint(submit: Submit) -> bytes:
    """Return a digest of the parameters of a submission, without its idempotency key.

    Spelling does not matter: the order of keys, whitespace, escapes, `1.0` for `1`, an absent field
    for an empty one.
    """
    parameters = {
        "agent": submit.agent,
        "input": _canonical(submit.input),
        "lease_request": submit.lease_request or {},
        "lease_constraints": to_json(submit.lease_constraints) or {},
        "max_runtime_sec": submit.max_runtime_sec,
    }
    return hashlib.sha256(msgspec.json.encode(parameters, order="deterministic")).digest()


def _canonical(value: JsonValue) -> JsonValue:
    """Return the value with one form for numbers that are equal."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _canonical(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    return value
