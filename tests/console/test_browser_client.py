"""`arcp.js`, the browser client, against the real server: its calls, lost connections, restarts."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.clients import TOKEN, Commands
from tests.cli.processes import LIFETIME_SECONDS, ROOT, starter
from tests.cli.relay import relay
from tests.console.node import start
from tests.documents.stories import read

pytestmark = pytest.mark.real_tcp

HIKER = """
import arcp_trio, trio

agents = arcp_trio.Agents()

@agents.agent("hiker", durable=True)
async def hiker(job):
    for stage in range(1, 6):
        await job.step("walk", trio.sleep, 0.1)
        await job.log(f"stage {stage} of 5")
        if stage == 3 and job.run == 1:
            await trio.sleep_forever()  # until the server is killed
    return {"stages": 5, "runs": job.run}
"""
CUTS = 20
WITH_SETTINGS = ("countdown", "chatty", "report", "shopper", "sleeper", "hiker")
"""The demo agents that say what their input must be."""


@contextmanager
def running(program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program for the block, bounded in time."""
    process = start(program, *arguments)
    guard = threading.Timer(LIFETIME_SECONDS, process.kill)
    guard.start()
    try:
        yield process
    finally:
        guard.cancel()
        process.kill()
        process.communicate()


def lines(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """Yield what a program prints, an object for each line."""
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


def test_each_call(commands: Commands) -> None:
    """Each call does what it says, and a refusal is an error with its code."""
    with running("calls.mjs", commands.url, TOKEN) as process:
        out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    told = json.loads(out)
    listed = told.pop("pages")
    assert listed == told.pop("all") >= 7
    assert told == {
        "wrongToken": "UNAUTHENTICATED",
        "nobody": "Error: no connection to ws://127.0.0.1:1/arcp",
        "agents": True,
        "schemas": [f"{name}@1.0.0" for name in ("picky", "formal", *WITH_SETTINGS)],
        "kinds": ["progress", "progress"],
        "result": {"done": 2},
        "streamed": 200_000,
        "bytes": [0, 1, 2],
        "failed": "INTERNAL_ERROR",
        "refused": "AGENT_NOT_AVAILABLE",
        "badInput": "INVALID_REQUEST",
        "wrongAnswer": "INVALID_REQUEST",
        "cooked": {"dish": "stew", "people": 4},
        "shopped": {"bought": 3, "stopped_by": "BUDGET_EXHAUSTED"},
        "sameKey": True,
        "running": True,
        "lookers": 1,
        "onlyLooking": "PERMISSION_DENIED",
        "stopped": "CANCELLED",
        "seenByOther": ["log", "progress", "status"],
        "otherResult": "CANCELLED",
        "closed": None,
        "afterwards": "Error: the session is over",
        "states": ["live", "closed"],
    }


def test_each_iteration_sees_every_event(commands: Commands) -> None:
    """Each handle and each iteration sees every event; what is not kept comes again."""
    with running("handles.mjs", commands.url, TOKEN) as process:
        out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    whole = [1, 2, 3, 4]
    assert json.loads(out) == {
        "partly": whole[:2],
        "late": whole[1:],
        "each": [whole] * 4,
        "first": whole[1:],
        "again": [whole] * 2,
        "ended": whole,
        "results": [{"done": 4}] * 4,
        "sameKey": whole,
        "left": [],
        "leftResult": "the job is followed no longer",
        "streamed": [100_000] * 3,
        "many": [25_000] * 2,
        "withHandler": "onevent gets the events, so that jobs cannot be iterated over",
        "told": ["progress"] * 4 + ["end"],
        "without": "there is no WebSocket here: use Node 22 or later, or give one:"
        " connect(url, { token, WebSocket }), from the package ws",
        "given": "live",
        "nowhere": "no connection to ws://127.0.0.1:1/arcp, ws://127.0.0.1:2/arcp",
    }


def test_the_document_shows_what_works(commands: Commands, tmp_path: Path) -> None:
    """The program of docs/console.md prints the events and the result of its job."""
    (module,) = read((ROOT / "docs" / "console.md").read_text(encoding="utf-8")).modules
    client = ROOT / "arcp_trio" / "console" / "arcp.js"
    module = module.replace("http://127.0.0.1:7777/arcp.js", client.as_uri())
    module = module.replace("ws://127.0.0.1:7777/arcp", commands.url)
    program = tmp_path / "program.mjs"
    text = f"const token = '{TOKEN}';\n{module}\nclient.close();\n"
    program.write_text(text, encoding="utf-8")
    with running(str(program)) as process:
        out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    first, *_, last = out.splitlines()
    assert first == "progress { current: 1, total: 3, units: 'steps' }"
    assert last == "{ done: 3 }"


def test_nothing_is_lost_over_cuts(commands: Commands) -> None:
    """Each event is handed on once, in order, while the connection is cut again and again."""
    given = {"n": 400, "delay": 0.01}
    with (
        relay(commands.url) as between,
        running("follow.mjs", between.url, TOKEN, "countdown", json.dumps(given)) as process,
    ):
        seen: list[dict[str, Any]] = []
        cuts = 0
        for said in lines(process):
            seen.append(said)
            if "seq" in said and said["seq"] > 19 * (cuts + 1) and cuts < CUTS:
                cuts += 1
                between.fail()
                between.works = True
    events = [each for each in seen if "seq" in each]
    assert [each["seq"] for each in events] == list(range(1, 402))
    assert [each["lastSeq"] for each in events] == list(range(1, 402))
    assert [each["body"]["current"] for each in events[:-1]] == list(range(1, 401))
    assert events[-1]["result"] == {"done": 400}
    states = [each["state"] for each in seen if "state" in each]
    assert states.count("live") > CUTS / 2
    assert states[-1] == "closed"


def test_a_session_goes_on_after_a_restart(tmp_path: Path) -> None:
    """After a kill and a restart of the server the session goes on where it was."""
    (tmp_path / "hikers.py").write_text(HIKER, encoding="utf-8")
    own = ("--agents=hikers", "--log-level=error")
    options = ("serve", "--port=0", f"--token=alice={TOKEN}", *own)
    with starter(tmp_path) as serve:
        first = serve(*options)
        with (
            relay(first.url()) as between,
            running("follow.mjs", between.url, TOKEN, "hiker", "null") as process,
        ):
            seen: list[dict[str, Any]] = []
            for said in lines(process):
                seen.append(said)
                if said.get("seq") == 2:
                    between.fail()
                    first.send_signal(signal.SIGKILL)
                    first.end()
                    between.lead_to(serve(*options).url())
    events = [each for each in seen if "seq" in each]
    assert [each["seq"] for each in events] == list(range(1, len(events) + 1))
    stages = [each["body"]["message"] for each in events if each["kind"] == "log"]
    assert stages == [f"stage {number} of 5" for number in range(1, 6)]
    assert "resumed" in [each["body"].get("phase") for each in events if each["kind"] == "status"]
    assert events[-1]["result"] == {"stages": 5, "runs": 2}
    assert "reconnecting" in [each.get("state") for each in seen]


def test_a_lost_session_is_told(tmp_path: Path) -> None:
    """A client whose session the next runtime does not know says so, and tries no more."""
    options = ("serve", "--port=0", f"--token=alice={TOKEN}", "--log-level=error", "--memory")
    with starter(tmp_path) as serve:
        first = serve(*options)
        with (
            relay(first.url()) as between,
            running("follow.mjs", between.url, TOKEN, "sleeper", "null") as process,
        ):
            last: dict[str, Any] = {}
            for said in lines(process):
                if "submitted" in said:
                    between.fail()
                    first.send_signal(signal.SIGKILL)
                    first.end()
                    between.lead_to(serve(*options).url())
                last = said
            assert process.wait() == 1
    assert last == {"lost": "ArcpError: the session cannot be resumed from there"}
