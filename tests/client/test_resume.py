"""Lost connections: resuming, gaps, heartbeats, acknowledgements, and sessions that are lost."""

from __future__ import annotations

import itertools

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import (
    ConnectionLost,
    InvalidRequest,
    ProtocolError,
    ResumeWindowExpired,
    Unauthenticated,
    connect,
)
from arcp_trio.client.dialing import Dialer, dialer
from arcp_trio.testing.frames import Frame
from arcp_trio.transport.close_codes import CloseCode
from tests.client.support import TOKEN, Network, Wire, real_runtime, scripted


@pytest.mark.spec("6.3-2", "7.7-2", "8.3-3")
async def test_a_gap_is_resumed_from_what_is_complete(autojump_clock: MockClock) -> None:
    """A frame after a gap is not handed on, and the session is resumed before it."""

    async def first(wire: Wire) -> None:
        await wire.welcome()
        await wire.accept("job_1")
        await wire.log(1, "job_1", "one")
        await wire.log(3, "job_1", "three")
        await wire.receive("nothing, ever")

    async def second(wire: Wire) -> None:
        hellos.append(await wire.welcome(resume_token="rt_another"))
        await wire.log(2, "job_1", "two")
        await wire.log(2, "job_1", "two")
        await wire.log(3, "job_1", "three")
        await wire.log(1, "job_1", "one")
        await wire.result(4, "job_1", "done")
        await wire.end()

    hellos: list[Frame] = []
    async with (
        scripted(first, second, token="rt_first") as runtime,
        connect(runtime.open, token=TOKEN) as client,
    ):
        job = await client.submit("echo")
        assert [event.body["message"] async for event in job.events()] == ["one", "two", "three"]
        assert await job.result() == "done"
        flat = {"resume_token": "rt_first", "last_event_seq": 1}
        assert hellos[0]["payload"]["resume"] == flat | {"session_id": client.session_id}
        assert flat.items() <= hellos[0]["payload"].items()


async def test_a_gap_that_is_not_filled_is_the_end(autojump_clock: MockClock) -> None:
    """A gap that several resumes do not fill ends the session."""

    async def first(wire: Wire) -> None:
        await wire.welcome()
        await wire.accept("job_1")
        await wire.log(2, "job_1", "two")
        await wire.receive("nothing, ever")

    async def again(wire: Wire) -> None:
        await wire.welcome()
        await wire.log(2, "job_1", "two")
        await wire.receive("nothing, ever")

    async with scripted(first, again) as runtime:
        with pytest.raises(ProtocolError, match="event_seq 2 came where 1 was due"):
            async with connect(runtime.open, token=TOKEN) as client:
                await (await client.submit("echo")).result()
        assert len(runtime.wires) == 3


async def _answer(wire: Wire, frame: Frame) -> None:
    reply = {"request_id": frame["id"]}
    match frame["type"]:
        case "job.submit":
            await wire.accept("job_2", frame)
            await wire.accept("job_2", frame)
        case "job.cancel":
            await wire.send("job.cancelled", {"job_id": "job_1"}, job_id="job_1")
        case "session.list_jobs":
            await wire.send("session.jobs", reply | {"jobs": [], "next_cursor": None})
        case _:
            job = {"job_id": "job_3", "current_status": "running", "agent": "a@1"}
            await wire.send("job.subscribed", reply | job, job_id="job_3")


async def test_calls_survive(autojump_clock: MockClock) -> None:
    """A call of each kind that is pending at a loss is sent again, and answered."""

    async def first(wire: Wire) -> None:
        await wire.welcome()
        await wire.accept("job_1")
        asked.extend([await wire.receive() for _ in range(4)])

    async def second(wire: Wire) -> None:
        await wire.welcome()
        again = [await wire.receive() for _ in range(4)]
        assert [frame["type"] for frame in again] == [frame["type"] for frame in asked]
        for frame, before in zip(again, asked, strict=True):
            assert frame["payload"] == before["payload"]
            assert frame["id"] != before["id"]
        for frame in again:
            await _answer(wire, frame)
        await wire.end()

    asked: list[Frame] = []
    answers: list[str] = []

    async def submit() -> None:
        answers.append((await client.submit("echo")).id)

    async def cancel() -> None:
        await job.cancel()
        answers.append("cancelled")

    async def listing() -> None:
        answers.extend([info.id async for info in client.jobs()] or ["none"])

    async def subscribe() -> None:
        answers.append((await client.subscribe("job_3")).id)

    async with scripted(first, second) as runtime, connect(runtime.open, token=TOKEN) as client:
        job = await client.submit("echo")
        async with trio.open_nursery() as nursery:
            for call in (submit, cancel, listing, subscribe):
                nursery.start_soon(call)
    assert sorted(answers) == ["cancelled", "job_2", "job_3", "none"]


async def test_every_pending_call_ends_with_the_real_cause(autojump_clock: MockClock) -> None:
    """A pending call of each kind raises at once when the session is lost."""

    async def script(wire: Wire) -> None:
        await wire.welcome()
        await wire.accept("job_1")
        for _ in range(4):
            await wire.receive()
        await wire.transport.close(1011, "the disk is full")

    raised: list[str] = []

    async def expect(call: object) -> None:
        with pytest.raises(ConnectionLost) as lost:
            await call  # type: ignore[misc]
        raised.append(str(lost.value))

    async with scripted(script) as runtime:
        stream = await runtime.open()  # an open stream cannot be opened again
        async with connect(stream, token=TOKEN) as client:
            job = await client.submit("echo")
            before = trio.current_time()
            async with trio.open_nursery() as nursery:
                for call in (
                    client.submit("echo"),
                    client.subscribe("job_2"),
                    anext(client.jobs()),
                    job.cancel(),
                    job.result(),
                    anext(job.events()),
                    client.wait_closed(),
                ):
                    nursery.start_soon(expect, call)
            assert trio.current_time() - before < 1
            assert not client.connected
            with pytest.raises(ConnectionLost):
                await client.submit("echo")
    assert len(raised) == 7
    assert all("the disk is full" in words for words in raised)


async def test_a_resume_window_that_is_over(autojump_clock: MockClock) -> None:
    """A session lost for too long raises what is known of its jobs, which a key leads back to."""
    async with real_runtime(resume_window_seconds=5) as runtime:
        network = Network(runtime)
        async with connect(network.open, token=TOKEN) as client:
            job = await client.submit("stuck", idempotency_key="mine")
            assert (await anext(job.events())).seq == 1
            network.up = False
            await network.cut()
            with pytest.raises(ResumeWindowExpired) as expired:
                await job.result()
            (known,) = expired.value.details["jobs"]
            assert known == {
                "job_id": job.id,
                "last_event_seq": 1,
                "agent": "stuck@1.0.0",
                "idempotency_key": "mine",
            }
            with pytest.raises(ResumeWindowExpired):
                await client.submit("echo")
        network.up = True
        async with connect(network.open, token=TOKEN) as client:
            # The key leads back to the job, and to its events from the first one on.
            again = await client.submit("stuck", idempotency_key="mine")
            assert again.id == job.id
            assert (await anext(again.events())).kind == "status"


async def test_a_refused_resume_is_the_end(autojump_clock: MockClock) -> None:
    """A resume that the runtime refuses ends the session at once."""
    async with real_runtime(resume_window_seconds=5) as runtime:
        network = Network(runtime)
        async with connect(network.open, token=TOKEN, reconnect_seconds=100) as client:
            job = await client.submit("stuck")
            network.up = False
            await network.cut()
            await trio.sleep(20)
            network.up = True
            with pytest.raises(ResumeWindowExpired):
                await job.result()
        assert 20 <= trio.current_time() <= 40


async def test_a_session_that_is_behind_what_is_kept(autojump_clock: MockClock) -> None:
    """An error that events are gone ends the session for every waiting call, without a resume."""

    async def script(wire: Wire) -> None:
        await wire.welcome()
        await wire.accept("job_1")
        await wire.accept("job_2")
        gone = {"code": "RESUME_WINDOW_EXPIRED", "message": "events are gone", "job_id": "job_1"}
        await wire.send("session.error", gone)
        await wire.transport.close(1008, "events are gone")

    async with scripted(script) as runtime, connect(runtime.open, token=TOKEN) as client:
        jobs = [await client.submit("echo") for _ in range(2)]
        for job in jobs:
            with pytest.raises(ResumeWindowExpired, match="events are gone"):
                await job.result()
        assert len(runtime.wires) == 1


async def test_another_session_in_the_answer_is_no_resume(autojump_clock: MockClock) -> None:
    """A welcome to another session than the resumed one ends the session."""

    async def first(wire: Wire) -> None:
        await wire.welcome()
        await wire.accept("job_1")

    async def second(wire: Wire) -> None:
        wire.session_id = "sess_another"
        await wire.welcome()
        await wire.receive("nothing, ever")

    async with scripted(first, second) as runtime:
        with pytest.raises(ResumeWindowExpired, match="another session"):
            async with connect(runtime.open, token=TOKEN) as client:
                await (await client.submit("echo")).result()


async def test_trying_ends(autojump_clock: MockClock) -> None:
    """The client gives up after `reconnect_seconds`, with growing pauses until then."""
    async with real_runtime() as runtime:
        network = Network(runtime)
        tries: list[float] = []
        real_open = network.open

        async def opener() -> trio.abc.Stream:
            tries.append(trio.current_time())
            return await real_open()

        async with connect(opener, token=TOKEN, reconnect_seconds=30) as client:
            job = await client.submit("stuck")
            network.up = False
            await network.cut()
            lost_at = trio.current_time()
            with pytest.raises(ConnectionLost, match=r"not back in 30 s.*network is down"):
                await job.result()
        assert trio.current_time() - lost_at == pytest.approx(30, abs=0.5)
        pauses = [after - before for before, after in itertools.pairwise(tries[1:])]
        assert 5 <= len(pauses) <= 15
        assert pauses[-2] > 4 * pauses[0]


async def test_another_node_goes_on(autojump_clock: MockClock) -> None:
    """With several addresses, a session whose node is gone goes on at the next one, soon."""
    async with real_runtime() as runtime:
        nodes = [Network(runtime), Network(runtime), Network(runtime)]
        first, *others = [dialer(node.open, None).open for node in nodes]
        target = Dialer(first, again=True, others=tuple(others))
        async with connect(target, token=TOKEN) as client:
            job = await client.submit("paced", 40)
            events = job.events()
            await anext(events)
            for gone in nodes[:2]:
                gone.up = False
                await gone.cut()
                before = trio.current_time()
                await client.submit("echo")
                assert trio.current_time() - before < 0.2
            assert [len(node.streams) for node in nodes] == [1, 1, 1]
            nodes[2].up = False
            await nodes[2].cut()
            await trio.sleep(5)
            assert not client.connected
            nodes[0].up = True
            await client.submit("echo")
            assert len([event async for event in events]) == 39


async def test_a_node_that_sends_its_clients_elsewhere_is_left(autojump_clock: MockClock) -> None:
    """After a close with 1012 the next address is tried at once; the old one is not asked."""

    async def leaving(wire: Wire) -> None:
        await wire.welcome()
        await wire.transport.close(CloseCode.ELSEWHERE, "go elsewhere")

    async def staying(wire: Wire) -> None:
        arrived.append(trio.current_time())
        await wire.welcome()
        await wire.end()

    arrived: list[float] = []
    async with scripted(leaving, staying) as old, scripted(staying, token=old._token) as new:
        new._session_id = old._session_id
        target = Dialer(
            dialer(old.open, None).open, again=True, others=(dialer(new.open, None).open,)
        )
        async with connect(target, token=TOKEN) as client:
            left_at = trio.current_time()
            states = client.connection_states()
            while not (await anext(states) and arrived):
                pass
        assert arrived == [left_at]
        assert (len(old.wires), len(new.wires)) == (1, 1)


async def test_a_token_that_is_no_longer_good(autojump_clock: MockClock) -> None:
    """A refused token at a resume ends the session without another try."""

    async def first(wire: Wire) -> None:
        await wire.welcome()
        await wire.accept("job_1")

    async def second(wire: Wire) -> None:
        await wire.receive("session.hello")
        await wire.send("session.error", {"code": "UNAUTHENTICATED", "message": "revoked"})

    async with scripted(first, second) as runtime:
        with pytest.raises(Unauthenticated, match="revoked"):
            async with connect(runtime.open, token=TOKEN) as client:
                await (await client.submit("echo")).result()


async def test_what_is_too_large_is_not_repeated(autojump_clock: MockClock) -> None:
    """A call that is too large for the runtime fails alone, and is not sent again."""
    async with real_runtime(frame_bytes_in=100_000) as runtime:
        network = Network(runtime)
        async with connect(network.open, token=TOKEN) as client:
            with pytest.raises(InvalidRequest, match="more than the runtime takes"):
                await client.submit("echo", "x" * 200_000)
            assert await (await client.submit("echo", "small")).result() == "small"
        assert len(network.streams) == 2


@pytest.mark.spec("6.4-1", "6.4-2", "6.4-4")
async def test_an_idle_client_pings(autojump_clock: MockClock) -> None:
    """An idle client pings once per interval, and leaves a runtime that stays silent."""

    async def script(wire: Wire) -> None:
        await wire.welcome(heartbeat_interval_sec=10)
        try:
            while True:
                frame = await wire.receive()
                seen.append((trio.current_time(), frame["type"]))
                if frame["type"] == "session.close":
                    return
        finally:
            ended.append(trio.current_time())

    seen: list[tuple[float, str]] = []
    ended: list[float] = []
    async with scripted(script) as runtime, connect(runtime.open, token=TOKEN):
        await trio.sleep(39)
    first_at, first = seen[0]
    assert first == "session.ping"
    assert first_at == 10
    assert ended[0] == 20
    assert len(runtime.wires) == 2


async def test_no_runtime_is_pinged_without_a_pause(autojump_clock: MockClock) -> None:
    """The client pings at most once a second, however short the interval is."""

    async def script(wire: Wire) -> None:
        await wire.welcome(heartbeat_interval_sec=1e-9)
        while (await wire.receive())["type"] != "session.close":
            pings.append(trio.current_time())
            await wire.send("session.pong", {"ping_nonce": "n"})
        await wire.send("session.closed")

    pings: list[float] = []
    async with scripted(script) as runtime, connect(runtime.open, token=TOKEN):
        await trio.sleep(4.5)
    assert pings == [1, 2, 3, 4]


@pytest.mark.spec("6.5-1", "6.5-5", "6.5-6")
async def test_acknowledgements_are_coalesced(autojump_clock: MockClock) -> None:
    """Events are acknowledged at most every 250 ms, and the last one is, too."""

    async def script(wire: Wire) -> None:
        await wire.welcome()
        await wire.accept("job_1")
        for n in range(1, 101):
            await wire.log(n, "job_1", str(n))
            await trio.sleep(0.01)
        await wire.receive("session.close")

    async with scripted(script) as runtime:
        async with connect(runtime.open, token=TOKEN) as client:
            job = await client.submit("echo")
            await trio.sleep(20)
            del job
        acks = [f for f in runtime.wires[0].seen if f["type"] == "session.ack"]
        numbers = [frame["payload"]["last_processed_seq"] for frame in acks]
        assert 3 <= len(numbers) <= 6
        assert numbers == sorted(set(numbers))
        assert numbers[-1] == 100
        assert all("event_seq" not in frame for frame in acks)


async def test_a_submit_is_repeated_safely(autojump_clock: MockClock) -> None:
    """A submit starts one job, however often its connection ends before the answer."""
    async with real_runtime() as runtime:
        network = Network(runtime)
        async with connect(network.open, token=TOKEN) as client:
            async with trio.open_nursery() as nursery:

                async def trouble() -> None:
                    for _ in range(5):
                        await network.cut()
                        await trio.sleep(0.05)

                nursery.start_soon(trouble)
                jobs = [await client.submit("echo", n) for n in range(20)]
            assert [await job.result() for job in jobs] == list(range(20))
            assert len([info async for info in client.jobs()]) == 20
