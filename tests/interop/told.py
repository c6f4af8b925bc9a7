"""What the vendor's Python SDK client sees of a runtime with the demo agents and `slow_agents`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

_CLIENT: Final = Path(__file__).with_name("python_sdk.py")
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
        "pages": ["countdown@1.0.0", "shopper@1.0.0"],
        "unknown": "JOB_NOT_FOUND",
    },
    "report": {"status": "success", "size": 1_000_000, "pages": 250, "joined": True},
    "teller": {
        "chunks": [["word 0 ", True], ["word 1 ", True], ["word 2 ", True], ["", False]],
        "seconds": 3,
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
