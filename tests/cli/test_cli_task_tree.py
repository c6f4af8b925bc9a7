"""SIGUSR1 to `serve`: the tree of its tasks, and where each task is."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest

from tests.cli.processes import Serve, Starter, peer

pytestmark = pytest.mark.real_tcp

AGENTS = """
import os, sys, threading, time
import arcp_trio, trio, trio.testing

agents = arcp_trio.Agents()

@agents.agent("nested")
async def nested(job):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait_inside, name="inside\\n- forged")
        nursery.start_soon(tell_when_all_wait)
        await trio.sleep_forever()  # until it is cancelled

async def tell_when_all_wait():
    await trio.testing.wait_all_tasks_blocked()
    print("at work", file=sys.stderr)

async def wait_inside():
    await trio.sleep_forever()  # inside

@agents.agent("blocking")
async def blocking(job):
    seen = []
    threading.Thread(target=look, args=(seen,)).start()
    spin_until(seen)
    return "finished"

def look(seen):
    while not os.path.exists("shown"):
        time.sleep(0.01)
    seen.append(True)

def spin_until(seen):
    print("at work", file=sys.stderr)
    while not seen:
        pass
"""


def line_of(text: str) -> int:
    """Return the line number of a text in the agents' module."""
    return AGENTS[: AGENTS.index(text)].count("\n") + 1


@pytest.fixture
def served(start: Starter, tmp_path: Path) -> Serve:
    """Run a process that serves these agents."""
    (tmp_path / "my_agents.py").write_text(AGENTS, encoding="utf-8")
    options = ("--memory", "--port=0", "--token=alice=x", "--agents=my_agents", "--demo-agents")
    return start("serve", *options)


def tree_of(served: Serve) -> list[str]:
    """Return the lines of the tree, whose number its first line says."""
    served.send_signal(signal.SIGUSR1)
    count = int(served.line("task tree: ").split()[0])
    assert served.process.stderr is not None
    lines = [served.process.stderr.readline() for _ in range(count)]
    assert all(re.match(r" *- ", line) for line in lines), lines
    return lines


def depth(line: str) -> int:
    """Return the indentation of a line."""
    return len(line) - len(line.lstrip())


def test_where_every_task_stands(served: Serve) -> None:
    """Each task is named below its parent, with a line of its agent or of this package."""
    with peer(served.url(), "x") as session:
        job_id = session.submit("nested")["payload"]["job_id"]
        served.line("at work")
        lines = tree_of(served)
        session.send("job.cancel", {"job_id": job_id})
        assert session.until_terminal()[-1]["payload"]["code"] == "CANCELLED"
        (again,) = session.run("echo", 1)
        assert again["payload"]["result"] == {"echo": 1}
    named = {line.strip().removeprefix("- ").partition(": ")[0]: line for line in lines}
    job, inside = named[f"job {job_id}"], named["inside\\u000a- forged"]
    here = line_of("await trio.sleep_forever()  # until")
    assert job.endswith(f"my_agents.py:{here} in nested\n")
    assert (
        f"my_agents.py:{line_of('await trio.sleep_forever()  # inside')} in wait_inside" in inside
    )
    assert lines.index(inside) == lines.index(job) + 1
    assert depth(inside) == depth(job) + 2
    session_id = session.answer["session_id"]
    for task in ("clerk of", "session"):
        assert "/arcp_trio/" in named[f"{task} {session_id}"]
    assert depth(lines[0]) == 0
    assert all(depth(line) > 0 for line in lines[1:])


def children(lines: list[str]) -> dict[str, list[str]]:
    """Return the names of the tasks below each task, by its name."""
    above: list[tuple[int, str]] = []
    found: dict[str, list[str]] = {}
    for line in lines:
        name = line.strip().removeprefix("- ").removesuffix(" (running)").rsplit(": /")[0]
        while above and above[-1][0] >= depth(line):
            above.pop()
        if above:
            found.setdefault(above[-1][1], []).append(name)
        above.append((depth(line), name))
    return found


def connections_of(tree: dict[str, list[str]]) -> dict[str, set[str]]:
    """Return what is below each connection, with ids of sessions, by its name."""
    return {
        name: {each.rsplit(" ", 1)[0] for each in tree.get(name, [])}
        for name in tree["runtime"]
        if name.startswith("connection from ")
    }


def test_whose_the_tasks_are(served: Serve) -> None:
    """Jobs and sessions are the runtime's; a connection has a heartbeat, and a sender at need."""
    url = served.url()
    with peer(url, "x") as one, peer(url, "x") as other:
        jobs = [each.submit("nested")["payload"]["job_id"] for each in (one, other)]
        for _ in jobs:
            served.line("at work")
        tree = children(tree_of(served))
        sessions = [each.answer["session_id"] for each in (one, other)]
        mine = {f"job {each}" for each in jobs} | {f"session {each}" for each in sessions}
        assert mine <= set(tree["runtime"])
        connections = connections_of(tree)
        assert list(connections.values()) == [{"heartbeat of"}] * 2
        below = {each for name in connections for each in tree[name]}
        assert below == {f"heartbeat of {each}" for each in sessions}
        assert not [each for each in tree if each.startswith(("heartbeat", "sender"))]

        # It does not read: its socket takes no more, until it reads on.
        other.send("job.submit", {"agent": "chatty", "input": {"n": 15_000, "size": 1000}})
        senders = {"heartbeat of", "sender of"}
        while senders not in connections_of(children(tree_of(served))).values():
            time.sleep(0.1)
        other.receive()
        assert other.until_terminal()[-1]["type"] == "job.result"
        connections = connections_of(children(tree_of(served)))
        assert list(connections.values()) == [{"heartbeat of"}] * 2


def test_an_agent_that_blocks_is_shown(served: Serve, tmp_path: Path) -> None:
    """The tree shows the line of an agent that blocks the event loop."""
    with peer(served.url(), "x") as session:
        session.send("job.submit", {"agent": "blocking", "input": None})
        served.line("at work")
        lines = tree_of(served)
        (tmp_path / "shown").touch()
        accepted, *_, end = [session.receive(), *session.until_terminal()]
        assert end["payload"]["result"] == "finished"
    (running,) = [line for line in lines if line.endswith(" (running)\n")]
    assert f"- job {accepted['payload']['job_id']}: " in running
    assert re.search(r"my_agents\.py:\d+ in spin_until", running)


def test_again_and_again_while_busy(served: Serve) -> None:
    """Jobs and the end of the process are not disturbed by twenty trees in a row."""
    with peer(served.url(), "x") as session:
        session.submit("chatty", {"n": 2000, "size": 10})
        for _ in range(20):
            tree_of(served)
        *events, end = session.until_terminal()
        assert end["payload"]["result"] == {"n": 2000}
        assert sum(event["payload"]["kind"] == "log" for event in events) == 2000
    served.send_signal(signal.SIGTERM)
    assert served.end()[0] == 0
