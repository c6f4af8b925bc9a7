"""A real `serve` whose loop an agent holds: who notices, and what is said of it."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest

from tests.cli.processes import Starter, peer

AGENTS = """
import time
import arcp_trio

agents = arcp_trio.Agents()

@agents.agent("holder")
async def holder(job):
    time.sleep(job.input)  # the line
    return "slept"

@agents.agent("echo")
async def echo(job):
    return job.input
"""

pytestmark = [pytest.mark.real_tcp, pytest.mark.alone]


def test_a_held_loop(start: Starter, tmp_path: Path) -> None:
    """Idle connections survive it, a time limit is kept, and job, line and principal are named."""
    (tmp_path / "holders.py").write_text(AGENTS)
    served = start(
        *("serve", "--memory", "--port", "0", "--token", "me=s3cret", "--agents", "holders"),
        *("--heartbeat", "1", "--log-format", "json"),
    )
    url = served.url()
    with peer(url, "s3cret") as idle, peer(url, "s3cret") as other:
        accepted = other.submit("holder", 5, max_runtime_sec=1)
        end = other.until_terminal()[-1]
        assert end["payload"]["code"] == "TIMEOUT", end
        held = served.line('"event": "event loop held"')
        assert accepted["payload"]["job_id"] in held
        line = AGENTS.splitlines().index("    time.sleep(job.input)  # the line") + 1
        assert f"holders.py:{line} in holder" in held
        # Both connections are still there, and the one that said nothing all the time is served.
        assert idle.run("echo", 1)[-1]["type"] == "job.result"
        assert other.run("echo", 2)[-1]["type"] == "job.result"
        page = url.replace("ws:", "http:").replace("/arcp", "/metrics")
        with urllib.request.urlopen(page) as metrics:
            text = metrics.read().decode()
        assert "arcp_loop_stalls_total 0\n" not in text
        assert 'arcp_connection_failures_total{reason="heartbeat_lost"} 0\n' in text
        used = text.partition('arcp_used_most_total{kind="loop_seconds",principal="me"} ')[2]
        assert float(used.split()[0]) > 1
