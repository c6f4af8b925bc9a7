"""What the root `conftest.py` requires of every test."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_errors_in_the_log_are_announced_or_fail_the_test(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unexpected ERROR record fails its test, and so does an expected one that does not come."""
    # In a process of its own, because these records would fail this test.
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeconftest((ROOT / "conftest.py").read_text())
    pytester.makeini("[pytest]\ntrio_mode = true\nmarkers = logs_error(regex): expected\n")
    pytester.makepyfile(
        """
        import logging

        import pytest

        async def test_fine():
            logging.warning("careful")

        async def test_unexpected():
            logging.error("broken")

        @pytest.mark.logs_error("brok.n")
        async def test_expected():
            logging.error("broken")

        @pytest.mark.logs_error("brok.n")
        async def test_another():
            logging.error("lost")

        @pytest.mark.logs_error("brok.n")
        async def test_missing():
            pass
        """
    )
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=5, errors=3)
    for name in ("unexpected", "another", "missing"):
        result.stdout.fnmatch_lines([f"*ERROR at teardown of test_{name} *"])
