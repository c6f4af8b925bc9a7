"""What makes two submissions "identical parameters" (§7.2)."""

from __future__ import annotations

import hashlib

import msgspec

from arcp_trio.wire.json import Json
from arcp_trio.wire.messages import Submit
from arcp_trio.wire.payloads import to_json


def fingerprint(submit: Submit) -> bytes:
    """Digest what the job was asked to do.

    How it was written does not matter: order of keys, whitespace, escapes, `1.0` for `1`, an
    absent field for an empty one. The idempotency key itself is not part of it.
    """
    parameters = {
        "agent": submit.agent,
        "input": _canonical(submit.input),
        "lease_request": submit.lease_request or {},
        "lease_constraints": to_json(submit.lease_constraints) or {},
        "max_runtime_sec": submit.max_runtime_sec,
    }
    return hashlib.sha256(msgspec.json.encode(parameters, order="deterministic")).digest()


def _canonical(value: Json) -> Json:
    """Bring every number into the one form that equal numbers share."""
    kind = value.__class__
    if kind is float and value.is_integer():
        return int(value)
    if kind is dict:
        return {key: _canonical(item) for key, item in value.items()}
    if kind is list:
        return [_canonical(item) for item in value]
    return value
