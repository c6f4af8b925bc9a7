"""What a program is given: its job, the bounds of it, and its environment."""

from __future__ import annotations

import os
from typing import Any

import pytest

from arcp_trio import (
    JobFailed,
    stdio_agent,
)
from tests.processes import alive
from tests.proxies.runtimes import (
    connected,
    run,
)


@pytest.mark.spec("4-2", "11-2")
async def test_what_a_program_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program gets the job, its bounds and its trace, and a small environment of its own."""
    monkeypatch.setenv("ARCP_TOKENS", "alice=secret")
    monkeypatch.setenv("DATABASE_PASSWORD", "secret")
    monkeypatch.setenv("LC_ALL", "C")
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    async with connected() as client:
        handle = await client.submit(
            "mirror",
            {"text": "é漢😀"},
            lease={"tool.call": ["search.*"], "fs.read": ["/ws/**"]},
            budget={"USD": "2.50"},
            expires_in=300,
            max_runtime=100,
            trace_id=trace_id,
        )
        seen: Any = await handle.result()
    assert seen["agent"] == "mirror@1.2.0"
    assert seen["input"] == {"text": "é漢😀"}
    assert seen["lease"] == handle.lease
    assert seen["budget"] == {"USD": "2.50"}
    assert seen["expires_at"] <= str(handle.lease_constraints["expires_at"])
    assert 80 < seen["seconds"] <= 100
    assert seen["trace_id"] == trace_id
    assert seen["group"] == seen["pid"] != os.getpgid(0)
    assert not alive(seen["pid"])

    variables = seen["environment"]
    token = variables["ARCP_TOKEN"]
    assert variables["ARCP_TOKENS"] == f"parent={token}"
    assert len(token) >= 32
    known = {"PATH", "HOME", "LANG", "TZ", "TMPDIR", "ARCP_TOKEN", "ARCP_TOKENS", "PYTHONPATH"}
    # Under that locale the interpreter sets such variables by itself.
    assert {name for name in variables if not name.startswith("LC_")} <= known
    assert variables["LC_ALL"] == "C"
    assert "secret" not in str(variables)


async def test_a_token_is_for_one_job() -> None:
    """Each program has a token of its own."""
    async with connected() as client:
        first = await run(client, "mirror")
        second = await run(client, "other-name")
    assert first["environment"]["ARCP_TOKEN"] != second["environment"]["ARCP_TOKEN"]
    assert second["agent"] == "mirror@1.2.0"


async def test_several_agents_and_none_of_the_name() -> None:
    """A program with several agents, and none of the job's name, fails the job."""
    async with connected() as client:
        with pytest.raises(JobFailed) as caught:
            await run(client, "several")
    assert "no agent several, but several: one, two" in caught.value.message


@pytest.mark.parametrize(
    ("terms", "feature"),
    [
        ({"budget": {"USD": 1}}, "cost.budget"),
        ({"expires_in": 60}, "lease_expires_at"),
        ({"lease": {"model.use": ["small-*"]}}, "model.use"),
    ],
)
async def test_a_program_that_cannot_be_bound(terms: Any, feature: str) -> None:
    """A program without a feature that enforces a bound of the job does not get the job."""
    async with connected() as client:
        with pytest.raises(JobFailed) as caught:
            await run(client, "sloppy", **terms)
    assert f"has no {feature}" in caught.value.message


def test_a_command_is_a_list() -> None:
    """A command that is a string, or empty, raises an error at once."""
    with pytest.raises(TypeError, match="a list"):
        stdio_agent("python agent.py")
    with pytest.raises(ValueError, match="empty"):
        stdio_agent([])
