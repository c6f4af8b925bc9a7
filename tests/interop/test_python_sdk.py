"""The vendor's Python SDK client against the real server process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.processes import starter

CLIENT = Path(__file__).with_name("python_sdk.py")


@pytest.mark.spec("4-1", "1.0/4.1-2")
def test_python_sdk_client_is_served_without_an_error_on_its_side(tmp_path: Path) -> None:
    """It submits, watches, cancels, times out, is refused, drops, resumes and leaves."""
    with starter(tmp_path) as start:
        server = start("serve", "--port", "0", "--memory", "--token", "vendor=tok")
        client = subprocess.run(
            [sys.executable, str(CLIENT), server.url(), "tok"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert client.stderr == ""
    assert client.returncode == 0
    assert json.loads(client.stdout) == {
        "features": [
            "ack",
            "agent_versions",
            "cost.budget",
            "heartbeat",
            "lease_expires_at",
            "progress",
        ],
        "echo": {"status": "success", "result": {"echo": {"text": "é漢😀"}}},
        "chatty": {"status": "success", "result": {"n": 500}},
        "chatty_events": 500,
        "cancelled": {"status": "cancelled", "result": None},
        "timed_out": {"status": "timed_out", "result": None},
        "refused": "AGENT_NOT_AVAILABLE",
        "dropped": True,
        "resumed_session": True,
        "after_resume": {"status": "success", "result": {"echo": "after the resume"}},
    }
