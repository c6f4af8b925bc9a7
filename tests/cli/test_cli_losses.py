"""What a stop, or a start without an agent, takes from people: it is said, and asked about."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.cli.clients import Commands
from tests.cli.processes import Serve, Starter
from tests.cli.stopping import AGENTS, at_work
from tests.cli.terminals import terminal

pytestmark = pytest.mark.real_tcp

SERVE = ("serve", "--port=0")
WITH = (*SERVE, "--agents=my_agents")


@pytest.fixture
def here(tmp_path: Path) -> Commands:
    """Commands in a folder with agents, which find their `serve` by themselves."""
    (tmp_path / "my_agents.py").write_text(AGENTS, encoding="utf-8")
    return Commands("", tmp_path, token=None)


def left_behind(start: Starter, here: Commands, *agents: str) -> None:
    """Have a `serve` end with jobs of these durable agents."""
    served = start(*WITH)
    served.url()
    at_work(here, *agents)
    served.send_signal(signal.SIGTERM)
    assert served.end()[0] == 0


def test_a_start_without_an_agent_asks(start: Starter, here: Commands) -> None:
    """On a terminal a start does not end durable jobs unless one means it; they go on later."""
    left_behind(start, here, "lasting", "lasting")
    with terminal(here, *SERVE, columns=200) as on:
        on.wait_for("2 durable jobs end with this start, which has no durable agent lasting@1.0.0")
        on.wait_for("type yes to end them")
        on.type("no\n")
        assert on.end() == 2
        assert "listening on" not in on.raw
        last = on.raw.splitlines()[-1]
        assert last.startswith("arcp-trio: not started, so that no job is lost; add --agent")
    with terminal(here, *SERVE) as on:
        on.wait_for("type yes to end them")
        on.type("\x03")
        assert on.end() == 2
    with terminal(here, *WITH) as on:
        on.wait_for("try: ")
        assert len(here.run("jobs", "--waiting", "--json").objects) == 2
        on.process.send_signal(signal.SIGTERM)
        assert on.end() == 0
    with terminal(here, *SERVE, columns=200) as on:
        on.wait_for("type yes to end them")
        on.type("yes\n")
        on.wait_for("try: ")
        ended = here.run("jobs", "--json").objects
        assert [each["error"]["code"] for each in ended] == ["AGENT_NOT_AVAILABLE"] * 2


def test_a_start_without_an_agent_warns(start: Starter, here: Commands) -> None:
    """Where nobody can be asked, the log names each agent whose jobs end, with their number."""
    left_behind(start, here, "lasting", "lasting")
    served = start(*SERVE, "--log-format=json")
    served.url()
    said: dict[str, object] = {"event": ""}
    while "durable jobs end" not in str(said["event"]):
        said = json.loads("{" + served.line("{"))
    assert (said["level"], said["agent"], said["jobs"]) == ("warning", "lasting@1.0.0", 2)


def test_a_question_outlasts_a_restart_in_the_list(start: Starter, here: Commands) -> None:
    """A job that waits for people shows what it asks, before a restart and after it."""
    left_behind(start, here, "lasting")
    served = start(*WITH)
    served.url()
    shown = ""
    while "run=2" not in shown:  # it has told of the restart, too
        shown = served.line("job begun again")
    assert here.run("jobs").out.splitlines()[-1].endswith("asks: Publish?")
    (listed,) = here.run("jobs", "--json").objects
    assert listed["last_event"] == "asks: Publish?"


LOSES = "3 jobs end with this runtime, 2 of them while they wait for people; 1 goes on at the next"
AGENTS_AT_WORK = ("asking", "asking", "lasting", "sleeper")


def serving(start: Starter, here: Commands, *agents: str, host: str = "127.0.0.1") -> Serve:
    """Have a `serve` with a job of each of these agents."""
    served = start(*WITH, "--demo-agents", f"--host={host}")
    served.url()
    at_work(here, *agents)
    return served


@pytest.mark.parametrize("host", ["127.0.0.1", "unix:socket"])
def test_stop_asks_before_jobs_are_lost(start: Starter, here: Commands, host: str) -> None:
    """On a terminal it says how many jobs end and how many go on; only a yes stops the runtime."""
    served = serving(start, here, *AGENTS_AT_WORK, host=host)
    with terminal(here, "stop", columns=120) as on:
        on.type("yes\n")  # what was typed before does not answer
        on.wait_for(LOSES)
        on.wait_for("type yes to stop it")
        on.type("y\n")
        assert on.end() == 1
        assert on.lines[-2] == f"arcp-trio: the serve of {here.folder}/.arcp goes on"
    assert len(here.run("jobs", "--status", "running", "--json").objects) == 4
    with terminal(here, "stop", columns=120) as on:
        on.wait_for("type yes to stop it")
        on.type("yes\n")
        assert on.end() == 0
    assert served.end()[0] == 0


@pytest.mark.parametrize("yes", [True, False])
def test_stop_says_what_ends_where_it_does_not_ask(
    start: Starter, here: Commands, *, yes: bool
) -> None:
    """With --yes, and without a terminal, the runtime is stopped, and the numbers are said."""
    served = serving(start, here, *AGENTS_AT_WORK)
    if yes:
        with terminal(here, "stop", "--yes", columns=120) as on:
            assert on.end() == 0
            said = on.raw
    else:
        done = here.run("stop")
        assert done.code == 0
        said = done.err
    assert LOSES in said
    assert served.end()[0] == 0


def test_stop_does_not_ask_if_all_jobs_go_on(start: Starter, here: Commands) -> None:
    """Where no job is lost there is no question, and it is said how many go on."""
    served = serving(start, here, "lasting")
    with terminal(here, "stop", columns=120) as on:
        assert on.end() == 0
        assert "0 jobs end with this runtime; 1 goes on at the next start" in on.raw
    assert served.end()[0] == 0


def test_stop_says_that_it_does_not_know(start: Starter, here: Commands) -> None:
    """A runtime that does not answer can be stopped, too."""
    served = start(*WITH)
    served.url()
    served.line("token for local")
    with here.start("submit", "blocking") as waiting:
        served.line("at work")
        waiting.kill()
        waiting.communicate()
    with terminal(here, "stop", columns=120) as on:
        on.wait_for("is not known, as it does not answer")
        on.wait_for("type yes to stop it")
        on.type("yes\n")
        assert on.end() == 0
    assert served.end()[0] == 0
