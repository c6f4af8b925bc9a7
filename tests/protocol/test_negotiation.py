"""Which features are in effect between two peers, and what happens to the others (§6.2)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import combinations

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import AgentVersionNotAvailable, InvalidRequest, JobContext, Runtime
from arcp_trio.testing import Peer, PeerFactory, open_peer, open_peers
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.features import ALL_FEATURES, SUPPORTED, Feature
from arcp_trio.wire.json import Json
from arcp_trio.wire.timestamps import parse_rfc3339, rfc3339
from tests.stage import make_runtime


def without(feature: str) -> tuple[str, ...]:
    """Return every feature except this one."""
    return tuple(name for name in ALL_FEATURES if name != feature)


async def refuse(peer: Peer, kind: str, payload: Frame, feature: str) -> None:
    """Send this request, which must be refused by the feature's name."""
    request = await peer.send(kind, payload)
    with pytest.raises(InvalidRequest, match=feature):
        await peer.answer("session.jobs", request)
    await peer.submit("echo")


# -- each feature, for a client without it


async def use_heartbeat(peer: Peer, welcome: Frame) -> None:
    """A client without `heartbeat` gets pongs, and is neither pinged nor lost."""
    assert "heartbeat_interval_sec" not in welcome["payload"]
    await peer.send("session.ping", {"nonce": "n"})
    await peer.expect("session.pong", ping_nonce="n")
    peer.answer_pings = False
    await trio.sleep(3600)
    await peer.submit("echo")


async def use_ack(peer: Peer, _welcome: Frame) -> None:
    """An acknowledgement without `ack` is not answered, and frees nothing."""
    await peer.until_terminal((await peer.submit("echo"))["job_id"])
    assert peer.session_id is not None
    seq = peer.recorder.highest(peer.session_id)
    await peer.send("session.ack", {"last_processed_seq": seq})
    await peer.submit("echo")


async def use_list_jobs(peer: Peer, _welcome: Frame) -> None:
    """A listing is refused, with and without a filter."""
    await refuse(peer, "session.list_jobs", {}, "list_jobs")
    await refuse(peer, "session.list_jobs", {"filter": {"status": ["running"]}}, "list_jobs")


async def use_subscribe(peer: Peer, _welcome: Frame) -> None:
    """Subscribing and unsubscribing is refused, even for one's own job."""
    job = (await peer.submit("sleeper"))["job_id"]
    await refuse(peer, "job.subscribe", {"job_id": job, "history": True}, "subscribe")
    await refuse(peer, "job.subscribe", {"job_id": "job_nobodys"}, "subscribe")
    await refuse(peer, "job.unsubscribe", {"job_id": job}, "subscribe")


async def use_lease_expires_at(peer: Peer, welcome: Frame) -> None:
    """A lease with an expiry is accepted, and ends the job."""
    expiry = {"expires_at": rfc3339(parse_rfc3339(welcome["payload"]["accepted_at"]) + 60)}
    job = await peer.submit("sleeper", lease_constraints=expiry)
    assert job["lease_constraints"] == expiry
    peer.patience = 100
    assert (await peer.until_terminal(job["job_id"]))["payload"]["code"] == "LEASE_EXPIRED"


async def use_budget(peer: Peer, _welcome: Frame) -> None:
    """A budget is accepted and enforced; what is left of it is not told."""
    lease = {"cost.budget": ["USD:1.00"], "tool.call": ["*"]}
    job = await peer.submit("buyer", lease_request=lease)
    end = await peer.until_terminal(job["job_id"])
    assert end["payload"]["code"] == "BUDGET_EXHAUSTED"
    events = peer.recorder.events(job["job_id"])
    assert [event["payload"]["body"].get("name") for event in events][:1] == ["cost.tool"]
    assert "cost.budget.remaining" not in str(events)
    assert end["event_seq"] == len(events) + 1


async def use_models(peer: Peer, _welcome: Frame) -> None:
    """A lease with models is accepted and enforced."""
    job = await peer.submit("thinker", lease_request={"model.use": ["tier/*"]})
    assert job["lease"] == {"model.use": ["tier/*"]}
    assert (await peer.until_terminal(job["job_id"]))["payload"]["code"] == "PERMISSION_DENIED"


async def use_credentials(peer: Peer, _welcome: Frame) -> None:
    """No acceptance has credentials."""
    assert "credentials" not in await peer.submit("echo")


async def use_progress(peer: Peer, _welcome: Frame) -> None:
    """A `progress` event takes no number and is not sent."""
    job = (await peer.submit("teller"))["job_id"]
    end = await peer.until_terminal(job)
    kinds = [event["payload"]["kind"] for event in peer.recorder.events(job)]
    assert "progress" not in kinds
    assert end["event_seq"] == len(kinds) + 1


async def use_chunks(peer: Peer, _welcome: Frame) -> None:
    """A streamed result comes inline."""
    job = (await peer.submit("teller"))["job_id"]
    end = await peer.until_terminal(job)
    kinds = [event["payload"]["kind"] for event in peer.recorder.events(job)]
    assert "result_chunk" not in kinds
    assert end["payload"]["result"] == "told"


async def use_versions(peer: Peer, welcome: Frame) -> None:
    """The inventory has bare names; a pinned version is still resolved."""
    agents = ["buyer", "echo", "sleeper", "teller", "thinker"]
    assert welcome["payload"]["capabilities"]["agents"] == agents
    assert (await peer.submit("echo@1.0.0"))["agent"] == "echo@1.0.0"
    with pytest.raises(AgentVersionNotAvailable):
        await peer.submit("echo@2.0.0")


USES: dict[str, Callable[[Peer, Frame], Awaitable[None]]] = {
    Feature.HEARTBEAT: use_heartbeat,
    Feature.ACK: use_ack,
    Feature.LIST_JOBS: use_list_jobs,
    Feature.SUBSCRIBE: use_subscribe,
    Feature.LEASE_EXPIRES_AT: use_lease_expires_at,
    Feature.COST_BUDGET: use_budget,
    Feature.MODEL_USE: use_models,
    Feature.PROVISIONED_CREDENTIALS: use_credentials,
    Feature.PROGRESS: use_progress,
    Feature.RESULT_CHUNK: use_chunks,
    Feature.AGENT_VERSIONS: use_versions,
}

FRAMES_OF = {
    "session.ping": Feature.HEARTBEAT,
    "session.jobs": Feature.LIST_JOBS,
    "job.subscribed": Feature.SUBSCRIBE,
}


def add_teller(runtime: Runtime) -> None:
    """Register an agent that emits in every way."""

    @runtime.agent("teller")
    async def teller(job: JobContext) -> None:
        """Log, report progress between the lines, and stream the result."""
        await job.log("one")
        await job.progress(1, 2)
        await job.log("two")
        async with job.stream_result() as out:
            await out.write("told")


def add_spenders(runtime: Runtime) -> None:
    """Register agents that meet the bounds of their leases."""

    @runtime.agent("buyer")
    async def buyer(job: JobContext) -> None:
        """Spend more than the budget, and try to go on."""
        await job.metric("cost.tool", 2, unit="USD")
        job.authorize("tool.call", "shop")

    @runtime.agent("thinker")
    async def thinker(job: JobContext) -> None:
        """Use a model that the lease does not name."""
        job.authorize("model.use", "other/model")


@pytest.mark.parametrize("feature", ALL_FEATURES)
@pytest.mark.spec("6.2-3", "6.2-4")
async def test_a_feature_that_is_not_in_effect_is_not_used(
    feature: str, autojump_clock: MockClock
) -> None:
    """Without a feature its requests are refused or ignored, and its frames are not sent."""
    async with make_runtime() as runtime, open_peers(runtime) as peers:
        add_teller(runtime)
        add_spenders(runtime)
        peer = await peers.connect()
        welcome = await peer.hello(features=without(feature))
        await USES[feature](peer, welcome)
        await peer.submit("echo")
        assert feature not in {FRAMES_OF.get(frame["type"]) for frame in peer.seen}
        # Nothing was freed or skipped: everything can be replayed.
        await replayed(peers, peer, without(feature))


async def replayed(peers: PeerFactory, peer: Peer, features: tuple[str, ...]) -> None:
    """Resume from the beginning; the recorder compares every frame."""
    last = (await peer.until_terminal((await peer.submit("echo"))["job_id"]))["event_seq"]
    await peer.drop()
    again = await peers.connect()
    await again.hello(features=features, resume=peer.resume_from() | {"last_event_seq": 0})
    seq = 0
    while seq != last:
        seq = (await again.receive()).get("event_seq", seq)


# -- what comes to be in effect


@pytest.mark.parametrize(
    "offered", [subset for n in range(len(SUPPORTED) + 1) for subset in combinations(SUPPORTED, n)]
)
@pytest.mark.spec("6.2-2", "6.2-3", "6.2-4")
async def test_in_effect_is_what_both_have(
    offered: tuple[str, ...], autojump_clock: MockClock
) -> None:
    """The features in effect are those of both sides, whatever else a client offers."""
    async with make_runtime() as runtime, open_peer(runtime) as peer:
        add_teller(runtime)
        welcome = (await peer.hello(features=("x-vendor.y", "", *offered, *offered)))["payload"]
        capabilities = welcome["capabilities"]
        assert capabilities["features"] == list(SUPPORTED)
        assert ("heartbeat_interval_sec" in welcome) == ("heartbeat" in offered)
        assert isinstance(capabilities["agents"][0], dict) == ("agent_versions" in offered)
        job = (await peer.submit("teller"))["job_id"]
        end = await peer.until_terminal(job)
        streamed = "result_chunk" in offered
        assert end["event_seq"] == 3 + ("progress" in offered) + streamed
        assert end["payload"].get("result") == (None if streamed else "told")


@pytest.mark.parametrize(
    "capabilities",
    [
        {},
        {"features": None},
        {"features": []},
        {"encodings": ["msgpack", "json"]},
        {"encodings": []},
        {"x-vendor": {"features": ["all"]}},
    ],
    ids=str,
)
@pytest.mark.spec("6.2-2")
async def test_json_is_spoken_to_everyone(capabilities: Frame, autojump_clock: MockClock) -> None:
    """The encoding is JSON, whatever the client offers."""
    async with make_runtime() as runtime, open_peer(runtime) as peer:
        welcome = await peer.hello(capabilities=capabilities)
        assert welcome["payload"]["capabilities"]["encodings"] == ["json"]
        assert "heartbeat_interval_sec" not in welcome["payload"]
        await peer.submit("echo")


@pytest.mark.spec("6.1-1", "6.2-1")
async def test_the_least_that_a_client_can_say(autojump_clock: MockClock) -> None:
    """A name and a token open a session, and an agent's name makes a job."""
    async with make_runtime() as runtime, open_peer(runtime) as peer:
        hello: Frame = {"client": {"name": "c"}, "auth": {"token": "test-token"}}
        await peer.send("session.hello", hello)
        await peer.expect("session.welcome")
        await peer.send_raw(
            '{"arcp":"1.1","id":"1","type":"job.submit","payload":{"agent":"echo"}}'
        )
        job = await peer.answer("job.accepted", "1")
        end = await peer.until_terminal(job["job_id"])
        assert end["payload"]["result"] is None
        await peer.send("session.close")
        await peer.expect("session.closed")


async def test_features_are_negotiated_anew_by_a_hello_that_resumes(
    autojump_clock: MockClock,
) -> None:
    """A resuming hello negotiates anew; a bare `session.resume` keeps the features."""
    async with make_runtime() as runtime, open_peers(runtime) as peers:
        add_teller(runtime)
        peer = await peers.connect()
        await peer.hello()
        await peer.drop()
        same = await peers.connect()
        await same.send("session.resume", peer.resume_from())
        welcome = await same.expect("session.welcome")
        assert "heartbeat_interval_sec" in welcome["payload"]
        await same.drop()
        other = await peers.connect()
        welcome = await other.hello(features=(), resume=same.resume_from())
        assert "heartbeat_interval_sec" not in welcome["payload"]
        assert welcome["payload"]["capabilities"]["agents"] == ["echo", "sleeper", "teller"]
        job = (await other.submit("teller"))["job_id"]
        assert (await other.until_terminal(job))["event_seq"] == 3


# -- agents


@pytest.mark.spec("6.2-2", "7.5-2", "7.5-5")
async def test_the_inventory_tells_versions_and_the_default(autojump_clock: MockClock) -> None:
    """Versions are listed in the order of registration, with the default."""

    async def which(job: JobContext) -> Json:
        return job.version

    async with make_runtime() as runtime, open_peers(runtime) as peers:
        for version in ("2", "10", "9"):
            runtime.agent("marked", version=version, default=version == "10")(which)
            runtime.agent("latest", version=version)(which)
        for features in (ALL_FEATURES, without("agent_versions")):
            peer = await peers.connect()
            welcome = await peer.hello(features=features)
            agents = welcome["payload"]["capabilities"]["agents"]
            if "agent_versions" in features:
                versions = ["2", "10", "9"]
                assert agents[-2:] == [
                    {"name": "marked", "versions": versions, "default": "10"},
                    {"name": "latest", "versions": versions, "default": "9"},
                ]
            else:
                assert agents == ["echo", "latest", "marked", "sleeper"]
            for name, version in (("marked", "10"), ("latest", "9"), ("marked@2", "2")):
                job = await peer.submit(name)
                assert job["agent"] == f"{name.partition('@')[0]}@{version}"
                assert (await peer.until_terminal(job["job_id"]))["payload"]["result"] == version


async def test_each_welcome_has_the_agents_of_its_moment(autojump_clock: MockClock) -> None:
    """A welcome lists the agents that are registered at that time."""

    async def agent(_job: JobContext) -> Json:
        return None

    async with make_runtime() as runtime, open_peers(runtime) as peers:
        for n in range(20):
            runtime.agent(f"a{n}")(agent)
            peer = await peers.connect()
            welcome = await peer.hello()
            names = [agent["name"] for agent in welcome["payload"]["capabilities"]["agents"]]
            assert names == ["echo", "sleeper", *(f"a{m}" for m in range(n + 1))]


# -- leases


@pytest.mark.parametrize("lease", [{}, {"fs.read": ["/ws/**"], "x-vendor.acme.deploy": ["*"]}])
@pytest.mark.spec("7.1-1", "1.0/7.1-1")
async def test_the_effective_lease_is_what_was_asked_for(
    lease: Frame, autojump_clock: MockClock
) -> None:
    """An acceptance shows the lease that was asked for, and nothing else."""
    async with make_runtime() as runtime, open_peer(runtime) as peer:
        await peer.hello()
        job = await peer.submit("echo", lease_request=lease)
        assert job["lease"] == lease
        assert not {"lease_constraints", "budget", "credentials"} & job.keys()


async def test_bounds_need_no_feature(autojump_clock: MockClock) -> None:
    """A lease with every kind of bound is accepted from a client that offers no feature."""
    async with make_runtime() as runtime, open_peer(runtime) as peer:
        await peer.hello(features=())
        lease: Frame = {"cost.budget": ["USD:1.00"], "model.use": ["tier/*"], "fs.read": ["/**"]}
        constraints: Frame = {"expires_at": "2999-01-01T00:00:00Z"}
        job = await peer.submit("echo", lease_request=lease, lease_constraints=constraints)
        assert (job["lease"], job["lease_constraints"]) == (lease, constraints)
        assert job["budget"] == {"USD": 1}
