"""Past `messages_per_second` the reader waits, and nothing is refused."""

from __future__ import annotations

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio.runtime.usage import BURST_SECONDS
from arcp_trio.testing import Peer
from arcp_trio.transport.pace import PARTS_PER_SECOND, Pace
from arcp_trio.wire import envelope
from tests.metrics import scrape
from tests.sessions.support import open_stage
from tests.stage import BOB
from tests.transport.peers import frame


async def flood(peer: Peer, pings: int) -> None:
    """Send `pings` pings, as fast as they are taken."""
    for n in range(pings):
        await peer.send("session.ping", {"nonce": str(n)})


async def answered_at(peer: Peer, pings: int) -> list[float]:
    """Return when each of `pings` pings was answered, in order."""
    times: list[float] = []
    for n in range(pings):
        pong = await peer.expect("session.pong")
        assert pong["payload"]["ping_nonce"] == str(n)
        times.append(trio.current_time())
    return times


async def test_a_burst_is_served_at_once_and_then_one_by_one(autojump_clock: MockClock) -> None:
    """A burst of four seconds' worth is served at once, the rest at the pace and in order."""
    async with open_stage(messages_per_second=50) as stage, trio.open_nursery() as nursery:
        peer = await stage.welcomed()
        await trio.sleep(1)
        began = trio.current_time()
        nursery.start_soon(flood, peer, 400)
        times = [at - began for at in await answered_at(peer, 400)]
        assert times[:200] == [0] * 200
        # One more was taken before the first wait.
        assert [round(at, 3) for at in times[201:]] == [n / 50 for n in range(1, 200)]
        metrics = scrape(stage.runtime)
        assert sum(metrics.families["arcp_refusals_total"].samples.values()) == 0


async def test_who_was_quiet_may_burst_again(autojump_clock: MockClock) -> None:
    """A quiet client may send a burst again, of four seconds' worth at most."""
    async with open_stage(messages_per_second=50, heartbeat_seconds=10_000) as stage:
        peer = await stage.welcomed()
        for quiet, most in ((1_000, 200), (1, 50), (2, 100), (4, 200)):
            await trio.sleep(quiet)
            began = trio.current_time()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(flood, peer, most + 10)
                times = await answered_at(peer, most + 10)
            assert sum(at == began for at in times) in (most, most + 1)


async def test_nobody_else_waits(autojump_clock: MockClock) -> None:
    """Another principal has a pace of its own, and what is sent to a hasty one goes on."""
    async with open_stage(messages_per_second=1) as stage, trio.open_nursery() as nursery:
        hasty = await stage.welcomed()
        await hasty.submit("puppet")
        nursery.start_soon(flood, hasty, 50)
        await wait_all_tasks_blocked()
        began = trio.current_time()
        await stage.puppet.say("a line")
        await hasty.expect("job.event", event_seq=1)
        other = await stage.welcomed(token=BOB)
        await flood(other, 3)
        await answered_at(other, 3)
        assert trio.current_time() == began
        assert stage.puppet.runs == 1
        nursery.cancel_scope.cancel()


async def test_all_connections_of_a_principal_have_one_pace(autojump_clock: MockClock) -> None:
    """A hundred sessions may send as much as one, and what they have sent is counted."""
    async with open_stage(messages_per_second=50) as stage:
        peers = [await stage.welcomed() for _ in range(100)]
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for peer in peers:
                nursery.start_soon(flood, peer, 10)
                nursery.start_soon(answered_at, peer, 10)
        assert 13 <= trio.current_time() - began <= 18  # (1,000 - 200 - 100) / 50 and more
        used = scrape(stage.runtime)
        assert used("used_most_total", kind="messages", principal="alice") == 1_000
        assert 50_000 < used("used_most_total", kind="message_bytes", principal="alice") < 500_000


async def test_so_have_their_fragments(autojump_clock: MockClock) -> None:
    """Sessions of one principal share the pace of fragments; another principal has its own."""
    ping = envelope.encode("session.ping", b'{"nonce":"n"}', id="p")
    fragments = frame(0x01, ping) + frame(0x00) * 1_500 + frame(0x80)

    async def seconds(*peers: Peer) -> float:
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for peer in peers:
                nursery.start_soon(peer.stream.send_all, fragments)
                nursery.start_soon(peer.expect, "session.pong")
        return trio.current_time() - began

    async with open_stage() as stage:
        alices = [await stage.welcomed() for _ in range(4)]
        bobs = [await stage.welcomed(token=BOB)]
        await trio.sleep(10)
        assert await seconds(*bobs) == 0
        assert await seconds(*alices) >= 4 * 1_500 / PARTS_PER_SECOND - 1.1


async def test_waiting_is_not_silence(autojump_clock: MockClock) -> None:
    """A client whose pongs wait for the pace is not lost."""
    async with open_stage(messages_per_second=1, heartbeat_seconds=1) as stage:
        peer = await stage.welcomed()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(flood, peer, 60)
            times = await answered_at(peer, 60)
        assert times[-1] - times[0] > 50
        await peer.submit("puppet")


async def test_the_default_is_four_thousand_a_second(autojump_clock: MockClock) -> None:
    """The default pace is the documented one."""
    async with open_stage() as stage:
        assert stage.runtime.limits.messages_per_second * BURST_SECONDS == 16_000
    pace = Pace(1_000, burst_seconds=BURST_SECONDS)
    assert max(pace.count() for _ in range(4_000)) <= 1e-9
    assert pace.count() > 0.0009
