"""SIGTERM or Ctrl-C to `serve`: the drain, the ends of jobs, the close codes, and the store."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from arcp_trio.transport.close_codes import CloseCode
from tests.cli.clients import Commands
from tests.cli.processes import END_SECONDS, FRAME_SECONDS, Starter, peer
from tests.cli.stopping import AGENTS, at_work, closed_with, serve_mine
from tests.cli.terminals import Terminal, terminal

pytestmark = pytest.mark.real_tcp


@pytest.fixture(autouse=True)
def _agents(tmp_path: Path) -> None:
    (tmp_path / "my_agents.py").write_text(AGENTS, encoding="utf-8")


def assert_worth_a_retry(end: dict[str, object]) -> None:
    """Expect the end of a job that was cut short by the end of the runtime."""
    assert end["type"] == "job.error"
    payload = end["payload"]
    assert isinstance(payload, dict)
    assert (payload["code"], payload["retryable"]) == ("INTERNAL_ERROR", True)
    assert "shut down" in payload["message"]


def test_sigterm_ends_jobs_and_says_so(start: Starter) -> None:
    """At SIGTERM a client reads the end of its job, then 1001; the process ends at once with 0."""
    served = serve_mine(start)
    with peer(served.url(), "x") as session:
        session.submit("sleeper")
        asked = time.monotonic()
        served.send_signal(signal.SIGTERM)
        (end,) = session.until_terminal()
        assert end["type"] == "job.error"
        assert end["payload"]["code"] == "INTERNAL_ERROR"
        assert end["payload"]["retryable"] is True
        assert closed_with(session) == CloseCode.GOING_AWAY
    code, _, err = served.end()
    assert code == 0, err
    assert time.monotonic() - asked < END_SECONDS
    assert "Traceback" not in err


def page(url: str, path: str) -> tuple[int, str]:
    """Return the status and the text of a page on the port of a runtime."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode().strip()


def assert_shutting_down(refused: Any) -> None:
    """Expect a refusal that says that the runtime is shutting down."""
    assert refused["type"] == "session.error"
    assert refused["payload"]["code"] == "INTERNAL_ERROR"
    assert refused["payload"]["retryable"] is True
    assert "shutting down" in refused["payload"]["message"]


def test_a_drain_lets_jobs_finish(start: Starter, tmp_path: Path) -> None:
    """During the drain a job goes on to its result, while new jobs and new clients are refused."""
    served = serve_mine(start, "--drain", "600")
    url = served.url()
    with peer(url, "x") as session:
        session.submit("polite")
        served.line("at work")
        served.send_signal(signal.SIGTERM)
        while page(url, "/readyz") != (503, "shutting down"):
            pass  # until the runtime has taken up the signal
        assert page(url, "/healthz") == (200, "alive")
        with peer(url, "x") as late:
            assert_shutting_down(late.answer)
        assert_shutting_down(session.submit("echo"))
        (tmp_path / "may-finish").touch()
        (end,) = session.until_terminal()
        assert end["payload"]["result"] == "finished"
        assert closed_with(session) == CloseCode.GOING_AWAY
    assert served.end()[0] == 0


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_after_the_drain_the_rest_is_ended(start: Starter, stop: signal.Signals) -> None:
    """After the drain, the submitter and an observer read the end of the job, then 1001.

    The job does not end before the drain is over, and the process ends within five seconds after
    it.
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
            assert closed_with(client) == CloseCode.GOING_AWAY
    code, out, err = served.end()
    assert (code, out) == (0, "")
    assert time.monotonic() - asked < 1 + END_SECONDS
    assert "Traceback" not in err


def test_there_is_no_drain_without_jobs(start: Starter) -> None:
    """The drain is over with the last job; idle and silent clients are closed with 1001."""
    served = serve_mine(start, "--drain=600")
    url = served.url()
    with peer(url, "x") as idle, connect(url, compression=None) as silent:
        idle.run("echo", 1)
        asked = time.monotonic()
        served.send_signal(signal.SIGTERM)
        assert closed_with(idle) == CloseCode.GOING_AWAY
        with pytest.raises(ConnectionClosed) as caught:
            silent.recv(timeout=FRAME_SECONDS)
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == CloseCode.GOING_AWAY
    assert served.end()[0] == 0
    assert time.monotonic() - asked < END_SECONDS


def test_the_end_of_a_job_does_not_wait_for_its_agent(start: Starter) -> None:
    """A client reads the end of its job, then 1001, although the agent sits in a thread."""
    served = serve_mine(start)
    with peer(served.url(), "x") as session:
        session.submit("sitting")
        served.line("at work")
        served.send_signal(signal.SIGTERM)
        (end,) = session.until_terminal()
        assert end["payload"]["code"] == "INTERNAL_ERROR"
        assert closed_with(session) == CloseCode.GOING_AWAY


def test_everything_is_stored(start: Starter) -> None:
    """After the next start a client that was away reads every event and the end of its job."""
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


SERVE = ("serve", "--port=0", "--agents=my_agents", "--demo-agents")
LOSES = "3 jobs end with this runtime, 2 of them while they wait for people; 1 goes on"


@contextlib.contextmanager
def serving(folder: Path, *agents: str) -> Iterator[tuple[Terminal, Commands]]:
    """Serve on a terminal, with a job of each of these agents."""
    here = Commands("", folder, token=None)
    with terminal(here, *SERVE) as on:
        on.wait_for("try: ")
        at_work(here, *agents)
        yield on, here


def test_ctrl_c_asks_before_jobs_are_lost(tmp_path: Path) -> None:
    """On a terminal it says how many jobs end and how many go on; all go on unless one means it."""
    with serving(tmp_path, "asking", "asking", "lasting", "sleeper") as (on, here):
        on.type("yes\n\x03")  # what was typed before does not answer
        on.wait_for(LOSES)
        on.wait_for("type yes, or press Ctrl-C again")
        on.type("y\n")
        on.wait_for("going on; Ctrl-C asks again")
        assert len(here.run("jobs", "--status", "running", "--json").objects) == 4
        on.type("\x03")
        while on.raw.count(LOSES) < 2:
            on.read_more()
        on.type("\x03")
        assert on.end() == 0
        assert "shutting down jobs=4 ending=3" in on.raw
    with terminal(here, *SERVE) as on:
        on.wait_for("try: ")
        (left,) = here.run("jobs", "--status", "running", "--json").objects
        assert left["agent"] == "lasting@1.0.0"


def test_yes_at_ctrl_c_ends_it(tmp_path: Path) -> None:
    """The answer yes ends the runtime in order."""
    with serving(tmp_path, "asking") as (on, _):
        on.type("\x03")
        on.wait_for("1 job ends with this runtime, while it waits for people\r\n")
        on.wait_for("type yes")
        on.type("yes\n")
        assert on.end() == 0


def test_ctrl_c_does_not_ask_if_all_jobs_go_on(tmp_path: Path) -> None:
    """Where no job is lost there is no question, and the log says how many go on."""
    with serving(tmp_path, "lasting") as (on, _):
        on.type("\x03")
        assert on.end() == 0
        assert "shutting down jobs=1 ending=0 waiting_for_people=0 going_on=1" in on.raw


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_without_a_terminal_it_logs_what_ends(
    start: Starter, tmp_path: Path, stop: signal.Signals
) -> None:
    """In a pipe nobody is asked, and the log has the numbers."""
    served = serve_mine(start, "--log-format=json")
    here = Commands(served.url(), tmp_path, token="x")
    at_work(here, "asking", "asking", "lasting", "sleeper")
    served.send_signal(stop)
    code, _, err = served.end()
    assert code == 0
    (said,) = [json.loads(line) for line in err.splitlines() if "shutting down" in line]
    names = ("jobs", "ending", "waiting_for_people", "going_on")
    assert [said[name] for name in names] == [4, 3, 2, 1]


def test_ctrl_c_while_an_agent_holds_the_loop(tmp_path: Path) -> None:
    """Where nothing can be asked, it says so, and a second Ctrl-C ends the process in time."""
    with serving(tmp_path) as (on, here), here.start("submit", "blocking") as waiting:
        on.wait_for("at work")
        waiting.kill()
        on.type("\x03")
        on.wait_for("an agent holds the event loop")
        on.type("\x03")
        assert on.end() == 0


def test_sigterm_does_not_ask_on_a_terminal(tmp_path: Path) -> None:
    """A supervisor that sends SIGTERM need not answer anything."""
    with serving(tmp_path, "asking") as (on, _):
        on.process.send_signal(signal.SIGTERM)
        assert on.end() == 0
