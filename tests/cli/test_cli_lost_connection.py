"""What commands do when their connection is lost."""

from __future__ import annotations

import json
import re
import signal
import socket
from pathlib import Path

import pytest
from attrs import evolve

from tests.cli.clients import TOKEN, Commands
from tests.cli.processes import Starter
from tests.cli.relay import relay
from tests.cli.terminals import terminal

pytestmark = pytest.mark.real_tcp

LOST = "connection lost, trying again; nothing is missed\n"


def test_it_comes_back(commands: Commands) -> None:
    """After a lost connection no event is missing or repeated; two lines tell of it."""
    options = ("--input", '{"n": 30, "delay": 0.1}', "--json")
    with relay(commands.url) as between:
        through = evolve(commands, url=between.url)
        with through.start("submit", "countdown", *options) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            first = process.stdout.readline()
            between.fail()
            assert process.stderr.readline() == LOST
            between.works = True
            assert process.stderr.readline() == "connected again\n"
            out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    *events, last = [json.loads(line) for line in (first + out).splitlines()]
    assert [event["body"]["current"] for event in events] == list(range(1, 31))
    assert last["result"] == {"done": 30}


@pytest.mark.parametrize("columns", [80, 40])
def test_the_live_line_says_so(commands: Commands, columns: int) -> None:
    """While the connection is lost, its countdown is in place of the bar, which then comes back."""
    with relay(commands.url) as between:
        through = evolve(commands, url=between.url)
        with terminal(through, "submit", "waiting", columns=columns) as on:
            on.wait_for("1/4 steps")
            between.fail()
            rest = "; nothing is missed" if columns == 80 else ""
            for seconds in (2, 1):
                on.wait_for(f"connection lost, trying again in {seconds} s{rest}")
            assert re.fullmatch(r"connection lost, trying again.*", on.lines[-1])
            assert len(on.lines[-1]) < columns
            between.works = True
            seen = on.raw.count("1/4 steps")
            while on.raw.count("1/4 steps") == seen:
                on.read_more()
            assert "1/4 steps" in on.lines[-1]
            assert not any("lost" in line for line in on.lines)
            on.type("\x03")
            on.wait_for("(g)o on watching? ")
            on.type("c\n")
            assert on.end() == 4


def test_it_can_be_left_meanwhile(commands: Commands) -> None:
    """Ctrl-C ends the command while the connection is lost."""
    with (
        relay(commands.url) as between,
        evolve(commands, url=between.url).start("submit", "waiting") as process,
    ):
        assert process.stderr is not None
        process.stderr.readline()
        between.fail()
        while process.stderr.readline() != LOST:
            pass
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out.startswith("job_")
    assert "the job's state is not known" in err


def test_the_runtime_starts_again(start: Starter, tmp_path: Path) -> None:
    """After SIGKILL and a new start of the runtime, the client learns that the job has ended."""
    (tmp_path / "token").write_text(f"alice={TOKEN}")
    options = ("--token-file", "token", "--data", "kept")
    first = start("serve", "--port", "0", *options)
    url = first.url()
    commands = Commands(url, tmp_path)
    with commands.start("submit", "countdown", "--input", '{"n": 1000}', "--json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        first.process.kill()
        first.process.wait()
        assert process.stderr.readline() == LOST
        start("serve", "--port", url.split(":")[2].partition("/")[0], *options).url()
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    last = json.loads(out.splitlines()[-1])
    assert (last["code"], last["retryable"]) == ("INTERNAL_ERROR", True)


def test_the_runtime_is_shut_down(start: Starter, tmp_path: Path) -> None:
    """A job that is cut short by a shutdown may be submitted again, and the line says so."""
    served = start("serve", "--port", "0", "--memory", "--token", f"alice={TOKEN}")
    with Commands(served.url(), tmp_path).start("submit", "sleeper") as process:
        assert process.stderr is not None
        process.stderr.readline()
        served.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.endswith("the runtime was shut down; it may be submitted again\n")


CUT_SHORT = """
import arcp_trio

agents = arcp_trio.Agents()


@agents.agent("cut_short")
async def cut_short(job: arcp_trio.JobContext) -> None:
    raise arcp_trio.InternalError(f"{job.input} while the job was running")
"""


@pytest.mark.parametrize("why", ["the job's node was lost", "no node could go on with it"])
def test_the_node_of_the_job_is_lost(start: Starter, tmp_path: Path, why: str) -> None:
    """A job that has ended with its node, in the words of other nodes, may be submitted again."""
    (tmp_path / "ends.py").write_text(CUT_SHORT)
    options = ("--memory", "--token", f"alice={TOKEN}", "--agents", "ends")
    commands = Commands(start("serve", "--port", "0", *options).url(), tmp_path)
    with commands.start("submit", "cut_short", "--input", json.dumps(why)) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.endswith(f"{why} while the job was running; it may be submitted again\n")


def test_it_can_be_left_before_there_is_a_session(commands: Commands) -> None:
    """Ctrl-C ends the command before there is a session, and no job is named."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"ws://127.0.0.1:{silent.getsockname()[1]}/arcp"
        with evolve(commands, url=url).start("submit", "waiting") as process:
            called, _ = silent.accept()
            with called:
                assert called.recv(3) == b"GET"
                process.send_signal(signal.SIGINT)
                assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 130


def test_it_can_be_left_before_the_acceptance(commands: Commands) -> None:
    """Ctrl-C before the answer to the submit ends the command, which claims to know nothing."""
    with relay(commands.url, keeps_back=b'"job.accepted"') as between:
        through = evolve(commands, url=between.url)
        with through.start("submit", "waiting", "--json") as process:
            assert between.kept_back.wait(20)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert (
        err == "it is not known whether the job was submitted; arcp-trio jobs shows it if it was\n"
    )
    for entry in commands.run("jobs", "--status", "running", "--json").objects:
        assert commands.run("cancel", entry["job_id"]).code == 0


def test_short_commands_do_not_wait_long(commands: Commands) -> None:
    """A command that asks one thing gives up on a lost connection."""
    with relay(commands.url) as between:
        through = evolve(commands, url=between.url)
        with through.start("bench") as process:
            assert process.stdout is not None
            process.stdout.readline()
            between.fail()
            _, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert err.startswith("arcp-trio: the connection is lost for good: ")
    assert err.count("\n") == 1
