"""What a program is told that uses the package in a way that cannot work."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import arcp_trio
from arcp_trio.testing import open_pair
from tests.stage import make_runtime

UNDER_TRIO = r"runs under Trio: start your main function with trio\.run\(\)"


def test_a_client_under_asyncio() -> None:
    """`connect` in an asyncio program says that it runs under Trio, and which example helps."""

    async def main() -> None:
        async with arcp_trio.connect("ws://127.0.0.1:1/arcp"):
            pass

    with pytest.raises(RuntimeError, match=rf"^arcp_trio\.connect {UNDER_TRIO}.*in_asyncio\.py"):
        asyncio.run(main())


def test_a_runtime_under_asyncio() -> None:
    """A runtime and `serve` say the same."""

    async def enter() -> None:
        async with make_runtime():
            pass

    with pytest.raises(RuntimeError, match=rf"^an arcp_trio\.Runtime {UNDER_TRIO}"):
        asyncio.run(enter())
    with pytest.raises(RuntimeError, match=rf"^arcp_trio\.serve {UNDER_TRIO}"):
        asyncio.run(arcp_trio.serve(make_runtime(), port=0))


async def test_serving_a_runtime_that_does_not_run() -> None:
    """`serve` outside of the runtime's block says so, instead of listening for nobody."""
    with (
        pytest.raises(RuntimeError, match="call serve inside `async with runtime:`"),
        trio.fail_after(5),
    ):
        await arcp_trio.serve(make_runtime(), port=0)


def test_tokens_as_a_dict() -> None:
    """Tokens without `StaticTokens` around them are refused at once."""
    tokens: Any = {"s3cret": "alice"}
    with pytest.raises(
        TypeError, match=r'StaticTokens\({"a token": "alice"}\), not a dict'
    ) as caught:
        arcp_trio.Runtime(auth=tokens)
    assert "s3cret" not in str(caught.value)


def test_an_agent_without_its_name() -> None:
    """`@runtime.agent` without a call says what to write."""
    agent: Any = make_runtime().agent

    with pytest.raises(TypeError, match=r'@runtime\.agent\("name"\)'):

        @agent
        async def greeter(job: arcp_trio.JobContext) -> None: ...


@pytest.mark.parametrize("function", [lambda: 1, lambda job, other: 1])
def test_an_agent_that_takes_no_job(function: Any) -> None:
    """A function that cannot be called with a job alone is refused as it is registered."""
    with pytest.raises(TypeError, match="does not take one argument, its job"):
        make_runtime().agent("a")(function)


@pytest.mark.parametrize(("name", "version"), [("My Agent", "1"), ("a@1", "2"), ("a", "1 beta")])
def test_an_agents_name_with_other_characters(name: str, version: str) -> None:
    """A name or a version that is not of the grammar is a `ValueError`, as documented."""
    with pytest.raises(ValueError, match=r"write name or name@version; a name has a-z, 0-9"):
        make_runtime().agent(name, version=version)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"budget": 5}, 'budget: expected a dict such as {"USD": "5.00"}, not 5'),
        ({"lease": ["tool.call"]}, 'lease: expected a dict such as {"tool.call": ["search.*"]}'),
        ({"lease": {"tool.call": "search.*"}}, "tool.call: expected a list of patterns"),
    ],
)
async def test_leases_of_another_shape(
    arguments: Any, words: str, autojump_clock: MockClock
) -> None:
    """A lease or a budget of another shape is refused where it is given, with an example."""
    runtime = make_runtime()
    async with runtime, open_pair(runtime) as client:
        with pytest.raises(TypeError) as caught:
            await client.submit("echo", **arguments)
    assert words in str(caught.value)
