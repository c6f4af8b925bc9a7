"""fast-agent with its model that only passes through: calls of tools, conversations, approvals."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from arcp_trio import Client, JobHandle
from tests.agents.stage import SLOW, errors, installed, phases, serving, told

pytestmark = SLOW

ASK = "x-vendor.arcp-trio.ask"


@pytest.fixture
def command() -> Sequence[str]:
    """Return the command of the agent; the test is skipped where it is not installed."""
    program = installed("fast-agent/bin/fast-agent")
    return [program, "--no-update-check", "acp", "--model", "passthrough", "--shell"]


def call(tool: str, **arguments: Any) -> str:
    """Return the prompt at which the model calls a tool."""
    return f"***CALL_TOOL {tool} {json.dumps(arguments)}"


def tools(events: Sequence[tuple[str, Any]]) -> list[str]:
    """Return the requests of the agent that were served or refused."""
    return [
        body["tool"] for kind, body in events if kind == "tool_call" and "/" in body["tool"][1:]
    ]


def write(path: Path, content: str) -> str:
    """Return the prompt at which the model writes a file."""
    return call("write_text_file", path=str(path), content=content)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder to work in."""
    path = tmp_path / "work"
    path.mkdir()
    return path


async def submit(client: Client, prompt: str, work: Path, *more: str, **terms: Any) -> JobHandle:
    """Submit a job that may read and write in its folder; `more` are tools that it may call."""
    lease = {"fs.read": [str(work), f"{work}/**"], "fs.write": [f"{work}/**"], "tool.call": more}
    lease |= terms.pop("lease", {})
    return await client.submit("coder", {"prompt": prompt, "cwd": str(work), **terms}, lease=lease)


@pytest.mark.parametrize("sandbox", ["off", "auto"])
async def test_files(tmp_path: Path, command: Sequence[str], work: Path, sandbox: str) -> None:
    """It writes and reads a file through the runtime, and is told what the lease does not allow."""
    async with serving(command, tmp_path, sandbox=sandbox) as client:
        job = await submit(client, write(work / "a.txt", "by fast-agent"), work)
        events = await told(job)
        assert phases(events)[1] == "session: fast-agent-acp 0.10.48"
        assert "fs/write_text_file" in tools(events)
        assert (work / "a.txt").read_text() == "by fast-agent"
        job = await submit(client, call("read_text_file", path=str(work / "a.txt")), work)
        assert "by fast-agent" in await job.result()
        outside = tmp_path / "b.txt"
        job = await submit(client, write(outside, "no"), work)
        assert errors(await told(job))[0] == "PERMISSION_DENIED"
        assert not outside.exists()


async def test_a_command(tmp_path: Path, command: Sequence[str], work: Path) -> None:
    """It runs a command in a terminal of the runtime, if the lease has the shell."""
    prompt = call("execute", command="echo $((6 * 7)) > said; cat said")
    async with serving(command, tmp_path) as client:
        job = await submit(client, prompt, work, "acp/execute", "terminal/sh")
        events = await told(job)
        assert "42" in await job.result()
        assert (work / "said").read_text() == "42\n"
        ended = [
            body["result"] for kind, body in events if kind == "tool_result" and body.get("result")
        ]
        assert {"exitCode": 0, "signal": None} in ended
        job = await submit(client, call("execute", command="touch other"), work)
        assert errors(await told(job))[0] == "PERMISSION_DENIED"
        assert not (work / "other").exists()


@pytest.mark.parametrize("answer", ["allow", "deny"])
async def test_an_approved_edit(
    tmp_path: Path, command: Sequence[str], work: Path, answer: str
) -> None:
    """What may be asked for is done if a person agrees, and is not if a person does not."""
    lease = {"fs.write": [], f"{ASK}.fs.write": [f"{work}/*.txt"]}
    async with serving([*command, "--home", str(tmp_path / "home")], tmp_path) as client:
        job = await submit(client, write(work / "a.txt", "approved"), work, lease=lease)
        asked: list[Any] = []
        async for question in job.questions():
            asked.append(question.capability)
            await question.answer(answer)
        await job.result()
    assert set(asked) == {"fs.write"}
    assert (work / "a.txt").exists() is (answer == "allow")


async def test_a_conversation(tmp_path: Path, command: Sequence[str]) -> None:
    """It goes on in a later job of another runtime over the same data; its replay is not told."""
    async with serving(command, tmp_path) as client:
        first = await client.submit("coder", "the first words")
        assert await first.result() == "the first words"
    async with serving(command, tmp_path) as client:
        job = await client.submit("coder", {"prompt": "the second words", "session": first.id})
        events = await told(job)
        assert await job.result() == "the second words"
        (about,) = [body for _, body in events if body.get("phase") == "session"]
        assert (about["session"], about["continued"]) == (first.id, True)
