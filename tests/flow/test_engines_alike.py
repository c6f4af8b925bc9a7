"""One runtime says the same on the wire, whichever engine stores what it says."""

from __future__ import annotations

import re
from typing import Final

import msgspec
import pytest

from arcp_trio import DuplicateKey, JobNotFound
from arcp_trio.testing import Peer
from arcp_trio.testing.frames import Frame
from tests.flow.observing import Scene, listing, open_scene, settled, subscribe
from tests.flow.support import read_to
from tests.stage import BOB, OPERATOR
from tests.store.engines import EACH_ENGINE, ENGINES, Engine

OF_THE_RUN: Final = re.compile(
    r"[0-9A-HJKMNP-TV-Z]{26}"  # ids
    r"|\b[0-9a-f]{32}\b"  # traces
    r"|(?P<time>\d{4}-\d\d-\d\dT[0-9:.]+Z)"
    r'|(?<="resume_token":")[^"]+'
    r'|(?<="next_cursor":")[^"]+'
)
"""What two runs of one story do not have in common."""
NODE: Final = re.compile(r',"node":"[^"]+"')
"""What a listing says of a job only if the store is one that nodes can share."""


class Story:
    """What clients have received, and what of it is the same in every run."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self._frames: list[Frame] = []
        self._names: dict[str, str] = {}

    async def client(self, token: str | None = None, **hello: Frame) -> Peer:
        """Return a client whose frames are kept."""
        more = {} if token is None else {"token": token}
        peer = await self.scene.connect()
        receive = peer.receive

        async def kept() -> Frame:
            frame = await receive()
            self._frames.append(frame)
            return frame

        peer.receive = kept  # type: ignore[method-assign]
        await peer.hello(features=tuple(self.scene.features), **more, **hello)  # type: ignore[arg-type]
        return peer

    def told(self) -> list[str]:
        """Return the frames; ids, times and tokens have names in the order of their coming."""
        texts = [NODE.sub("", msgspec.json.encode(frame).decode()) for frame in self._frames]
        return [OF_THE_RUN.sub(self._name, text) for text in texts]

    def _name(self, found: re.Match[str]) -> str:
        if found["time"]:
            return "a time"  # two of them may be equal in one run and not in another
        return self._names.setdefault(found[0], f"name {len(self._names)}")


async def tell(scene: Scene) -> list[str]:
    """Let clients do all that a store has a part in; return what they were told."""
    story = Story(scene)
    owner = await story.client()
    budget: Frame = {"cost.budget": ["USD:1.00"]}
    job = await owner.submit("teller", 1, lease_request=budget, idempotency_key="k")
    job_id = job["job_id"]
    await scene.say(job_id, 3)
    await read_to(owner, 3)
    # Another session of the principal, by history, by a number, and by the key.
    second = await story.client()
    await subscribe(second, job_id, history=True, from_event_seq=1)
    await read_to(second, 2)
    assert (await second.submit("teller", 1, lease_request=budget, idempotency_key="k"))[
        "job_id"
    ] == job_id
    await read_to(second, 5)
    with pytest.raises(DuplicateKey):
        await second.submit("teller", 2, idempotency_key="k")
    stranger = await story.client(BOB)
    with pytest.raises(JobNotFound):
        await subscribe(stranger, job_id)
    # The owner is away while its job goes on, acknowledges, and comes back.
    await owner.send("session.ack", {"last_processed_seq": 1})
    await settled(owner)
    await owner.drop()
    await scene.say(job_id, 5)
    owner = await story.client(resume=owner.resume_from())
    await scene.say(job_id, 1)
    await read_to(owner, 9)
    await read_to(second, 11)
    # Jobs of several kinds, and pages of them.
    echoed = await owner.submit("echo", {"a": [1, None]})
    await owner.until_terminal(echoed["job_id"])
    cancelled = await owner.submit("teller")
    await owner.send("job.cancel", {"job_id": cancelled["job_id"], "reason": "enough"})
    await owner.expect("job.cancelled")
    await owner.until_terminal(cancelled["job_id"])
    page = await listing(owner, limit=2)
    await listing(owner, limit=2, cursor=page["next_cursor"])
    await listing(owner, filter={"status": ["cancelled"], "agent": "teller"})
    await listing(await story.client(OPERATOR), limit=1)
    # The end, seen by all who watch; and a history of what has ended.
    await scene.end(owner, job_id)
    await second.until_terminal(job_id)
    late = await story.client()
    await subscribe(late, job_id, history=True)
    await late.until_terminal(job_id)
    await listing(late)
    return story.told()


async def told_by(engine: Engine) -> list[str]:
    """Return what clients are told by a runtime with a store of this engine."""
    with engine.make() as store:
        async with open_scene(store) as scene:
            return await tell(scene)


@pytest.mark.parametrize("engine", EACH_ENGINE[1:])
async def test_every_engine_tells_the_same_story(engine: Engine) -> None:
    """Clients receive the same frames in the same order as from a runtime in memory."""
    expected = await told_by(ENGINES[0])
    assert len(expected) > 50
    assert await told_by(engine) == expected
