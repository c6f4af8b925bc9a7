"""Streamed results: an agent that streams what its test says, and a strict reader of chunks."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager

from arcp_trio import JobContext, Limits, MemoryStore, Runtime
from arcp_trio.testing import Peer, PeerFactory
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.features import ALL_FEATURES
from arcp_trio.wire.json import Json
from tests import stage

UNABLE = tuple(feature for feature in ALL_FEATURES if feature != "result_chunk")
"""The features of a client that cannot take chunks."""

Act = Callable[[JobContext], Awaitable[Json]]


class Stage(stage.Stage[MemoryStore]):
    """A stage whose agent `act` does what the test says, and whose agent `boss` delegates to it."""

    def __init__(self, runtime: Runtime, peers: PeerFactory, store: MemoryStore) -> None:
        super().__init__(runtime, peers, store)
        self.act: Act

        @runtime.agent("act")
        async def act(job: JobContext) -> Json:
            """Do what the test says."""
            return await self.act(job)

        @runtime.agent("boss")
        async def boss(job: JobContext) -> Json:
            """Delegate to `act`, and return the type and the text of the child's result."""
            child = await job.delegate("act")
            result = await child.result()
            return {"type": type(result).__name__, "result": as_text(result)}

    async def play(self, act: Act, *, peer: Peer | None = None) -> tuple[list[Frame], Frame]:
        """Run a job that does this; return its chunks and its terminal."""
        self.act = act
        peer = peer or await self.welcomed()
        job_id = (await peer.submit("act"))["job_id"]
        end = await peer.until_terminal(job_id)
        return chunks(peer, job_id), end


def open_stage(
    *, store: MemoryStore | None = None, **limits: int
) -> AbstractAsyncContextManager[Stage]:
    """Run a stage with these limits for as long as the block lasts."""
    return Stage.open(store or MemoryStore(), limits=Limits(**limits))


def as_text(value: str | bytes) -> str:
    """Return a result as text, so that an agent can return it."""
    return value if isinstance(value, str) else value.hex()


def chunks(peer: Peer, job_id: str) -> list[Frame]:
    """Return the chunks of a job that this peer's session has seen, in order."""
    events = peer.recorder.events(job_id, session_id=peer.session_id)
    return [e["payload"]["body"] for e in events if e["payload"]["kind"] == "result_chunk"]


def joined(found: Sequence[Frame], end: Frame) -> bytes:
    """Check the chunks and the terminal against each other; return the joined bytes."""
    assert [chunk["chunk_seq"] for chunk in found] == list(range(len(found)))
    assert [chunk["more"] for chunk in found] == [True] * (len(found) - 1) + [False]
    whole = b"".join(map(decoded, found))
    payload = dict(end["payload"])
    assert payload.pop("completed_at")
    assert {chunk["result_id"] for chunk in found} == {payload["result_id"]}
    assert payload == {
        "final_status": "success",
        "result_id": payload["result_id"],
        "result_size": len(whole),
    }
    return whole


def decoded(chunk: Frame) -> bytes:
    """Return the bytes of a chunk."""
    if chunk["encoding"] == "utf8":
        return str(chunk["data"]).encode()
    assert chunk["encoding"] == "base64"
    data = base64.b64decode(chunk["data"], validate=True)
    assert base64.b64encode(data).decode() == chunk["data"]
    return data


def failure(end: Frame) -> tuple[str, str]:
    """Return the code and the message of a job that failed."""
    assert end["type"] == "job.error"
    assert end["payload"]["final_status"] == "error"
    return end["payload"]["code"], end["payload"]["message"]
