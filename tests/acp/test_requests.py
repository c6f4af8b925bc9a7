"""What the agent asks for: who decides, what is answered, and what is refused at once."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import acp
from arcp_trio.transport.memory import memory_streams
from tests.acp.stage import INITIALIZED, Actor, asked, decided, ended, said, staged, text

ONCE, ALWAYS, NO, NEVER = "allow_once", "allow_always", "reject_once", "reject_always"


def read(id_: object = 0, method: str = "fs/read_text_file", **params: Any) -> dict[str, Any]:
    """Return a request to read a file."""
    return {"id": id_, "method": method, "params": {"sessionId": "s", "path": "/w/a", **params}}


@pytest.mark.parametrize(
    ("policy", "offered", "chosen"),
    [
        (acp.refuse, [ALWAYS, ONCE, NEVER, NO], NO),
        (acp.refuse, [ALWAYS, ONCE, NEVER], NEVER),
        (acp.refuse, [ALWAYS, ONCE], None),
        (acp.refuse, [], None),
        (acp.allow_once, [ALWAYS, ONCE, NEVER, NO], ONCE),
        (acp.allow_once, [ALWAYS, NO], NO),
        (acp.allow_once, [ALWAYS], None),
    ],
)
async def test_ready_made_decisions(
    policy: Any, offered: list[str], chosen: str | None, autojump_clock: MockClock
) -> None:
    """A refusal is for once if possible, and allowing is never for more than once."""
    async with staged(permission=policy) as stage:
        await stage.actor.say(asked("q", *offered))
        answer = await stage.actor.receive()
        assert answer == {"id": "q", "result": decided(chosen and f"o-{chosen}")}


async def test_what_is_not_given_is_refused(autojump_clock: MockClock) -> None:
    """Without a handler all permissions are refused, and nothing else is offered."""
    async with staged() as stage:
        await stage.actor.say(asked(0, ONCE, NO))
        assert (await stage.actor.receive())["result"] == decided(f"o-{NO}")
        for method in ("fs/read_text_file", "terminal/create", "made/up"):
            await stage.actor.say(read(1, method))
            error = (await stage.actor.receive())["error"]
            assert error == {"code": -32601, "message": f"{method} is not offered"}
        await stage.actor.say({"method": "_auth/made_up", "params": {}}, read(2))
        assert (await stage.actor.receive())["id"] == 2, "an unknown notification has no answer"


@pytest.mark.parametrize(
    "options",
    [{}, {"files": acp.STREAM}, {"files": acp.STREAM, "terminals": acp.STREAM}],
)
async def test_what_is_offered(options: dict[str, Any], autojump_clock: MockClock) -> None:
    """The agent is told of files and terminals if the program takes such requests."""
    ours, theirs = memory_streams()
    actor = Actor(theirs)
    frames: list[Any] = []
    async with trio.open_nursery() as nursery:

        async def act() -> None:
            frames.append(await actor.answer("initialize", INITIALIZED))

        nursery.start_soon(act)
        info = {"name": "mine", "version": "7"}
        async with acp.connect(ours, ours, client_info=info, **options):
            pass
    files = "files" in options
    fs = {"readTextFile": files, "writeTextFile": files}
    offered = {"fs": fs, "terminal": "terminals" in options}
    params = {"protocolVersion": 1, "clientCapabilities": offered, "clientInfo": info}
    assert frames[0]["params"] == params


async def test_files_and_terminals(autojump_clock: MockClock) -> None:
    """Handlers get the requests of their kind, with what they ask for as it was sent."""
    seen: list[object] = []

    async def files(request: acp.FileRequest) -> None:
        seen.append((request.method, request.path, request.params.get("line")))
        request.answer({"content": "x"})

    async def terminals(request: acp.TerminalRequest) -> None:
        seen.append((request.method, request.session.id))
        request.fail(-32002, "there is no such terminal")

    async with staged(files=files, terminals=terminals) as stage:
        await stage.actor.say(read(None, path="/w/../x", line=3))
        assert await stage.actor.receive() == {"id": None, "result": {"content": "x"}}
        await stage.actor.say(read(0, "terminal/kill", terminalId="t"))
        error = {"code": -32002, "message": "there is no such terminal"}
        assert await stage.actor.receive() == {"id": 0, "error": error}
    assert seen == [("fs/read_text_file", "/w/../x", 3), ("terminal/kill", "s")]


@pytest.mark.logs_error("request handler failed")
async def test_a_handler_without_an_answer(autojump_clock: MockClock) -> None:
    """A handler that returns or fails without an answer: the agent gets one without its words."""

    async def decide(request: acp.PermissionRequest) -> None:
        return None

    async def files(request: acp.FileRequest) -> None:
        raise LookupError("a secret of the program's")

    async with staged(permission=decide, files=files) as stage:
        await stage.actor.say(asked(0, ONCE, NO))
        assert (await stage.actor.receive())["result"] == decided(None)
        await stage.actor.say(read(1))
        error = (await stage.actor.receive())["error"]
        assert error == {"code": -32603, "message": "the client has not answered the request"}


async def test_the_first_answer_counts(autojump_clock: MockClock) -> None:
    """A second answer is not sent, and a result that is not JSON is the handler's own error."""

    async def decide(request: acp.PermissionRequest) -> None:
        with pytest.raises(ValueError, match="no option"):
            request.select("o-made-up")
        with pytest.raises(ValueError, match="not a JSON value"):
            request.answer({"outcome": object()})
        before = request.answered
        request.select(f"o-{ALWAYS}")
        assert (before, request.answered) == (False, True)
        request.refuse()
        request.fail(1, "again")

    async with staged(permission=decide) as stage:
        await stage.actor.say(asked(0, ALWAYS, NO))
        assert (await stage.actor.receive())["result"] == decided(f"o-{ALWAYS}")
        await stage.actor.say(read(1))
        assert (await stage.actor.receive())["id"] == 1


async def test_what_a_permission_shows(autojump_clock: MockClock) -> None:
    """A permission has its tool call and its options, also where the agent leaves much out."""
    requests: list[acp.PermissionRequest] = []

    async def decide(request: acp.PermissionRequest) -> None:
        requests.append(request)

    async with staged(permission=decide) as stage:
        await stage.actor.say(asked(0, ONCE, NO, tool="edit"))
        bare = asked(1)
        bare["params"] = {"sessionId": "s", "toolCall": 5, "options": [{"optionId": 7}, None]}
        await stage.actor.say(bare)
        for _ in range(2):
            assert (await stage.actor.receive())["result"] == decided(None)
    full, poor = requests
    assert full.tool.id == "1"
    assert full.tool.raw["kind"] == "edit"
    option = full.option("made_up", NO, ONCE)
    assert option is not None
    assert (option.id, option.name, option.kind) == (f"o-{NO}", NO, NO)
    assert poor.tool.raw == {}
    assert poor.options == [acp.PermissionOption({"optionId": 7})]
    assert (poor.options[0].id, poor.options[0].kind) == ("", "")
    assert poor.option(ONCE) is None


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ([], "the params are not an object"),
        ({"sessionId": "s", "path": 5}, "the path is not a string"),
        ({"sessionId": "other", "path": "/"}, "there is no such session"),
        ({"path": "/"}, "there is no such session"),
    ],
)
async def test_malformed_requests(params: Any, words: str, autojump_clock: MockClock) -> None:
    """A request that says nothing usable is refused with a reason, and no handler sees it."""

    async def files(request: acp.FileRequest) -> None:
        raise AssertionError

    async with staged(files=files) as stage:
        await stage.actor.say({"id": 0, "method": "fs/read_text_file", "params": params})
        answer = await stage.actor.receive()
        assert answer == {"id": 0, "error": {"code": -32602, "message": words}}


async def test_the_agent_takes_a_request_back(autojump_clock: MockClock) -> None:
    """A request that the agent cancels is answered as cancelled, and its handler is ended."""
    ends: list[str] = []

    async def decide(request: acp.PermissionRequest) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ends.append(str(request.answered))

    async with staged(permission=decide) as stage:
        await stage.actor.say(asked("q", ONCE))
        await wait_all_tasks_blocked()
        unknown: Any
        for unknown in ("other", True, [], {"a": 1}):
            note = {"method": "$/cancel_request", "params": {"requestId": unknown}}
            await stage.actor.say(note)
        assert not ends
        await stage.actor.say({"method": "$/cancel_request", "params": {"requestId": "q"}})
        answer = await stage.actor.receive()
        assert answer == {"id": "q", "error": {"code": -32800, "message": "cancelled"}}
        assert ends == ["True"]


async def test_a_request_taken_back_before_its_turn(autojump_clock: MockClock) -> None:
    """A request that is cancelled while updates before it are handled is never handled."""

    async def handle(session: acp.Session, update: acp.Update) -> None:
        await trio.sleep(1)

    async def decide(request: acp.PermissionRequest) -> None:
        raise AssertionError

    async with staged(on_update=handle, permission=decide) as stage:
        cancelled = {"method": "$/cancel_request", "params": {"requestId": 0}}
        await stage.actor.say(said("a"), asked(0, ONCE), cancelled)
        assert (await stage.actor.receive())["error"]["code"] == -32800
        await trio.sleep(5)


async def test_requests_in_the_stream_of_a_turn_that_is_only_awaited(
    autojump_clock: MockClock,
) -> None:
    """Where nobody iterates, requests that are to be in the stream are given up."""
    async with staged(permission=acp.STREAM) as stage, trio.open_nursery() as nursery:
        turn = stage.session.prompt("go")
        id_ = await stage.actor.prompted()

        async def act() -> None:
            await stage.actor.say(asked(0, ONCE, NO))
            assert (await stage.actor.receive())["result"] == decided(None)
            await stage.actor.say(ended(id_), asked(1, ONCE, NO))
            assert (await stage.actor.receive())["result"] == decided(None), "outside of a turn"

        nursery.start_soon(act)
        assert await turn == "end_turn"


async def test_cancelling_leaves_permissions_undecided(autojump_clock: MockClock) -> None:
    """With session/cancel, open permissions are answered as cancelled, and so are later ones."""

    async def decide(request: acp.PermissionRequest) -> None:
        assert request.tool.raw["kind"] == "edit"
        await trio.sleep_forever()

    async def files(request: acp.FileRequest) -> None:
        request.answer({"content": ""})

    async with staged(permission=decide, files=files) as stage:
        turn = stage.session.prompt("go")
        id_ = await stage.actor.prompted()
        await stage.actor.say(asked(0, ONCE))
        await wait_all_tasks_blocked()
        turn.stop()
        turn.stop()
        assert (await stage.actor.receive("session/cancel"))["params"] == {"sessionId": "s"}
        assert (await stage.actor.receive()) == {"id": 0, "result": decided(None)}
        await stage.actor.say(asked(1, ONCE, tool="execute"), read(2))
        assert (await stage.actor.receive()) == {"id": 1, "result": decided(None)}
        assert (await stage.actor.receive()) == {"id": 2, "result": {"content": ""}}
        await stage.actor.say(said("last words"), ended(id_, "cancelled"))
        assert [text(item) async for item in turn] == ["last words"]
        assert turn.stop_reason == "cancelled"
