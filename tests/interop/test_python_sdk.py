"""The vendor's Python SDK client against the real server process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.processes import starter

CLIENT = Path(__file__).with_name("python_sdk.py")
AGENTS = """
import arcp_trio, trio

agents = arcp_trio.Agents()

@agents.agent("teller")
async def teller(job):
    async with job.stream_result() as out:
        for number in range(3):
            await out.write(f"word {number} ")
            await trio.sleep(1)
"""
COUNTED = {"steps": [1, 2, 3, 4, 5], "end": {"status": "success", "result": {"done": 5}}}


@pytest.mark.spec("4-1", "1.0/4.1-2")
def test_python_sdk_client_is_served_without_an_error_on_its_side(tmp_path: Path) -> None:
    """The vendor's client uses every feature it has without an error on its side."""
    with starter(tmp_path) as start:
        (tmp_path / "slow_agents.py").write_text(AGENTS, encoding="utf-8")
        options = ("--port", "0", "--memory", "--token", "vendor=tok")
        server = start("serve", *options, "--agents", "slow_agents", "--demo-agents")
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
            "running": COUNTED,
            "over": COUNTED,
            "over, elsewhere": COUNTED,
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
