"""The specification's sequences of §13 on observing and back-pressure, against the real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import Peer, peer, starter

pytestmark = pytest.mark.real_tcp

AGENTS = """
from pathlib import Path
import trio
from arcp_trio import Agents

agents = Agents()

async def cue(name):
    while not Path(name).exists():
        await trio.sleep(0.01)

@agents.agent("indexer")
async def indexer(job):
    for n in range(84):
        await job.log(f"line {n}")
    await cue("live")
    for n in range(84, 90):
        await job.log(f"line {n}")

@agents.agent("log-tail")
async def log_tail(job):
    for burst, lines in enumerate((100, 100, 900, 400)):
        await cue(f"burst {burst}")
        for n in range(lines):
            await job.log(f"line {n}")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of the server, in which its agents look for their cues."""
    (tmp_path / "sequences.py").write_text(AGENTS)
    return tmp_path


@pytest.fixture
def url(folder: Path) -> Iterator[str]:
    """Serve the agents above; return the address."""
    with starter(folder) as start:
        args = ("--port=0", "--memory", "--token=alice=x", "--agents=sequences")
        yield start("serve", *args).url()


def events(client: Peer, count: int) -> list[dict[str, Any]]:
    """Receive `count` frames, all of which are events."""
    frames = [client.receive() for _ in range(count)]
    assert {frame["type"] for frame in frames} == {"job.event"}
    return frames


def seqs(frames: list[dict[str, Any]]) -> list[int]:
    """Return the numbers of frames."""
    return [frame["event_seq"] for frame in frames]


@pytest.mark.spec("6.6-1", "6.6-2", "7.6-1", "7.6-3", "7.6-5", "7.6-8", "7.7-1")
def test_job_listing_and_subscription(folder: Path, url: str) -> None:
    """A dashboard finds a job that was started elsewhere, replays it, and watches it to its end."""
    with peer(url, "x") as submitter, peer(url, "x") as dashboard:
        accepted = submitter.submit("indexer")
        job_id = accepted["payload"]["job_id"]
        before = events(submitter, 84)

        dashboard.send("session.list_jobs", {"filter": {"status": ["running"]}})
        listing = dashboard.receive()
        assert listing["type"] == "session.jobs"
        (entry,) = listing["payload"]["jobs"]
        assert (entry["job_id"], entry["last_event_seq"]) == (job_id, 84)

        dashboard.send("job.subscribe", {"job_id": job_id, "history": True, "from_event_seq": 0})
        subscribed = dashboard.receive()
        assert subscribed["type"] == "job.subscribed"
        assert subscribed["payload"]["current_status"] == "running"
        assert subscribed["payload"]["subscribed_from"] == 84
        assert subscribed["payload"]["replayed"] is True

        replay = events(dashboard, 84)
        assert seqs(replay) == list(range(1, 85))
        assert [frame["payload"] for frame in replay] == [frame["payload"] for frame in before]
        assert {frame["session_id"] for frame in replay} == {subscribed["session_id"]}

        submitter.socket.close()  # the job and its observer go on
        (folder / "live").touch()
        *live, end = dashboard.until_terminal()
        assert seqs(live) == list(range(85, 91))
        assert (end["type"], end["event_seq"], end["job_id"]) == ("job.result", 91, job_id)


@pytest.mark.spec("6.5-1", "6.5-4", "6.5-6")
def test_event_acknowledgement_and_slow_consumer(folder: Path, url: str) -> None:
    """A client that acknowledges too little is told so, once, in its place among the events."""
    with peer(url, "x") as client:
        assert client.submit("log-tail")["type"] == "job.accepted"
        (folder / "burst 0").touch()
        assert seqs(events(client, 100)) == list(range(1, 101))
        client.send("session.ack", {"last_processed_seq": 12})
        (folder / "burst 1").touch()
        assert seqs(events(client, 100)) == list(range(101, 201))
        client.send("session.ack", {"last_processed_seq": 28})
        client.send("session.list_jobs", {})  # its answer comes after the acknowledgement
        assert client.receive()["type"] == "session.jobs"
        (folder / "burst 2").touch()
        frames = events(client, 900)  # among the last of them there may be the notice
        (folder / "burst 3").touch()
        *rest, end = client.until_terminal()
        frames += rest
        assert [*seqs(frames), end["event_seq"]] == list(range(201, 1_503))
        (notice,) = [frame for frame in frames if frame["payload"]["kind"] != "log"]
        assert notice["payload"]["kind"] == "status"
        body = notice["payload"]["body"]
        assert body["phase"] == "back_pressure"
        lag = int(body["message"].removeprefix("consumer lag ").removesuffix(" events"))
        assert 1_000 < lag <= notice["event_seq"] - 28
