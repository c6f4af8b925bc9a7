"""Sessions with an agent: how they are begun, continued, and refused."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import acp
from arcp_trio.transport.memory import memory_streams
from tests.acp.stage import INITIALIZED, Actor, connected, ended, said, staged, text


class Seen:
    """A handler that keeps what it is called with, and takes its time."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def __call__(self, session: acp.Session, update: acp.Update) -> None:
        """Keep the text."""
        await trio.sleep(0.1)
        self.texts.append(f"{session.id}: {text(update)}")


async def initialized(answer: dict[str, Any]) -> acp.Agent:
    """Return an agent that answers `initialize` in some way, once it is gone again."""
    async with connected(answer) as (agent, _):
        return agent
    raise AssertionError


async def test_what_the_agent_is(autojump_clock: MockClock) -> None:
    """Name, capabilities and ways to log in are as the agent says."""
    answer = {
        **INITIALIZED,
        "agentInfo": {"name": "a", "version": "2"},
        "authMethods": [{"id": "key"}, 5],
    }
    agent = await initialized(answer)
    assert agent.info == {"name": "a", "version": "2"}
    assert agent.capabilities["loadSession"] is True
    assert agent.auth_methods == [{"id": "key"}]


async def test_an_agent_that_says_little(autojump_clock: MockClock) -> None:
    """Of the answer to `initialize` only the version is needed; the rest is then not offered."""
    async with connected({"protocolVersion": 1}) as (agent, _):
        assert (agent.info, agent.capabilities, agent.auth_methods) == ({}, {}, [])
        with pytest.raises(acp.Unsupported, match="does not load"):
            await agent.load_session("old", "/w")
        with pytest.raises(acp.Unsupported, match="does not resume"):
            await agent.resume_session("old", "/w")
        with pytest.raises(acp.Unsupported, match="neither"):
            await agent.continue_session("old", "/w")


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        ({"protocolVersion": 2}, acp.VersionMismatch, "speaks version 2 of ACP; version 1"),
        ({"protocolVersion": 1.0}, acp.NotAcp, "without a version"),
        ({"protocolVersion": True}, acp.NotAcp, "without a version"),
        ({}, acp.NotAcp, "without a version"),
        ([], acp.NotAcp, "without a version"),
    ],
)
async def test_other_versions(
    answer: Any, error: type[Exception], words: str, autojump_clock: MockClock
) -> None:
    """An agent of another version, or of none, is not spoken with; the error says so, bare."""
    ours, theirs = memory_streams()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Actor(theirs).answer, "initialize", answer)
        with pytest.raises(error, match=words):
            async with acp.connect(ours, ours):
                raise AssertionError


async def test_an_agent_that_never_initializes(autojump_clock: MockClock) -> None:
    """The answer to `initialize` has to come in time."""
    ours, _ = memory_streams()
    begun = trio.current_time()
    with pytest.raises(acp.TimedOut, match="the agent has not answered initialize in time"):
        async with acp.connect(ours, ours, limits=acp.Limits(start_seconds=20)):
            raise AssertionError
    assert trio.current_time() == begun + 20


async def test_a_new_session(autojump_clock: MockClock) -> None:
    """The agent is told the folder and the servers, and its early updates are not lost."""
    seen = Seen()
    async with connected(on_update=seen) as (agent, actor), trio.open_nursery() as nursery:

        async def act() -> None:
            frame = await actor.receive("session/new")
            assert frame["params"] == {"cwd": "/w", "mcpServers": [{"name": "m"}]}
            await actor.say(*[said(n, "new") for n in range(3)], said("x", "foreign"))
            await actor.say({"id": frame["id"], "result": {"sessionId": "new"}}, said(3, "new"))

        nursery.start_soon(act)
        session = await agent.new_session("/w", mcp_servers=[{"name": "m"}])
        assert (session.id, session.cwd) == ("new", "/w")
        assert seen.texts == ["new: 0", "new: 1", "new: 2"]
        await trio.sleep(1)
        assert seen.texts[3:] == ["new: 3"]


async def test_early_updates_are_bounded(autojump_clock: MockClock) -> None:
    """Of a session without an answer yet, a number of updates is kept, and of bytes."""
    seen = Seen()
    limits = acp.Limits(early_updates=3, queue_bytes=10_000)
    async with staged(on_update=seen, limits=limits) as stage, trio.open_nursery() as nursery:
        await stage.actor.say(said("before", "new"))
        await wait_all_tasks_blocked()

        async def act() -> None:
            frame = await stage.actor.receive("session/new")
            await stage.actor.say(said("x" * 20_000, "new"), *[said(n, "new") for n in range(9)])
            await stage.actor.say({"id": frame["id"], "result": {"sessionId": "new"}})

        nursery.start_soon(act)
        await stage.agent.new_session("/w")
        assert seen.texts == ["new: 0", "new: 1", "new: 2"]


@pytest.mark.parametrize("result", [{}, None, {"sessionId": 5}, {"sessionId": "s"}])
async def test_a_session_without_an_id_of_its_own(result: Any, autojump_clock: MockClock) -> None:
    """An answer without an id, or with one that is in use, is an error."""
    async with staged() as stage, trio.open_nursery() as nursery:
        nursery.start_soon(stage.actor.answer, "session/new", result)
        with pytest.raises(acp.AcpFailure, match=r"without an id|is open"):
            await stage.agent.new_session("/w")


async def test_a_folder_is_absolute(autojump_clock: MockClock) -> None:
    """A relative folder is refused before the agent is asked."""
    async with staged() as stage:
        for call in (stage.agent.new_session("w"), stage.agent.load_session("x", "../w")):
            with pytest.raises(ValueError, match="absolute"):
                await call


async def test_logging_in(autojump_clock: MockClock) -> None:
    """An agent that wants a login first says so, with the ways that it has; then it has one."""
    answer = {**INITIALIZED, "authMethods": [{"id": "key"}, {"id": "browser"}]}
    async with connected(answer) as (agent, actor), trio.open_nursery() as nursery:

        async def act() -> None:
            frame = await actor.receive("session/new")
            error = {"code": -32000, "message": "no login", "data": {"a": 1}}
            await actor.say({"id": frame["id"], "error": error})
            frame = await actor.answer("authenticate", None)
            assert frame["params"] == {"methodId": "key"}

        nursery.start_soon(act)
        with pytest.raises(acp.AgentError, match="no login") as caught:
            await agent.new_session("/w")
        assert (caught.value.code, caught.value.data) == (-32000, {"a": 1})
        assert "key, browser" in caught.value.__notes__[0]
        await agent.authenticate("key")


async def test_loading_tells_the_history_first(autojump_clock: MockClock) -> None:
    """A loaded session returns after its history was handled, however long that is."""
    seen = Seen()
    limits = acp.Limits(request_seconds=10, queue_items=4)
    async with (
        staged(on_update=seen, limits=limits) as stage,
        trio.open_nursery() as nursery,
    ):

        async def act() -> None:
            frame = await stage.actor.receive("session/load")
            assert frame["params"] == {"sessionId": "old", "cwd": "/w", "mcpServers": []}
            for number in range(30):
                await trio.sleep(9)
                await stage.actor.say(said(number, "old"))
            await stage.actor.say({"id": frame["id"], "result": None})

        nursery.start_soon(act)
        session = await stage.agent.load_session("old", "/w")
        assert session.id == "old"
        assert seen.texts == [f"old: {number}" for number in range(30)]
        with pytest.raises(acp.Busy, match="old is open"):
            await stage.agent.resume_session("old", "/w")
        turn = session.prompt("go")
        id_ = await stage.actor.prompted()
        await stage.actor.say(said("x", "old"), ended(id_))
        assert [text(item) async for item in turn] == ["x"]


async def test_a_session_that_does_not_load(autojump_clock: MockClock) -> None:
    """A session that the agent loads in silence, or not at all, is not open afterwards."""
    limits = acp.Limits(request_seconds=10)
    async with staged(limits=limits) as stage, trio.open_nursery() as nursery:
        with pytest.raises(acp.TimedOut, match="session/load"):
            await stage.agent.load_session("old", "/w")
        late = (await stage.actor.receive("session/load"))["id"]
        note = await stage.actor.receive("$/cancel_request")
        assert note["params"] == {"requestId": late}

        async def act() -> None:
            frame = await stage.actor.receive("session/load")
            refusal = {"code": -32002, "message": "not found"}
            await stage.actor.say({"id": late, "result": {}}, said("late", "old"))
            await stage.actor.say({"id": frame["id"], "error": refusal})

        nursery.start_soon(act)
        with pytest.raises(acp.AgentError, match=r"not found \(-32002\)"):
            await stage.agent.load_session("old", "/w")


@pytest.mark.parametrize("resumes", [True, False])
async def test_continuing(resumes: bool, autojump_clock: MockClock) -> None:  # noqa: FBT001
    """A session is resumed where that works, and else loaded."""
    async with staged() as stage, trio.open_nursery() as nursery:

        async def act() -> None:
            frame = await stage.actor.receive("session/resume")
            if resumes:
                await stage.actor.say({"id": frame["id"], "result": {}})
            else:
                refusal = {"code": -32601, "message": "no such method"}
                await stage.actor.say({"id": frame["id"], "error": refusal})
                await stage.actor.answer("session/load", {})

        nursery.start_soon(act)
        assert (await stage.agent.continue_session("old", "/w")).id == "old"


async def test_requests_have_a_time_limit(autojump_clock: MockClock) -> None:
    """A request without an answer in time is taken back, and its late answer is ignored."""
    async with staged(limits=acp.Limits(request_seconds=5)) as stage:
        with pytest.raises(acp.TimedOut, match="session/set_mode"):
            await stage.session.request("session/set_mode")
        id_ = (await stage.actor.receive("session/set_mode"))["id"]
        assert (await stage.actor.receive("$/cancel_request"))["params"] == {"requestId": id_}
        turn = stage.session.prompt("go")
        prompt = await stage.actor.prompted()
        await stage.actor.say({"id": id_, "result": {}}, ended(prompt))
        assert await turn == "end_turn"


async def test_handlers_do_not_use_up_the_time_of_an_answer(autojump_clock: MockClock) -> None:
    """An answer that has come in time counts, even if handlers before it take longer."""

    async def handle(session: acp.Session, update: acp.Update) -> None:
        await trio.sleep(500)

    async with (
        staged(on_update=handle, limits=acp.Limits(request_seconds=5)) as stage,
        trio.open_nursery() as nursery,
    ):

        async def act() -> None:
            frame = await stage.actor.receive("x")
            await stage.actor.say(said("slow"), {"id": frame["id"], "result": 7})

        nursery.start_soon(act)
        assert await stage.session.request("x") == 7


async def test_cancelling_a_request(autojump_clock: MockClock) -> None:
    """A request whose caller is cancelled is taken back."""
    async with staged() as stage:
        with trio.move_on_after(1):
            await stage.session.request("x")
        id_ = (await stage.actor.receive("x"))["id"]
        assert (await stage.actor.receive("$/cancel_request"))["params"] == {"requestId": id_}
