"""A store that cannot be written: nothing unstored is sent, and nothing is lost."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import InternalError, MemoryStore
from arcp_trio.store.errors import DiskFull, StoreError
from arcp_trio.store.queue import QUEUE_WRITES
from arcp_trio.testing import open_peers
from arcp_trio.transport import TransportClosed
from tests.durability.support import FailingStore, agents
from tests.inside import TROUBLE_NOTICE
from tests.stage import make_runtime

TROUBLE = "store in trouble"


@pytest.mark.logs_error(TROUBLE)
async def test_the_affected_session_is_told_and_misses_nothing(autojump_clock: MockClock) -> None:
    """The connection of a waiting session is closed with a reason; a resume misses no event."""
    store = FailingStore()
    runtime = make_runtime(agents, store=store)
    async with runtime, open_peers(runtime) as peers:
        peer = await peers.connect()
        await peer.hello()
        accepted = await peer.submit("ticker", {"n": 10})
        await peer.expect("job.event", event_seq=3)
        store.broken = True
        error = await peer.expect("session.error")
        assert error["payload"]["code"] == "INTERNAL_ERROR"
        assert error["payload"]["retryable"] is True
        with pytest.raises(TransportClosed) as closed:
            await peer.receive()
        assert closed.value.code == 1011
        assert peers.recorder.highest(peer.session_id or "") == 3

        await trio.sleep(30)
        store.broken = False
        await trio.sleep(5)
        resume = peer.resume_from()
        again = await peers.connect()
        await again.hello(resume=resume)
        terminal = await again.until_terminal(accepted["job_id"])
        assert terminal["event_seq"] == 11
        messages = [
            event["payload"]["body"]["message"]
            for event in peers.recorder.events(accepted["job_id"])
        ]
        assert messages == [f"tick {n}" for n in range(10)]


@pytest.mark.logs_error(TROUBLE)
async def test_a_job_waits_at_its_next_emit_and_goes_on_by_itself(
    autojump_clock: MockClock,
) -> None:
    """A job is delayed by as much as the trouble lasts, and goes on by itself."""
    store = FailingStore()
    runtime = make_runtime(agents, store=store)
    async with runtime, open_peers(runtime) as peers:
        peer = await peers.connect()
        await peer.hello()
        accepted = await peer.submit("ticker", {"n": 10})
        await peer.expect("job.event", event_seq=3)
        await peer.drop()
        began = trio.current_time()
        store.broken = True
        await trio.sleep(60)
        store.broken = False
        await trio.sleep(5)
        again = await peers.connect()
        await again.hello(resume=peer.resume_from())
        await again.until_terminal(accepted["job_id"])
        assert 60 + 6 <= trio.current_time() - began <= 60 + 6 + 5


@pytest.mark.logs_error(TROUBLE)
@pytest.mark.spec("12-7")
async def test_new_work_is_refused_and_an_idle_session_lives_on(
    autojump_clock: MockClock,
) -> None:
    """A submit and a hello get a retryable INTERNAL_ERROR; later both succeed."""
    store = FailingStore()
    runtime = make_runtime(agents, store=store)
    async with runtime, open_peers(runtime) as peers:
        idle, busy = await peers.connect(), await peers.connect()
        await idle.hello()
        await busy.hello()
        await busy.submit("ticker", {"n": 3})
        store.broken = True
        await busy.expect("session.error")
        request = await idle.send("job.submit", {"agent": "ticker", "input": {"n": 1}})
        refusal = await idle.expect("session.error")
        assert refusal["payload"]["request_id"] == request
        assert refusal["payload"]["code"] == "INTERNAL_ERROR"
        with pytest.raises(InternalError):
            await (await peers.connect()).hello()
        store.broken = False
        await trio.sleep(5)
        accepted = await idle.submit("ticker", {"n": 1})
        await idle.until_terminal(accepted["job_id"])
        await (await peers.connect()).hello()


@pytest.mark.logs_error(TROUBLE)
async def test_the_hello_that_finds_the_trouble_is_told_of_it(autojump_clock: MockClock) -> None:
    """A client learns at once that its session is the first thing that cannot be stored."""
    store = FailingStore()
    runtime = make_runtime(agents, store=store)
    async with runtime, open_peers(runtime) as peers:
        known = await peers.connect()
        await known.hello()
        await known.drop()
        for resume in (None, known.resume_from()):
            peer = await peers.connect()
            store.broken = True
            with pytest.raises(InternalError, match="store cannot be used"), trio.fail_after(1):
                await peer.hello(resume=resume)
            store.broken = False
            await trio.sleep(5)
        await (await peers.connect()).hello(resume=known.resume_from())


@pytest.mark.logs_error(TROUBLE)
async def test_a_new_session_on_a_full_disk_is_stored_later(autojump_clock: MockClock) -> None:
    """The hello that finds the disk full opens a session, which can be resumed afterwards."""
    store = FailingStore()
    store.error = DiskFull
    runtime = make_runtime(agents, store=store)
    async with runtime, open_peers(runtime) as peers:
        fresh = await peers.connect()
        store.broken = True
        with trio.fail_after(1):
            await fresh.hello()
        with pytest.raises(InternalError, match="the disk is full"):
            await fresh.submit("ticker", {"n": 1})
        await fresh.drop()
        store.broken = False
        await trio.sleep(5)
        await (await peers.connect()).hello(resume=fresh.resume_from())


@pytest.mark.logs_error(TROUBLE)
async def test_sessions_that_are_not_stored_are_bounded(autojump_clock: MockClock) -> None:
    """On a full disk, as many sessions open as the store's queue takes; then they are refused."""
    store = FailingStore()
    store.error = DiskFull
    runtime = make_runtime(agents, store=store)
    async with runtime, open_peers(runtime) as peers:
        store.broken = True
        for _ in range(QUEUE_WRITES):
            peer = await peers.connect()
            await peer.hello()
            await peer.drop()
        with pytest.raises(InternalError, match="store cannot be used"):
            await (await peers.connect()).hello()
        store.broken = False
        await trio.sleep(5)
        await (await peers.connect()).hello()


async def test_what_cannot_be_looked_up_is_the_stores_fault(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A submit whose key cannot be looked up, and any request, is told so, and takes no effect."""
    store = MemoryStore()
    runtime = make_runtime(agents, store=store)
    async with runtime, open_peers(runtime) as peers:
        peer = await peers.connect()
        await peer.hello()

        async def fail(*_: object) -> None:
            await trio.lowlevel.checkpoint()
            raise StoreError("input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(store, "key", fail)
            patch.setattr(store, "owner", fail)
            with pytest.raises(InternalError, match="store cannot be used") as refused:
                await peer.submit("ticker", {"n": 1}, idempotency_key="k")
            asked = await peer.send("job.subscribe", {"job_id": "job_x"})
            with pytest.raises(InternalError, match="store cannot be used"):
                await peer.answer("job.subscribed", asked)
        assert refused.value.retryable
        assert not any(record.exc_info for record in caplog.records)
        assert not store._tables.journals
        accepted = await peer.submit("ticker", {"n": 1}, idempotency_key="k")
        await peer.until_terminal(accepted["job_id"])
        assert list(store._tables.journals) == [accepted["job_id"]]


@pytest.mark.logs_error(TROUBLE)
async def test_a_runtime_can_be_left_while_its_store_is_in_trouble(
    autojump_clock: MockClock,
) -> None:
    """Leaving a runtime waits for a store in trouble within a bound."""
    store = FailingStore()
    runtime = make_runtime(agents, store=store)
    with trio.fail_after(20):
        async with runtime, open_peers(runtime) as peers:
            peer = await peers.connect()
            await peer.hello()
            await peer.submit("ticker", {"n": 100})
            await peer.expect("job.event")
            store.broken = True
            await peer.expect("session.error")


@pytest.mark.logs_error(TROUBLE)
@pytest.mark.logs_error("background work failed")
async def test_a_fault_in_the_background_ends_nothing(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A background task that fails is logged and run again; the runtime goes on."""
    store = FailingStore()
    runtime = make_runtime(agents, store=store)
    async with runtime, open_peers(runtime) as peers:
        peer = await peers.connect()
        await peer.hello()

        def fail(_: object) -> None:
            raise RuntimeError("a fault")

        with monkeypatch.context() as patch:
            patch.setattr(*TROUBLE_NOTICE, fail)
            store.broken = True
            await trio.sleep(6)
        store.broken = False
        await trio.sleep(5)
        accepted = await peer.submit("ticker", {"n": 1})
        await peer.until_terminal(accepted["job_id"])
