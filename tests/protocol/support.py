"""What the tests of the protocol share: a runtime with a few agents, and ways to say anything."""

from __future__ import annotations

import json

from arcp_trio.testing import Peer
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.json import Json, JsonObject


def text_of(kind: str, payload: Json = None, /, **envelope: Json) -> str:
    """The text of a frame, right or wrong: `envelope` adds fields or replaces ours."""
    frame = {"arcp": "1.1", "id": "x1", "type": kind, "payload": {} if payload is None else payload}
    return json.dumps(frame | envelope)


async def answers(peer: Peer, count: int) -> list[Frame]:
    """The next frames that answer a request, in the order they come."""
    found: list[Frame] = []
    while len(found) < count:
        frame = await peer.receive()
        if frame["type"] in {"session.error", "job.accepted"}:
            found.append(frame)
        else:
            peer.seen.append(frame)
    return found


async def refused(peer: Peer, kind: str, payload: JsonObject) -> JsonObject:
    """Send a request that must fail; the payload of the answer."""
    request = await peer.send(kind, payload)
    error = await peer.expect("session.error", request_id=request)
    body: JsonObject = error["payload"]
    return body
