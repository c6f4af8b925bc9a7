"""What the vendor's SDK clients see of a runtime with the demo agents and `slow_agents`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

_CLIENT: Final = Path(__file__).with_name("python_sdk.py")
_TYPESCRIPT_CLIENT: Final = Path(__file__).with_name("typescript_sdk.mjs")
TYPESCRIPT_SDK: Final = "ARCP_TEST_TYPESCRIPT_SDK"
"""The environment variable with the file of the vendor's TypeScript SDK, built: a module that has
`ARCPClient` and `WebSocketTransport`. It is on no registry."""
_COUNTED: Final = {"steps": [1, 2, 3, 4, 5], "end": {"status": "success", "result": {"done": 5}}}

TOLD: Final[dict[str, Any]] = {
    "features": [
        "ack",
        "agent_versions",
        "cost.budget",
        "heartbeat",
        "lease_expires_at",
        "list_jobs",
        "progress",
        "result_chunk",
        "subscribe",
    ],
    "echo": {"status": "success", "result": {"echo": {"text": "é漢😀"}}},
    "chatty": {"status": "success", "result": {"n": 500}},
    "chatty_events": 500,
    "shop": {
        "budget": {"USD": "USD:1.0"},
        "lease": {"tool.call": ["shop.*"], "cost.budget": ["USD:1.00"]},
        "left": [0.7, 0.4, 0.1, -0.2],
        "end": {"status": "success", "result": {"bought": 4, "stopped_by": "BUDGET_EXHAUSTED"}},
    },
    "teams": [
        result
        for n in range(10)
        for result in (
            {"results": [{"echo": n}, {"echo": n}]},
            {"echo": f"not of the team {n}"},
        )
    ],
    "watch": {
        "listed": [True],
        "running": _COUNTED,
        "over": _COUNTED,
        "over, elsewhere": _COUNTED,
        "pages": ["stroller@1.0.0", "shopper@1.0.0"],
        "unknown": "JOB_NOT_FOUND",
    },
    "report": {"status": "success", "size": 1_000_000, "pages": 250, "joined": True},
    "teller": {
        "chunks": [["word 0 ", True], ["word 1 ", True], ["word 2 ", True], ["", False]],
        "size": 21,
    },
    "cancelled": {"status": "cancelled", "result": None},
    "timed_out": {"status": "timed_out", "result": None},
    "refused": "AGENT_NOT_AVAILABLE",
    "dropped": True,
    "resumed_session": True,
    "after_resume": {"status": "success", "result": {"echo": "after the resume"}},
}


def check_client(url: str, token: str) -> None:
    """Run the client, and check that it sees what it should, without an error on its side."""
    client = subprocess.run(
        [sys.executable, str(_CLIENT), url, token],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert client.stderr == ""
    assert client.returncode == 0
    assert json.loads(client.stdout) == TOLD


TOLD_IN_TYPESCRIPT: Final[dict[str, Any]] = {
    "listed": True,
    "token_rotated": True,
    "numbers": [1, 2, 3, 4, 5, 6],
    "end": {"done": 5},
    "watched": 6,
    "watched_end": {"done": 5},
    "cancelled": "CANCELLED",
}


needs_typescript_sdk = pytest.mark.skipif(
    TYPESCRIPT_SDK not in os.environ or shutil.which("node") is None,
    reason=f"no TypeScript SDK: it is on no registry; {TYPESCRIPT_SDK} names a build, for Node.js",
)


def check_typescript_client(url: str, token: str) -> None:
    """Run the TypeScript client, and check that it sees what it should."""
    client = subprocess.run(
        ["node", str(_TYPESCRIPT_CLIENT), os.environ[TYPESCRIPT_SDK], url, token],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert client.returncode == 0, client.stderr
    assert json.loads(client.stdout.splitlines()[-1]) == TOLD_IN_TYPESCRIPT
