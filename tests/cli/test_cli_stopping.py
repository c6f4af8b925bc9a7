"""SIGTERM or Ctrl-C to `serve`, with real processes: drain, ends, goodbyes, the store, the exit."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.cli.processes import FRAME_SECONDS, ROOT, Peer, Serve, Starter, peer

pytestmark = pytest.mark.real_tcp

END_SECONDS = 5.0
"""What is promised from the end of the drain to that of the process."""
GOING_AWAY = 1001

AGENTS = """
import sys, time
import arcp_trio, trio

agents = arcp_trio.Agents()

@agents.agent("telling")
async def telling(job):
    for number in range(1000):
        await job.log(str(number))
    print("at work", file=sys.stderr)
    await trio.sleep_forever()

@agents.agent("clinging")
async def clinging(job):
    print("at work", file=sys.stderr)
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()

@agents.agent("blocking")
async def blocking(job):
    print("at work", file=sys.stderr)
    time.sleep(60)
"""

STOPS = (signal.SIGTERM, signal.SIGINT)


@pytest.fixture(autouse=True)
def _agents(tmp_path: Path) -> None:
    (tmp_path / "my_agents.py").write_text(AGENTS, encoding="utf-8")


def serve_mine(start: Starter, *arguments: str) -> Serve:
    """Serve the agents above, for alice and an auditor who may follow her jobs."""
    tokens = ("--token=alice=x", "--token=auditor=y", "--observer=auditor")
    return start("serve", "--port=0", *tokens, "--agents=my_agents", *arguments)


def closed_with(session: Peer) -> int | None:
    """The code that the socket is closed with, and nothing before it."""
    with pytest.raises(ConnectionClosed) as caught:
        session.receive()
    assert caught.value.rcvd is not None
    return caught.value.rcvd.code


def assert_worth_a_retry(end: dict[str, object]) -> None:
    """Expect the end of a job that the runtime's end has cut short."""
    assert end["type"] == "job.error"
    payload = end["payload"]
    assert isinstance(payload, dict)
    assert (payload["code"], payload["retryable"]) == ("INTERNAL_ERROR", True)
    assert "shut down" in payload["message"]


@pytest.mark.parametrize("stop", STOPS)
def test_past_the_drain_the_rest_is_ended(start: Starter, stop: signal.Signals) -> None:
    """Who submitted it and who follows it read the end of the job, then 1001; the exit code is 0.

    Not before the drain is over, and within five seconds from then.
    """
    served = serve_mine(start, "--drain=1")
    url = served.url()
    with peer(url, "x") as session, peer(url, "y") as observer:
        job_id = session.submit("sleeper")["payload"]["job_id"]
        observer.send("job.subscribe", {"job_id": job_id})
        assert observer.receive()["type"] == "job.subscribed"
        asked = time.monotonic()
        served.send_signal(stop)
        for client in (session, observer):
            (end,) = client.until_terminal()
            assert time.monotonic() - asked >= 1
            assert end["job_id"] == job_id
            assert_worth_a_retry(end)
            assert closed_with(client) == GOING_AWAY
    code, out, err = served.end()
    assert (code, out) == (0, "")
    assert time.monotonic() - asked < 1 + END_SECONDS
    assert "Traceback" not in err


def test_there_is_no_drain_without_jobs(start: Starter) -> None:
    """However long a drain may take, it is over with the last job; who is only here is let go."""
    served = serve_mine(start, "--drain=600")
    url = served.url()
    with peer(url, "x") as idle, connect(url, compression=None) as silent:
        idle.run("echo", 1)
        asked = time.monotonic()
        served.send_signal(signal.SIGTERM)
        assert closed_with(idle) == GOING_AWAY
        with pytest.raises(ConnectionClosed) as caught:
            silent.recv(timeout=FRAME_SECONDS)
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == GOING_AWAY
    assert served.end()[0] == 0
    assert time.monotonic() - asked < END_SECONDS


@pytest.mark.parametrize("agent", ["clinging", "blocking"])
def test_past_the_drain_no_agent_holds_the_end_up(start: Starter, agent: str) -> None:
    """One that shields itself from its end, and one that blocks the loop: 0 within 5 s of it."""
    served = serve_mine(start, "--drain=0.5")
    with peer(served.url(), "x") as session:
        session.send("job.submit", {"agent": agent, "input": None})
        served.line("at work")
        asked = time.monotonic()
        served.send_signal(signal.SIGTERM)
        code, _, err = served.end()
    assert 0.5 <= time.monotonic() - asked < 0.5 + END_SECONDS
    assert code == 0
    assert "leaving without it" in err


LAST_RESORT = """
import contextlib, os, sys, time
from arcp_trio.cli.serve.stopping import LastResort

read, write = os.pipe()
if sys.argv[1] == "closed":
    os.close(read)
else:
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write, bytes(4096))
    os.set_blocking(write, True)
os.dup2(write, 2)
LastResort().exit_within(0)
time.sleep(60)
"""


@pytest.mark.parametrize("reader", ["closed", "stalled"])
def test_who_does_not_read_standard_error_does_not_hold_the_end_up(reader: str) -> None:
    """The last resort says why it leaves if it can, and leaves."""
    command = [sys.executable, "-c", LAST_RESORT, reader]
    ended = subprocess.run(command, cwd=ROOT, timeout=30, check=False)
    assert ended.returncode == 0


def test_everything_is_stored(start: Starter) -> None:
    """Who was away finds every event and the end behind the next start, as if it had been here."""
    served = serve_mine(start)
    with peer(served.url(), "x") as session:
        job_id = session.submit("telling")["payload"]["job_id"]
        while session.receive().get("event_seq") != 1000:
            pass
        resume = session.resume_from(500)
    served.send_signal(signal.SIGTERM)
    assert served.end()[0] == 0
    again = serve_mine(start)
    with peer(again.url(), "x", resume) as session:
        *events, end = session.until_terminal()
    assert [event["payload"]["body"]["message"] for event in events] == list(
        map(str, range(500, 1000))
    )
    assert [frame["event_seq"] for frame in (*events, end)] == list(range(501, 1002))
    assert end["job_id"] == job_id
    assert_worth_a_retry(end)


@pytest.mark.parametrize("first", STOPS)
@pytest.mark.parametrize("second", STOPS)
def test_the_second_signal_counts(
    start: Starter, first: signal.Signals, second: signal.Signals
) -> None:
    """Whichever came first: the exit code is 128 and the number of the second, at once."""
    served = serve_mine(start, "--drain=600")
    with peer(served.url(), "x") as session:
        session.submit("sleeper")
        served.send_signal(first)
        served.line("shutting down")
        asked = time.monotonic()
        served.send_signal(second)
        assert served.end()[0] == 128 + second
    assert time.monotonic() - asked < END_SECONDS


def test_ctrl_c_before_it_serves(start: Starter, tmp_path: Path) -> None:
    """While agents are being imported: 130, as of every command, and not a word of Python's."""
    (tmp_path / "slow_agents.py").write_text(
        "import sys, time\nprint('at it', file=sys.stderr, flush=True)\ntime.sleep(60)\n",
        encoding="utf-8",
    )
    served = start("serve", "--port=0", "--memory", "--agents=slow_agents")
    served.line("at it")
    served.send_signal(signal.SIGINT)
    assert served.end() == (130, "", "")
