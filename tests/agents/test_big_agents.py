"""Coding agents that people use, with a scripted model, where `make agents` has installed them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from arcp_trio import Question
from tests.agents.model import TEXT, scripted_model
from tests.agents.stage import SLOW, errors, installed, phases, serving, told

pytestmark = SLOW


@attrs.frozen
class Coder:
    """An agent: its command, its tool that writes a file, and how it finds its model."""

    command: str
    arguments: Sequence[str]
    tool: str
    path: str
    """The name of the tool's argument that is the path."""
    variables: Callable[[str], Mapping[str, str]]
    """Variables that lead to the model at an address."""
    session: str
    """How it calls itself, without its version."""
    costs: bool = False
    """Whether it tells what it costs."""
    goes_on: bool = True
    """Whether it always finds its sessions again."""
    creates: bool = True
    """Whether it can create files through a client; if not, it can only change them."""


def _opencode(url: str) -> dict[str, str]:
    model = {
        "name": "fake",
        "tool_call": True,
        "limit": {"context": 100_000, "output": 4_000},
        "cost": {"input": 1_000, "output": 1_000},
    }
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{url}/v1", "apiKey": "none"},
        "models": {"fake": model},
    }
    settings = {
        "provider": {"fake": provider},
        "model": "fake/fake",
        "small_model": "fake/fake",
        "permission": {"edit": "ask", "bash": "ask"},
    }
    return {"OPENCODE_CONFIG_CONTENT": json.dumps(settings)}


CODERS = {
    "opencode": Coder(
        command="opencode",
        arguments=["acp", "--pure"],
        tool="write",
        path="filePath",
        variables=_opencode,
        session="OpenCode",
        costs=True,
    ),
    "claude": Coder(
        command="claude-agent-acp",
        arguments=[],
        tool="Write",
        path="file_path",
        variables=lambda url: {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none"},
        session="@agentclientprotocol/claude-agent-acp",
        costs=True,
    ),
    "gemini": Coder(
        command="gemini",
        arguments=["--acp", "--model", "gemini-2.5-flash"],
        tool="write_file",
        path="file_path",
        variables=lambda url: {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": "none"},
        session="gemini-cli",
        goes_on=False,  # it offers to load sessions, and then does not always find its own
        creates=False,  # it takes it for a failure that the file to be created is not there
    ),
    "qwen": Coder(
        command="qwen",
        arguments=["--acp", "--auth-type=openai"],
        tool="write_file",
        path="file_path",
        variables=lambda url: {
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_API_KEY": "none",
            "OPENAI_MODEL": "fake",
        },
        session="qwen-code",
    ),
}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder to work in."""
    path = tmp_path / "work"
    path.mkdir()
    return path


def contents(folder: Path) -> list[str]:
    """Return what is in the files of a folder."""
    return [path.read_text() for path in folder.iterdir() if path.is_file()]


@pytest.fixture(params=CODERS)
def name(request: pytest.FixtureRequest) -> str:
    """Return the name of an agent."""
    named: str = request.param
    return named


@pytest.fixture
def words(name: str) -> Sequence[str]:
    """Return the agent's command; the test is skipped where there is no such agent."""
    coder = CODERS[name]
    return [installed(f"{name}/node_modules/.bin/{coder.command}"), *coder.arguments]


@pytest.mark.parametrize("sandbox", ["off", "auto"])
async def test_a_file_is_written_under_a_lease(
    tmp_path: Path, work: Path, name: str, words: Sequence[str], sandbox: str
) -> None:
    """It writes where the lease lets it, tells what that costs, and goes on in a later job."""
    coder = CODERS[name]
    arguments = {coder.path: str(work / "a.txt"), "content": f"by {name}\n"}
    tree = {"fs.read": [str(work), f"{work}/**"]}
    if not coder.creates:
        (work / "a.txt").write_text("before\n")
    terms: dict[str, Any] = {"sandbox": sandbox}
    with scripted_model(coder.tool, arguments) as model:
        environment = coder.variables(model.url)
        if sandbox == "off":
            terms["home"] = tmp_path / "home"
            terms["home"].mkdir()
        else:
            terms["net"] = [f"{model.url}/**"]
        async with serving(words, tmp_path, environment=environment, **terms) as client:
            given = {"prompt": "write the file", "cwd": str(work)}
            lease = {**tree, "fs.write": [f"{work}/**"], "cost.budget": ["USD:5"]}
            job = await client.submit("coder", given, lease=lease)
            events = await told(job)
            assert (await job.result()).endswith(TEXT)
            assert phases(events)[1].startswith(f"session: {coder.session} ")
            assert (work / "a.txt").read_text() == f"by {name}\n"
            metrics = [body["name"] for kind, body in events if kind == "metric"]
            assert ("cost.inference" in metrics) is coder.costs
            if not coder.goes_on:
                return
            again = await client.submit("coder", {**given, "session": job.id}, lease=lease)
            events = await told(again)
            assert await again.result() == TEXT
            assert [body["continued"] for _, body in events if "continued" in body] == [True]


async def test_what_the_lease_does_not_allow(
    tmp_path: Path, work: Path, name: str, words: Sequence[str]
) -> None:
    """It asks, before it writes or for the write itself, and is refused."""
    coder = CODERS[name]
    if not coder.creates:
        (work / "a.txt").write_text("before\n")
    arguments = {coder.path: str(work / "a.txt"), "content": "no\n"}
    with scripted_model(coder.tool, arguments) as model:
        environment = {**coder.variables(model.url), "HOME": str(tmp_path)}
        async with serving(words, tmp_path, environment=environment, sandbox="off") as client:
            given = {"prompt": "write the file", "cwd": str(work)}
            lease = {"fs.read": [str(work), f"{work}/**"]}
            events = await told(await client.submit("coder", given, lease=lease))
    assert "PERMISSION_DENIED" in errors(events)
    assert contents(work) == ([] if coder.creates else ["before\n"])


async def test_an_edit_that_somebody_allows(
    tmp_path: Path, work: Path, name: str, words: Sequence[str]
) -> None:
    """One answer is enough for an edit in a folder that is read-only in the sandbox."""
    coder = CODERS[name]
    path = work / "a.txt"
    if not coder.creates:
        path.write_text("before\n")
    with scripted_model(coder.tool, {coder.path: str(path), "content": f"by {name}\n"}) as model:
        terms: dict[str, Any] = {"sandbox": "auto", "net": [f"{model.url}/**"]}
        environment = coder.variables(model.url)
        async with serving(words, tmp_path, environment=environment, **terms) as client:
            seen: list[Question] = []

            @client.on_question
            async def decide(question: Question) -> None:
                seen.append(question)
                await question.answer("allow")

            given = {"prompt": "write the file", "cwd": str(work)}
            may_ask = {"x-vendor.arcp-trio.ask.fs.write": [f"{work}/**"]}
            lease = {"fs.read": [str(work), f"{work}/**"], **may_ask}
            job = await client.submit("coder", given, lease=lease)
            events = await told(job)
            assert (await job.result()).endswith(TEXT)
    assert [each.targets for each in seen] == [[str(path)]]
    (change,) = seen[0].shown.changes or []
    assert f"+by {name}\n" in change.diff
    warnings = [body["message"] for kind, body in events if kind == "log"]
    warnings = [each for each in warnings if not each.startswith("the sandbox has refused http")]
    assert path.read_text() == f"by {name}\n"
    assert contents(work) == [f"by {name}\n"]
    assert warnings == []


@pytest.fixture
def codex() -> str:
    """Return the program of Codex; the test is skipped where it is not installed."""
    return installed("codex/node_modules/.bin/codex-acp")


async def test_codex_wants_a_login(tmp_path: Path, codex: str) -> None:
    """Codex, which has no scripted model here, says that it is not logged in."""
    environment = {"HOME": str(tmp_path)}
    async with serving([codex], tmp_path, environment=environment, sandbox="off") as client:
        job = await client.submit("coder", "hello")
        await told(job)
        assert job.terminal is not None
        assert job.terminal["code"] == "AGENT_NOT_AVAILABLE"
        assert job.terminal["message"].startswith("agent coder wants a login; it offers: ")
