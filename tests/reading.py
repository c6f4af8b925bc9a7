"""How tests receive frames, and what they pick from them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from arcp_trio.testing import Peer
from arcp_trio.testing.frames import TERMINAL, Frame
from arcp_trio.transport import TransportClosed

# -- receiving


async def up_to(peer: Peer, seq: int) -> list[Frame]:
    """Receive up to the frame with this number, and return all of them."""
    frames = [await peer.receive()]
    while frames[-1].get("event_seq") != seq:
        frames.append(await peer.receive())
    return frames


async def until_end(peer: Peer, job_id: str) -> list[Frame]:
    """Receive up to a job's terminal, and return all of it."""
    frames = [await peer.receive()]
    while frames[-1].get("job_id") != job_id or frames[-1]["type"] not in TERMINAL:
        frames.append(await peer.receive())
    return frames


async def next_unrecorded(peer: Peer, *kinds: str) -> Frame:
    """Receive up to a frame of one of these types, past the recorder, which keeps what it sees."""
    while True:
        frame: Frame = msgspec.json.decode(await peer.transport.receive())
        if frame["type"] in kinds:
            return frame


async def close_code(peer: Peer) -> int | None:
    """Receive until the socket is closed, into `peer.seen`, and return the close code."""
    try:
        while True:
            peer.seen.append(await peer.receive())
    except TransportClosed as closed:
        return closed.code


async def refusal(peer: Peer) -> Frame:
    """Receive the one frame before a close with 1008; return its payload without `request_id`."""
    frame = await peer.receive()
    assert frame["type"] == "session.error", frame
    assert await close_code(peer) == 1008
    return {name: value for name, value in frame["payload"].items() if name != "request_id"}


# -- picking


def numbers(frames: Iterable[Frame]) -> list[int]:
    """Return the numbers of those frames that have one."""
    return [frame["event_seq"] for frame in frames if "event_seq" in frame]


def lines(frames: Iterable[Frame]) -> list[str]:
    """Return what the events among these frames have logged."""
    return [frame["payload"]["body"]["message"] for frame in frames if frame["type"] == "job.event"]
