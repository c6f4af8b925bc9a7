"""How the program of a job may end, and what its client is told."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import pytest

from arcp_trio import JobFailed
from tests.processes import alive, gone, has_children
from tests.proxies.acp.stage import begin, command, connected, first_word, told

pytestmark = pytest.mark.real_tcp


async def failure(handle: Any) -> JobFailed:
    """Return how a job failed."""
    with pytest.raises(JobFailed) as caught:
        await handle.result()
    return caught.value


@pytest.mark.parametrize("reason", ["refusal", "max_turn_requests", "cancelled", "no such reason"])
async def test_a_turn_that_is_not_a_success(reason: str) -> None:
    """A turn with another stop reason fails its job, which says the reason."""
    async with connected() as client:
        handle = await begin(client, ["say", "x"], ["end", reason])
        error = await failure(handle)
        assert (error.code, error.details) == ("INTERNAL_ERROR", {"stop_reason": reason})
        assert error.message == f"agent scripted has ended its turn: {reason}"
        assert [body["data"] for _, body in await told(handle)] == ["x"]


async def test_a_turn_that_is_cut_short() -> None:
    """A turn that has reached the model's bound of tokens is a success."""
    async with connected() as client:
        handle = await begin(client, ["say", "x"], ["end", "max_tokens"])
        assert await handle.result() == "x"


async def test_an_error_in_place_of_an_answer() -> None:
    """The words of an agent's error are its job's; one of them means that it wants a login."""
    async with connected() as client:
        error = await failure(await begin(client, ["fail", -32603, "no model"]))
        assert error.message == "agent scripted answered with an error: no model"
        assert error.code == "INTERNAL_ERROR"
        error = await failure(await begin(client, ["fail", -32000, "secret"]))
        assert (error.code, error.message) == (
            "AGENT_NOT_AVAILABLE",
            "agent scripted wants a login",
        )


LOGGED = "the runtime's log has what it said"

AGENTS = {
    "old": command(version=2),
    "login": command(errors={"session/new": {"code": -32000, "message": "log in"}}),
    "logins": command(
        errors={"session/new": {"code": -32000, "message": "log in"}},
        logins=[{"id": "chat", "name": "Log in with Chat"}, {"id": "api-key", "name": 5}, {}],
    ),
    "wrong": command(errors={"session/new": {"code": -32602, "message": "bad cwd"}}),
    "dead": command(first=[["exit", 3]]),
    "killed": command(first=[["signal", signal.SIGSEGV]]),
    "closed": command(first=[["close"]]),
    "odd": command(version="one"),
    "absent": ["/no/such/program"],
    "unrunnable": ["/etc/passwd"],
    "yes": ["yes"],
    "not-acp": [sys.executable, "-c", "print('hello')"],
}


@pytest.mark.parametrize(
    ("agent", "code", "words"),
    [
        ("old", "AGENT_NOT_AVAILABLE", "speaks another version of ACP"),
        ("login", "AGENT_NOT_AVAILABLE", "wants a login"),
        ("logins", "AGENT_NOT_AVAILABLE", "a login; it offers: Log in with Chat, api-key"),
        ("wrong", "INTERNAL_ERROR", "answered with an error: bad cwd"),
        ("dead", "INTERNAL_ERROR", f": its process ended with exit status 3; {LOGGED}"),
        ("killed", "INTERNAL_ERROR", f": its process ended by SIGSEGV; {LOGGED}"),
        ("closed", "INTERNAL_ERROR", ": its process no longer reads or writes"),
        ("odd", "INTERNAL_ERROR", ": what its process writes is not ACP"),
        ("absent", "AGENT_NOT_AVAILABLE", "cannot be started"),
        ("unrunnable", "AGENT_NOT_AVAILABLE", "cannot be started"),
        ("yes", "INTERNAL_ERROR", ": what its process writes is not ACP"),
        ("not-acp", "INTERNAL_ERROR", f": its process ended with exit status 0; {LOGGED}"),
    ],
)
async def test_a_program_that_cannot_be_spoken_with(agent: str, code: str, words: str) -> None:
    """The job's error names the agent and what is wrong, and shows no standard error."""
    async with connected(AGENTS) as client:
        error = await failure(await client.submit(agent, "go"))
        assert error.code == code
        assert error.message.startswith(f"agent {agent}")
        assert error.message.endswith(words)


@pytest.mark.parametrize(
    ("step", "status", "words"),
    [
        (["exit", 3], 3, "with exit status 3"),
        (["exit", 0], 0, "with exit status 0"),
        (["signal", signal.SIGKILL], -9, "by SIGKILL"),
    ],
)
async def test_a_program_that_dies(step: list[Any], status: int, words: str) -> None:
    """What a program said before it died is told, its call ends, and the error has its status."""
    call = {"sessionUpdate": "tool_call", "toolCallId": "c", "kind": "read", "title": "t"}
    async with connected() as client:
        handle = await begin(client, ["say", "a"], ["updates", call], ["errors", 1, 5], step)
        error = await failure(handle)
        assert error.message == f"agent scripted: its process ended {words}; {LOGGED}"
        assert (error.retryable, error.details) == (True, {"exit_status": status})
        kinds = [kind for kind, _ in await told(handle)]
        assert kinds == ["result_chunk", "tool_call", "tool_result"]


async def test_a_program_that_closes_its_output_and_lives() -> None:
    """A program that can say nothing more fails its job, and is ended."""
    async with connected() as client:
        handle = await begin(client, ["pid"], ["close"])
        assert (await failure(handle)).message.endswith("its process no longer reads or writes")
        await gone([await first_word(handle)])


@pytest.mark.sandbox
async def test_a_contained_program_that_closes_its_output_and_lives() -> None:
    """Nobody keeps the output of a contained program open in its place."""
    async with connected(sandbox="require") as client:
        handle = await begin(client, ["say", "x"], ["close"])
        assert (await failure(handle)).message.endswith("its process no longer reads or writes")


async def test_a_program_that_does_not_want_to_end() -> None:
    """A program that has answered, and ignores the end of its input and SIGTERM, is killed."""
    async with connected() as client:
        handle = await begin(client, ["pid"], ["deaf"])
        pid = await first_word(handle)
        assert await handle.result() == str(pid)
        assert not alive(pid)


@pytest.mark.parametrize("step", ["fork", "setsid"])
async def test_what_a_program_leaves_behind(step: str) -> None:
    """A process that holds the program's streams delays no end; one of the group ends with it."""
    async with connected() as client:
        handle = await begin(client, [step], ["exit", 5])
        assert (await failure(handle)).message.endswith(f"exit status 5; {LOGGED}")
        pid = await first_word(handle)
        if step == "setsid" and alive(pid):  # not contained
            os.kill(pid, signal.SIGKILL)
        await gone([pid])


async def test_a_program_that_dies_with_a_command_running() -> None:
    """A program that dies while its command runs and its question is open takes both with it."""
    lease = {
        "tool.call": ["terminal/sleep"],
        "x-vendor.arcp-trio.ask.tool.call": ["acp/think"],
    }
    question = {
        "toolCall": {"toolCallId": "p", "kind": "think"},
        "options": [{"optionId": "o", "name": "o", "kind": "allow_once"}],
    }
    async with connected() as client:
        handle = await begin(
            client,
            ["send", "terminal/create", {"command": "sleep", "args": ["1234"]}],
            ["send", "session/request_permission", question],
            ["say", "x"],
            ["sleep", 0.5],
            ["exit", 3],
            lease=lease,
        )
        assert (await failure(handle)).message.endswith(f"with exit status 3; {LOGGED}")
        kinds = [kind for kind, _ in await told(handle)]
        assert kinds.count("tool_call") == kinds.count("tool_result") == 2
    assert not has_children()
