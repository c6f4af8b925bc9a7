"""The registry of agents: names, versions and defaults (§7.5)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from arcp_trio import (
    AgentInfo,
    AgentNotAvailable,
    Agents,
    AgentVersionNotAvailable,
    ArcpError,
    InvalidRequest,
    JobContext,
    Runtime,
)
from arcp_trio.testing import Peer, open_peer, open_peers
from arcp_trio.wire.features import ALL_FEATURES
from arcp_trio.wire.json import Json
from tests.stage import make_runtime

NAMES = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True)
VERSIONS = st.from_regex(r"[a-zA-Z0-9.+_-]{1,20}", fullmatch=True)


async def nothing(_job: JobContext) -> Json:
    """Do nothing."""


@pytest.mark.spec("7.5-5")
@given(name=NAMES, versions=st.lists(VERSIONS, min_size=1, unique=True))
def test_whatever_the_grammar_allows_can_be_registered(name: str, versions: list[str]) -> None:
    """Each version resolves by its own name; the bare name means the one registered last."""
    agents = Agents()
    for version in versions:
        agents.agent(name, version=version)(nothing)
    for version in versions:
        assert agents.resolve(f"{name}@{version}").version == version
    assert agents.resolve(name).version == versions[-1]


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("", "1"),
        ("Upper", "1"),
        ("-dash", "1"),
        (".dot", "1"),
        ("with space", "1"),
        ("a@b", "1"),
        ("é", "1"),
        ("a", ""),
        ("a", "1@2"),
        ("a", "1 2"),
        ("a", "1\n"),
        ("a\n", "1"),
        ("a", "²"),
        ("a" * 300, "1"),
    ],
)
def test_whatever_it_forbids_cannot(name: str, version: str) -> None:
    """A name outside of the grammar is refused when it is registered."""
    with pytest.raises((ValueError, InvalidRequest)):
        Agents().agent(name, version=version)


def test_the_same_agent_twice_is_refused() -> None:
    """Neither the same version nor a second default of one name can be registered."""
    agents = Agents()
    agents.agent("a", version="1", default=True)(nothing)
    with pytest.raises(ValueError, match="a@1 is registered already"):
        agents.agent("a", version="1")(nothing)
    with pytest.raises(ValueError, match="default already: 1"):
        agents.agent("a", version="2", default=True)(nothing)
    assert agents.inventory() == [AgentInfo(name="a", versions=["1"], default="1")]


def test_a_refused_agent_leaves_no_name_behind() -> None:
    """A name whose only registration was refused does not resolve."""
    agents = Agents()
    with pytest.raises(TypeError):
        agents.agent("a", loop="asyncio")(lambda _job: None)  # type: ignore[type-var]
    assert not agents.names()
    assert agents.inventory() == []
    with pytest.raises(AgentNotAvailable):
        agents.resolve("a")


def test_functions_of_all_kinds_can_be_agents() -> None:
    """Functions, async or plain, partials and methods can be agents; others are TypeErrors."""

    class Team:
        async def method(self, _job: JobContext) -> Json:
            return None

    async def with_settings(_settings: str, _job: JobContext) -> Json:
        return None

    agents = Agents()
    agents.agent("function")(nothing)
    agents.agent("method")(Team().method)
    agents.agent("partial")(partial(with_settings, "settings"))
    agents.agent("plain")(lambda _job: None)

    async def generator(_job: JobContext) -> AsyncGenerator[Json]:
        yield None

    wrong: list[Any] = ["not callable", generator, Team]
    for each in wrong:
        with pytest.raises(TypeError, match="not an async function, nor a plain one"):
            agents.agent("b")(each)


def test_registering_gives_the_function_back() -> None:
    """The decorator returns the function unchanged, so it can be called and registered again."""
    agents = Agents()
    assert agents.agent("a")(nothing) is nothing
    assert agents.agent("b")(nothing) is nothing


@pytest.mark.spec("7.5-2")
def test_the_default_is_a_documented_rule_and_no_sorting() -> None:
    """The default is the marked version, or else the one registered last, not the highest."""
    agents = Agents()
    for version in ("2", "9", "10"):
        agents.agent("a", version=version)(nothing)
    assert agents.resolve("a").version == "10"
    marked = Agents()
    for version in ("10", "9", "2"):
        marked.agent("a", version=version, default=version == "9")(nothing)
    assert marked.resolve("a").version == "9"
    assert marked.inventory() == [AgentInfo(name="a", versions=["10", "9", "2"], default="9")]


@pytest.mark.spec("12-3", "7.5-4")
def test_unknown_names_and_versions_are_told_apart() -> None:
    """An unknown agent, an unknown version and a malformed reference get different refusals."""
    agents = Agents()
    agents.agent("a", version="1")(nothing)
    for text, error in (
        ("b", AgentNotAvailable),
        ("b@1", AgentNotAvailable),
        ("a@2", AgentVersionNotAvailable),
        ("a@", InvalidRequest),
        ("@1", InvalidRequest),
        ("A", InvalidRequest),
        ("a@1@2", InvalidRequest),
        ("a" * 10_000, InvalidRequest),
    ):
        with pytest.raises(error):
            agents.resolve(text)


def test_registries_can_be_added_to_a_runtime() -> None:
    """`add` takes all agents and defaults of a registry, and refuses what is there already."""
    agents = Agents()
    agents.agent("a", version="1", default=True)(nothing)
    agents.agent("a", version="2")(nothing)
    runtime = make_runtime()
    runtime.add(agents)
    assert runtime.agents.resolve("a").version == "1"
    with pytest.raises(ValueError, match="registered already"):
        runtime.add(agents)


def test_the_inventory_is_a_copy() -> None:
    """A caller that changes the inventory does not change the registry."""
    agents = Agents()
    agents.agent("a", version="1")(nothing)
    first = agents.inventory()
    versions = first[0].versions
    assert versions is not None
    versions.append("2")
    first.clear()
    assert agents.inventory() == [AgentInfo(name="a", versions=["1"], default="1")]


@pytest.mark.parametrize("features", [ALL_FEATURES, ()])
@pytest.mark.spec("7.5-1", "7.5-2", "7.5-6")
async def test_versions_on_the_wire(
    runtime: Runtime, features: tuple[str, ...], autojump_clock: MockClock
) -> None:
    """A version can be asked for with and without `agent_versions`; acceptances name it."""
    for version in ("1.0.0", "2.0.0-rc.1+build_7"):
        runtime.agent("a", version=version, default=version == "1.0.0")(nothing)
    async with open_peer(runtime) as peer:
        await peer.hello(features=features)
        assert (await peer.submit("a"))["agent"] == "a@1.0.0"
        assert (await peer.submit("a@1.0.0"))["agent"] == "a@1.0.0"
        assert (await peer.submit("a@2.0.0-rc.1+build_7"))["agent"] == "a@2.0.0-rc.1+build_7"
        with pytest.raises(AgentVersionNotAvailable):
            await peer.submit("a@3")


async def test_each_welcome_is_consistent_while_agents_are_registered(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    """While agents are being registered, each welcome lists every default among its versions."""

    async def register() -> None:
        for number in range(200):
            runtime.agent(f"a{number // 2}", version=str(number))(nothing)
            await trio.lowlevel.checkpoint()

    async def connect(peers: list[Peer], each: Peer) -> None:
        welcome = await each.hello()
        for agent in welcome["payload"]["capabilities"]["agents"]:
            assert agent["default"] in agent["versions"]
        peers.append(each)

    async with open_peers(runtime) as factory, trio.open_nursery() as nursery:
        connected: list[Peer] = []
        each = [await factory.connect() for _ in range(50)]
        nursery.start_soon(register)
        for peer in each:
            nursery.start_soon(connect, connected, peer)
    assert len(connected) == 50


async def test_an_agent_registered_later_is_available_at_once(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """An open session can submit to an agent that was registered after its welcome."""
    with pytest.raises(ArcpError):
        await peer.submit("late")
    runtime.agent("late")(nothing)
    await peer.submit("late")
