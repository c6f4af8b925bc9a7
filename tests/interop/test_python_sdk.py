"""The vendor's Python SDK client against the real server process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.processes import starter
from tests.interop.told import check_client


@pytest.mark.spec("4-1", "1.0/4.1-2")
def test_python_sdk_client_is_served_without_an_error_on_its_side(tmp_path: Path) -> None:
    """The vendor's client uses every feature it has without an error on its side."""
    with starter(tmp_path) as start:
        options = ("--port", "0", "--memory", "--token", "vendor=tok")
        agents = ("--agents", "tests.interop.slow_agents", "--demo-agents")
        check_client(start("serve", *options, *agents).url(), "tok")
