"""`jobs`, `agents`, `ping` and `bench`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from arcp_trio.cli.client.options import NEWEST, STATES
from arcp_trio.store.records import Status
from tests.cli.clients import Commands, served

pytestmark = pytest.mark.real_tcp


def test_jobs(commands: Commands) -> None:
    """Jobs are listed newest first, below a heading; as JSON, an object for each."""
    first = commands.detached("echo")
    second = commands.detached("waiting")
    heading, *lines = commands.run("jobs").out.splitlines()
    assert heading.split()[:4] == ["STATE", "JOB", "AGENT", "AT"]
    assert [[*line.split()[:3], line.split()[5]] for line in lines[:2]] == [
        ["running", second, "waiting@2", "alice"],
        ["success", first, "echo@1.0.0", "alice"],
    ]
    one, *_ = commands.run("jobs", "--json").objects
    assert (one["job_id"], one["status"]) == (second, "running")


def test_jobs_are_filtered(commands: Commands) -> None:
    """Jobs are filtered by status and by agent; an empty list is not a failure."""
    echo = commands.detached("echo")
    failing = commands.detached("failing")
    commands.run("watch", failing)
    listed = commands.run("jobs", "--agent", "echo").out
    assert echo in listed
    assert failing not in listed
    both = commands.run("jobs", "--status", "error", "--status", "success").out
    assert echo in both
    assert failing in both
    done = commands.run("jobs", "--agent", "report")
    assert (done.code, done.out, done.err) == (0, "", "there are no such jobs\n")


def test_a_status_that_there_is_not(commands: Commands) -> None:
    """The refusal of an unknown status names the statuses there are, which are the protocol's."""
    refusal = commands.refused(2, "jobs", "--status", "done")
    known = ", ".join(STATES)
    assert refusal.startswith(f"argument --status: must be one of {known}; see")
    assert list(STATES) == [status.value for status in Status]


def test_all_jobs(commands: Commands) -> None:
    """Without --all the newest jobs are listed, and a line says that there are more."""
    items = ["x"] * (NEWEST + 5)
    lease = ("--lease", "agent.delegate=echo")
    commands.run("submit", "team", *lease, "--input", str(items).replace("'", '"'))
    done = commands.run("jobs", "--agent", "echo", "--json")
    assert len(done.objects) == NEWEST
    assert done.err == f"there are more than these {NEWEST}; --all lists them\n"
    done = commands.run("jobs", "--agent", "echo", "--json", "--all")
    assert len(done.objects) >= len(items)
    assert done.err == ""
    assert done.objects[0]["parent_job_id"] is not None


def test_agents(commands: Commands) -> None:
    """Each agent is listed with its versions; of several the default one has a star."""
    lines = [line.split() for line in commands.run("agents").out.splitlines()]
    assert lines[0] == ["AGENT", "VERSIONS"]
    assert ["echo", "1.0.0"] in lines
    assert ["hiker", "1.0.0", "durable"] in lines
    (waiting,) = (line for line in lines if line[0] == "waiting")
    assert sorted(waiting[1:]) in (["1,", "2*"], ["1", "2*,"])
    agents = {agent["name"]: agent for agent in commands.run("agents", "--json").objects}
    assert sorted(agents["waiting"]["versions"]) == ["1", "2"]
    assert agents["waiting"]["default"] == "2"
    assert (agents["hiker"]["durable"], agents["echo"]["durable"]) == (["1.0.0"], [])


def test_one_agent(commands: Commands) -> None:
    """With its name, an agent is shown with what its input must be; an unknown one is refused."""
    shown = commands.run("agents", "picky").out
    table, _, schema = shown.partition("\n\n")
    assert [line.split()[0] for line in table.splitlines()] == ["AGENT", "picky"]
    heading, _, text = schema.partition("\n")
    assert heading == "input of picky@1.0.0, in JSON Schema:"
    wanted = {"type": "object", "required": ["name"], "title": "ab"}
    assert json.loads(text) == wanted
    (told,) = commands.run("agents", "picky", "--json").objects
    assert told["input_schemas"] == {"1.0.0": wanted}
    assert commands.run("agents", "echo").out.endswith("\nit does not say what its input must be\n")
    assert commands.refused(1, "agents", "nobody").startswith("there is no agent nobody; ")
    said = commands.refused(1, "agents", "pickey")
    assert said.startswith("there is no agent pickey (did you mean picky?); ")
    refusal = commands.refused(1, "submit", "picky", "--input", "{}")
    assert refusal == "refused: INVALID_REQUEST: input.name: missing"


def test_ping(commands: Commands) -> None:
    """Each ping has a line with its time, and the last line sums up."""
    done = commands.run("ping", "--count", "2")
    assert (done.code, done.err) == (0, "")
    opened, one, two, told = done.out.splitlines()
    time = r"[0-9]+\.[0-9] ms"
    assert re.fullmatch(rf"session opened in {time}", opened)
    for answer in (one, two):
        assert re.fullmatch(rf"answer from {re.escape(commands.url)} in {time}", answer)
    assert re.fullmatch(rf"{time} at best, {time} on average, {time} at worst", told)


def test_ping_as_json(commands: Commands) -> None:
    """With --json, each line of `ping` is an object of milliseconds."""
    opened, answer, told = commands.run("ping", "--count", "1", "--json").objects
    assert opened.keys() == {"opened_ms"}
    assert answer.keys() == {"answer_ms"}
    assert told == dict.fromkeys(("best_ms", "mean_ms", "worst_ms"), answer["answer_ms"])


def test_bench(commands: Commands) -> None:
    """Each figure of `bench` has a value and a unit; its jobs are not listed afterwards."""
    before = commands.run("jobs", "--all").out
    figures = commands.run("bench", "--json").objects
    after = commands.run("jobs", "--all").out
    assert [after.count(agent) - before.count(agent) for agent in ("echo@", "chatty@")] == [0, 0]
    assert [figure["unit"] for figure in figures] == ["ms", "ms", "1/s", "1/s"]
    assert all(figure["value"] > 0 for figure in figures)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """Serve without the demo agents."""
    with served(tmp_path_factory.mktemp("bare"), demo_agents=False) as commands:
        yield commands


def test_bench_without_the_demo_agents(bare: Commands) -> None:
    """`bench` names the agents that it needs and the runtime does not have."""
    assert "no agent chatty and no echo; run serve with --demo-agents" in bare.refused(1, "bench")
