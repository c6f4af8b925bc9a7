"""The comparison of submissions under one idempotency key: "identical parameters" (§7.2)."""

from __future__ import annotations

import hashlib

import msgspec

from arcp_trio.wire.json import JsonValue
from arcp_trio.wire.messages import Submit


def fingerprint(submit: Submit, *, expires_at: str | None = None) -> bytes:
    """Return a digest of the parameters of a submission, without its key and its expiry.

    Spelling does not matter: the order of keys, whitespace, escapes, `1.0` for `1`, an absent field
    for an empty one. The expiry of a lease is not a parameter: a client that says it as a duration
    gives another time when it submits again.

    Args:
        submit: the submission.
        expires_at: the expiry of the job that it is compared with, for a digest that an older
            version has stored: there the expiry was a parameter.
    """
    parameters: dict[str, object] = {
        "agent": submit.agent,
        "input": _decode(submit.input_text.text) if submit.is_large else _canonical(submit.input),
        "lease_request": submit.lease_request or {},
        "lease_constraints": {} if expires_at is None else {"expires_at": expires_at},
        "max_runtime_sec": submit.max_runtime_sec,
    }
    constraints = submit.lease_constraints
    if constraints is not None and constraints.sandbox is not None:
        parameters["sandbox"] = constraints.sandbox
    return hashlib.sha256(msgspec.json.encode(parameters, order="deterministic")).digest()


def _number(digits: str) -> int | float:
    number = float(digits)
    return int(number) if number.is_integer() else number


_decode = msgspec.json.Decoder(float_hook=_number).decode
"""Reads a text as `_canonical` would have its value; a large one in a part of the time."""


def _canonical(value: JsonValue) -> JsonValue:
    """Return the value with one form for numbers that are equal."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _canonical(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    return value
