"""The fixtures for pytest, as a user of the package gets them."""

from __future__ import annotations

from pathlib import Path

import pytest

import arcp_trio

USER_TEST = """
import pytest, trio

@pytest.mark.trio
async def test_greeting(arcp_runtime, arcp_client, autojump_clock):
    @arcp_runtime.agent("greeter", version="1.0.0")
    async def greeter(job):
        await trio.sleep(3_600)
        return f"hello {job.input}"

    job = await arcp_client.submit("greeter", "Ada")
    assert await job.result() == "hello Ada"
    assert trio.current_time() >= 3_600
"""


def test_a_user_needs_one_line(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line in `conftest.py` makes the fixtures available, in virtual time."""
    monkeypatch.setenv("PYTHONPATH", str(Path(arcp_trio.__file__).parents[1]))
    pytester.makeconftest('pytest_plugins = ["arcp_trio.testing.fixtures"]')
    pytester.makeini("[pytest]\nfilterwarnings = error")
    pytester.makepyfile(USER_TEST)
    pytester.runpytest_subprocess().assert_outcomes(passed=1)
