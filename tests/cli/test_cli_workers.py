"""`serve --workers`, and what other processes of the same user can see of a `serve`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
import trio

from tests.cli.processes import ROOT, Starter, assert_refused, peer
from tests.processes import gone

AGENTS = """
import os
import time
import arcp_trio

agents = arcp_trio.Agents()
print("imported", os.getpid())

@agents.agent("where")
async def where(job):
    return [os.getpid(), os.getuid(), sorted(os.environ)]

@agents.agent("here", process=False)
async def here(job):
    return os.getpid()

@agents.agent("holder")
async def holder(job):
    open(f"{job.input}/{os.getpid()}", "x").close()
    while not os.path.exists(f"{job.input}/over"):
        time.sleep(0.01)
    return os.getpid()
"""

pytestmark = pytest.mark.real_tcp


def test_the_agents_of_a_module_run_in_workers(start: Starter, tmp_path: Path) -> None:
    """With --workers, an agent that blocks holds up nobody, and the module is imported twice."""
    (tmp_path / "mine.py").write_text(AGENTS)
    served = start(
        *("serve", "--memory", "--port", "0", "--token", "me=s3cret", "--agents", "mine"),
        *("--workers", "2"),
        environment={"SECRET_KEY": "hush"},
    )
    with peer(served.url(), "s3cret") as client:
        where = client.run("where")[-1]["payload"]["result"]
        here = client.run("here")[-1]["payload"]["result"]
        assert here == served.process.pid != where[0]
        assert "SECRET_KEY" not in where[2]
        (held := tmp_path / "held").mkdir()
        for _ in range(2):
            client.submit("holder", str(held))
        until = time.monotonic() + 30
        while len(list(held.iterdir())) < 2:  # both hold their processes at once
            assert time.monotonic() < until
            time.sleep(0.01)
        assert client.run("here")[-1]["payload"]["result"] == here
        (held / "over").touch()
        results = [client.until_terminal()[-1]["payload"]["result"] for _ in range(2)]
        assert len({*results}) == 2
    served.send_signal(15)
    code, _, err = served.end()
    assert code == 0, err
    assert "".join([*served.said, err]).count("imported") == 2
    trio.run(gone, [*results, where[0]])


def test_an_agent_that_workers_cannot_import_is_one_line(start: Starter, tmp_path: Path) -> None:
    """A function inside of another cannot run in a worker: `serve` says so and does not start."""
    (tmp_path / "inner.py").write_text(
        "import arcp_trio\nagents = arcp_trio.Agents()\n"
        "def make():\n    @agents.agent('x')\n    def inner(job): ...\nmake()\n"
    )
    err = assert_refused(start("serve", "--memory", "--agents", "inner", "--workers", "1"))
    assert "--workers: agent x@1.0.0 cannot run in a worker process" in err


SPY = """
import ctypes
import os
import arcp_trio

agents = arcp_trio.Agents()

@agents.agent("spy")
async def spy(job):
    # Without the rights by which root may look into any process.
    header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert ctypes.CDLL(None).capset(header, none) == 0
    found = []
    for name in ("environ", "mem", "maps", "fd/0"):
        try:
            open(f"/proc/{os.getppid()}/{name}", "rb").close()
            found.append(name)
        except OSError:
            pass
    return found
"""


def test_a_program_cannot_look_into_serve(start: Starter, tmp_path: Path) -> None:
    """A program of the same user can read neither environment nor memory of its `serve`."""
    (tmp_path / "spying.py").write_text(SPY)
    program = f"{sys.executable} -m arcp_trio serve --stdio --memory --agents spying"
    served = start(
        *("serve", "--memory", "--port", "0", "--token", "me=s3cret"),
        *("--agent", f"spy=stdio:env PYTHONPATH={ROOT} {program}"),
    )
    with peer(served.url(), "s3cret") as client:
        end = client.run("spy")[-1]["payload"]
        assert end.get("result") == [], end
