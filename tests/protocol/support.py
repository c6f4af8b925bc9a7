"""What the tests of the protocol share: frames of any content, and their answers."""

from __future__ import annotations

import json

from arcp_trio.testing import Peer
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.json import Json, JsonObject


def text_of(kind: str, payload: Json = None, /, **envelope: Json) -> str:
    """Return the text of a frame, valid or not: `envelope` adds fields or replaces them."""
    frame = {"arcp": "1.1", "id": "x1", "type": kind, "payload": {} if payload is None else payload}
    return json.dumps(frame | envelope)


VALID: list[tuple[str, JsonObject]] = [
    ("job.submit", {"agent": "echo", "input": {"a": [1, 2.5, "x", None, True]}}),
    ("job.submit", {"agent": "echo@1.0.0", "idempotency_key": "key", "max_runtime_sec": 60}),
    ("job.submit", {"agent": "sleeper", "lease_request": {"fs.read": ["/ws/**"]}}),
    ("job.submit", {"agent": "echo", "lease_constraints": {"expires_at": "2999-01-01T00:00:00Z"}}),
    ("job.cancel", {"job_id": "job_01ARZ3NDEKTSV4RRFFQ69G5FAV", "reason": "enough"}),
    ("job.subscribe", {"job_id": "job_x", "history": True, "from_event_seq": 3}),
    ("job.unsubscribe", {"job_id": "job_x"}),
    ("session.list_jobs", {"filter": {"status": ["running"], "agent": "echo"}, "limit": 5}),
    ("session.ping", {"nonce": "n", "sent_at": "2026-01-01T00:00:00Z"}),
    ("session.pong", {"ping_nonce": "n", "received_at": "2026-01-01T00:00:00+00:00"}),
    ("session.ack", {"last_processed_seq": 3}),
    ("session.hello", {"client": {"name": "c"}, "auth": {"token": "t"}, "capabilities": {}}),
    ("session.resume", {"resume_token": "rt_x", "last_event_seq": 0, "session_id": "sess_x"}),
    ("x-vendor.acme.note", {"text": "hello"}),
]
"""All that a client sends, except what ends its connection."""


async def answers(peer: Peer, count: int) -> list[Frame]:
    """Receive up to this many answers to submits, and return them in order."""
    found: list[Frame] = []
    while len(found) < count:
        frame = await peer.receive()
        if frame["type"] in {"session.error", "job.accepted"}:
            found.append(frame)
        else:
            peer.seen.append(frame)
    return found


async def refused(peer: Peer, kind: str, payload: JsonObject) -> JsonObject:
    """Send a request that must be refused, and return the payload of the refusal."""
    request = await peer.send(kind, payload)
    error = await peer.expect("session.error", request_id=request)
    body: JsonObject = error["payload"]
    return body
