"""What `--agent` and `--agents` may name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from arcp_trio.cli.errors import CommandError
from arcp_trio.cli.serve.loading import named_agents
from arcp_trio.cli.serve.options import ServeOptions

GOOD = """
import functools
import arcp_trio

agents = arcp_trio.Agents()
more = arcp_trio.Agents()

@agents.agent("listed", version="1.0.0")
@more.agent("other", version="2.0.0")
async def work(job): ...

async def with_more(job, extra): ...
partly = functools.partial(with_more, extra=1)

def plain(job): ...
async def generator(job): yield
"""


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in a folder with modules of agents, and unload them after the test."""
    sources = {
        "good_agents": GOOD,
        "raises": "raise RuntimeError('first\\nsecond')",
        "leaves": "raise SystemExit(0)",
        "misspelt": "import arcp_trio\nimprot this",
        "wants_more": "\nimport no_such_dependency",
        "misused": "import arcp_trio\narcp_trio.Agents().agent('No Name')(None)",
        "misread": "import json\n\njson.loads('{')",
        "leads_on": "import raises",
        "json_like": "agents = []",
    }
    for name, source in sources.items():
        (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    for name in sources:
        sys.modules.pop(name, None)


def names(options: ServeOptions) -> list[str]:
    """Return the agents that these options name, with their versions."""
    found = named_agents(options)
    return [f"{name}@{each.default(name)}" for each in found for name in each.names()]


def test_a_plain_function_becomes_an_agent() -> None:
    """A plain function is served as one, in a thread."""
    (found,) = named_agents(ServeOptions(agent=("mine=good_agents:plain",)))
    assert found.resolve("mine").loop is None


def test_an_async_function_becomes_an_agent() -> None:
    """`--agent` takes an async function, and a name with or without a version."""
    assert names(ServeOptions(agent=("mine=good_agents:work",))) == ["mine@1.0.0"]
    assert names(ServeOptions(agent=("mine@v2+x=good_agents:partly",))) == ["mine@v2+x"]


def test_a_command_becomes_an_agent() -> None:
    """`--agent` takes a program with its arguments, written as for a shell."""
    assert names(ServeOptions(agent=("mine@2=stdio:sh -c 'exit 1'",))) == ["mine@2"]


def test_a_registry_brings_its_agents() -> None:
    """`--agents` takes a module's `agents`, or the registry that is named."""
    assert names(ServeOptions(agents=("good_agents",))) == ["listed@1.0.0"]
    assert names(ServeOptions(agents=("good_agents:more",))) == ["other@2.0.0"]


@pytest.mark.parametrize("agent", [(), ("mine=good_agents:work",)])
def test_workers_need_agents(agent: tuple[str, ...], caplog: pytest.LogCaptureFixture) -> None:
    """`--workers` without `--agents` is warned of: no agent runs in them."""
    named_agents(ServeOptions(workers=2, agent=agent))
    assert "no agent runs in a worker: --workers is for those of --agents" in caplog.messages


def test_the_current_directory_comes_first(tmp_path: Path) -> None:
    """A module of the current folder comes before another one of its name."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "good_agents.py").write_text("raise AssertionError", encoding="utf-8")
    sys.path.insert(0, str(elsewhere))
    assert names(ServeOptions(agents=("good_agents",))) == ["listed@1.0.0"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("mine", "write NAME"),
        ("mine=good_agents", "write NAME"),
        ("mine=:work", "write NAME"),
        ("mine=good_agents:", "write NAME"),
        ("=good_agents:work", "agent"),
        ("Mine=good_agents:work", "agent"),
        ("mine@=good_agents:work", "agent"),
        ("mine@1@2=good_agents:work", "agent"),
        ("mine@a b=good_agents:work", "agent"),
        ("mine=nowhere:work", "there is no module nowhere"),
        ("mine=good_agents.py:work", "leave out the .py, good_agents"),
        ("mine=good_agents.inner:work", "there is no module good_agents.inner"),
        ("mine=good_agents:absent", "good_agents, good_agents.py, has no absent"),
        ("mine=good_agents:generator", "not an async function, nor a plain one"),
        ("mine=good_agents:agents", "not an async function, nor a plain one"),
        ("mine=raises:work", "importing raises failed with RuntimeError: first (raises.py line 1)"),
        ("mine=leaves:work", "importing leaves failed with SystemExit: 0 (leaves.py line 1)"),
        ("mine=misspelt:work", "importing misspelt failed with SyntaxError: "),
        ("mine=misspelt:work", "(misspelt.py line 2)"),
        ("mine=wants_more:work", "importing wants_more failed with ModuleNotFoundError: "),
        ("mine=wants_more:work", "'no_such_dependency' (wants_more.py line 2)"),
        ("mine=misused:work", " (misused.py line 2)"),
        ("mine=misread:work", " (misread.py line 3)"),
        ("mine=leads_on:work", "RuntimeError: first (raises.py line 1)"),
        ("mine=..good:work", "importing ..good failed with TypeError"),
        ("mine=stdio:", "write NAME"),
        ("mine=stdio:  ", "the command is not a program"),
        ("mine=stdio:no-such-program --flag", "'no-such-program' is not a program"),
        ("mine=stdio:sh -c 'unfinished", "no closing quotation"),
    ],
)
def test_a_bad_agent_is_one_line(text: str, complaint: str) -> None:
    """The message repeats the option and says what is wrong with it, in one line."""
    with pytest.raises(CommandError) as caught:
        named_agents(ServeOptions(agent=(text,)))
    message = str(caught.value)
    assert message.startswith(f"--agent {text}: ")
    assert complaint in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (":agents", "write MODULE"),
        ("good_agents:", "write MODULE"),
        ("nowhere", "there is no module nowhere"),
        ("good_agents.py", "leave out the .py, good_agents"),
        ("good_agents.py:agents", "leave out the .py, good_agents"),
        ("nowhere.py", "leave out the .py, nowhere"),
        ("./good_agents.py", "write good_agents, a module below the current folder has no /"),
        ("mine/good_agents.py", "write mine.good_agents, a module"),
        ("/mine/good_agents.py", "write good_agents, a module below the current folder"),
        ("good_agents:absent", "good_agents, good_agents.py, has no absent"),
        ("json", "has no agents; write agents = arcp_trio.Agents() in it"),
        ("good_agents:work", "work is not an arcp_trio.Agents"),
        ("json_like", "agents is not an arcp_trio.Agents"),
        ("raises", "importing raises failed with RuntimeError: first (raises.py line 1)"),
    ],
)
def test_a_bad_registry_is_one_line(text: str, complaint: str) -> None:
    """The message repeats the option and says what is wrong with it, in one line."""
    with pytest.raises(CommandError) as caught:
        named_agents(ServeOptions(agents=(text,)))
    message = str(caught.value)
    assert message.startswith(f"--agents {text}: ")
    assert complaint in message
    assert "\n" not in message
