"""An answer counts once it is stored: for its sender, for the agent, and across a kill."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import Agents, JobContext, Json, connect
from arcp_trio.store.memos import Memo
from arcp_trio.store.writes import KeepMemo, Write
from arcp_trio.testing import open_peer
from arcp_trio.testing.peer import TEST_TOKEN
from arcp_trio.wire.features import CLIENT_FEATURES
from tests.client.support import Network
from tests.durability.stores import copy_into
from tests.durable.stage import DurableStore
from tests.questions.lives import begun, copied, history, life, waiting
from tests.questions.support import ANSWER, ANSWERED, MAY_ASK, answer, next_question
from tests.slow_stores import PausingStore
from tests.stage import make_runtime


class PausingDurableStore(PausingStore):
    """A durable store that commits nothing while it is paused."""

    durable = True


@pytest.mark.parametrize("durable", [True, False])
async def test_nothing_comes_of_an_answer_before_it_is_stored(
    autojump_clock: MockClock, *, durable: bool
) -> None:
    """While the store waits, the sender is told nothing; a durable job does not go on, either."""
    agents, went_on = Agents(), list[Json]()

    @agents.agent("asker", durable=durable)
    async def asker(job: JobContext) -> Json:
        went_on.append(await job.ask("a?"))
        return went_on[-1]

    store = PausingDurableStore()
    runtime = make_runtime(agents, store=store)
    async with runtime, open_peer(runtime) as peer:
        await peer.hello(features=tuple(CLIENT_FEATURES))
        job_id = (await peer.submit("asker", lease_request=MAY_ASK))["job_id"]
        question = await next_question(peer, job_id)
        store.pause()
        ids = {name: question[name] for name in ("job_id", "question_id")}
        request = await peer.send(ANSWER, {**ids, "answer": 1})
        with trio.move_on_after(10):
            frame = await peer.receive()
            raise AssertionError(f"not stored, and told: {frame}")
        assert went_on == ([] if durable else [1])
        store.go_on()
        await peer.answer(ANSWERED, request)
        await peer.until_terminal(job_id)
        assert went_on == [1]


class SlowMemos(DurableStore):
    """A store that takes its time to read what a job remembers."""

    async def memos(self, job_id: str) -> Sequence[Memo]:
        """Wait, and return what the job remembers."""
        await trio.sleep(5)
        return await super().memos(job_id)


async def test_an_answer_before_the_job_has_its_memory(autojump_clock: MockClock) -> None:
    """Right after a start, an answer and a listing wait until it is known what the job asks."""
    store = DurableStore()
    async with life(store) as (_, peer):
        job_id = await begun(peer, {"prompt": "a?"})
        question = await next_question(peer, job_id)
        left = copy_into(SlowMemos(), store)
    async with life(left) as (runtime, peer):
        assert await waiting(peer, job_id) == [question]
    async with life(copy_into(SlowMemos(), store)) as (runtime, peer):
        await answer(peer, question, 1)
        assert (await history(runtime, job_id))[-1] == "[1]"


class CutOff(DurableStore):
    """A store at whose commit of an answer the runtime loses its client, and then its life."""

    def __init__(self, *, stored: bool) -> None:
        super().__init__()
        self.network: Network | None = None
        self.left: DurableStore | None = None
        self.dead = trio.Event()
        self._stored = stored

    async def _commit(self, writes: list[Write]) -> None:  # type: ignore[override]
        memos = [write.memo for write in writes if isinstance(write, KeepMemo)]
        if self.left is not None or not any(b'"answer":' in memo.value for memo in memos):
            await super()._commit(writes)
            return
        if self._stored:
            # A group may end anywhere, so also before the row of the promise to the sender.
            index = next(at for at, write in enumerate(writes) if isinstance(write, KeepMemo))
            await super()._commit(writes[: index + 1])
        self.left = copied(self)
        assert self.network is not None
        self.network.up = False
        await self.network.cut()
        self.dead.set()
        await trio.sleep_forever()


@pytest.mark.parametrize("stored", [True, False])
async def test_a_kill_around_the_commit_of_an_answer(
    autojump_clock: MockClock, *, stored: bool
) -> None:
    """Whether the answer was stored or not, the client's call succeeds with the next runtime.

    The client sends the answer again, as it was told nothing. If it had been stored, the runtime
    says that there is no such question, and the job's events say whose answer it has.
    """
    store = CutOff(stored=stored)
    async with trio.open_nursery() as nursery:

        async def first_life(task_status: trio.TaskStatus[Network]) -> None:
            async with life(store) as (runtime, _):
                task_status.started(Network(runtime))
                await trio.sleep_forever()

        network: Network = await nursery.start(first_life)
        store.network = network
        async with connect(network.open, token=TEST_TOKEN) as client:
            job = await client.submit("curious", [{"prompt": "a?"}], lease=MAY_ASK)
            question = await anext(job.questions())
            nursery.start_soon(question.answer, "yes")
            await store.dead.wait()
            assert store.left is not None
            async with life(store.left) as (runtime, _):
                network.runtime, network.up = runtime, True
                assert await job.result() == ["yes"]
                bodies = [event.body async for event in job.events() if event.kind == "tool_result"]
                assert [body["result"]["answer"] for body in bodies] == ["yes"]
                await trio.sleep(10)  # the call of `answer` has returned, or raised
                await client.close()
        nursery.cancel_scope.cancel()
