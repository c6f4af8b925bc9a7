"""Payloads read as a runtime and as a client read them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from arcp_trio.wire.envelope import decode
from arcp_trio.wire.errors import InvalidRequest
from arcp_trio.wire.messages import TO_CLIENT, decode_payload, parse


def envelope(type: str, payload: Any, **fields: Any) -> Any:  # noqa: A002
    """Return the envelope of a frame that came over the wire."""
    return decode(
        json.dumps({"arcp": "1.1", "id": "r1", "type": type, "payload": payload, **fields})
    )


def read(type: str, payload: Any, **fields: Any) -> Any:  # noqa: A002
    """Read a message that a client sent."""
    return parse(envelope(type, payload, **fields))


def receive(type: str, payload: Any, **fields: Any) -> Any:  # noqa: A002
    """Read a message that a runtime sent."""
    return decode_payload(envelope(type, payload, **fields), TO_CLIENT)


def refusal(type: str, payload: Any, **fields: Any) -> str:  # noqa: A002
    """Return what the refusal of a client's message says."""
    with pytest.raises(InvalidRequest) as caught:
        read(type, payload, **fields)
    assert caught.value.code == "INVALID_REQUEST"
    caught.value.message.encode()
    return caught.value.message


HELLO = {"client": {"name": "c"}}
SUBMIT = {"agent": "a"}
