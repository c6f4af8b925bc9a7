"""What a job asks, on the command line: `submit`, `watch`, `answer`, `jobs --waiting`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import evolve

from tests.cli.clients import Commands, served
from tests.cli.processes import LIFETIME_SECONDS
from tests.cli.relay import relay
from tests.cli.terminals import terminal

pytestmark = pytest.mark.real_tcp

ASKERS = """
import arcp_trio, trio
from arcp_trio.wire.ids import new_id

agents = arcp_trio.Agents()

@agents.agent("asker")
async def asker(job):
    return await job.ask(**job.input)

@agents.agent("busy")
async def busy(job):
    async with trio.open_nursery() as nursery:
        @nursery.start_soon
        async def work():
            for number in range(1, 1_000_000):
                await trio.sleep(0.2)
                await job.log(f"line {number}")
        answer = await job.ask("Enough?")
        nursery.cancel_scope.cancel()
    return answer

@agents.agent("careful")
async def careful(job):
    results = []
    for path in job.input:
        call = {"tool": "fs/write", "call_id": new_id("call_"), "args": {"path": path}}
        await job.emit("tool_call", call)
        try:
            try:
                job.authorize("fs.write", path)
                result = {"decision": "allow"}
            except arcp_trio.ApprovalNeeded:
                ids = call["call_id"], call["tool"], call["args"]
                await job.ask_approval(*ids, "fs.write", [path])
                result = await job.decision(call["call_id"])
        except arcp_trio.ArcpError as error:
            result = error.details
        await job.emit("tool_result", {"call_id": call["call_id"], "result": result})
        results.append(result["decision"])
    return results

@agents.agent("late")
async def late(job):
    while not await trio.Path("ask-now").exists():
        await trio.sleep(0.01)
    await job.emit("tool_call", {"tool": "db/drop", "call_id": "call_1", "args": {}})
    await job.ask_approval("call_1", "db/drop", {}, "fs.write", ["/srv/production"])
    try:
        result = await job.decision("call_1")
    except arcp_trio.ArcpError as error:
        result = error.details
    await job.emit("tool_result", {"call_id": "call_1", "result": result})
    return result["decision"]

@agents.agent("pair")
async def pair(job):
    answers = {}
    async def ask(prompt):
        answers[prompt] = await job.ask(prompt, name=prompt)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, "one?")
        nursery.start_soon(ask, "two?")
    return answers
"""
LEASE = "--lease=tool.call=human.ask"
CHOICE = json.dumps({"prompt": "Publish?\x1b[2J", "options": ["yes", "no"], "to": "the editor"})
OPEN = json.dumps({"prompt": "How many?", "schema": {"type": "integer", "minimum": 1}})


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """Serve agents that ask, with eve as an approver."""
    folder: Path = tmp_path_factory.mktemp("asking")
    (folder / "askers.py").write_text(ASKERS, encoding="utf-8")
    options = ("--agents=askers", "--token=eve=eves", "--approver=eve")
    with served(folder, *options, demo_agents=False) as commands:
        yield commands


def waiting(commands: Commands, job_id: str) -> list[dict[str, object]]:
    """Wait until a job asks, and return what it asks."""
    ends = time.monotonic() + LIFETIME_SECONDS
    while time.monotonic() < ends:
        for info in commands.run("jobs", "--waiting", "--json").objects:
            if info["job_id"] == job_id:
                asked: list[dict[str, object]] = info["waiting"]
                return asked
    raise AssertionError(f"{job_id} does not ask")


def test_submit_asks_on_a_terminal(asking: Commands) -> None:
    """A person reads the question with its options, and answers with a number."""
    with terminal(asking, "submit", "asker", "--input", CHOICE, LEASE) as on:
        on.wait_for("answer: ")
        lines = on.lines
        at = lines.index("question for the editor: Publish?")
        assert lines[at + 1 : at + 4] == ["  1  yes", "  2  no", "answer:"]
        on.type("2\n")
        assert on.end() == 0
        assert on.lines[-2:] == ["no", ""]


def test_what_is_no_answer_is_asked_again(asking: Commands) -> None:
    """A person reads what is wrong with an answer, and puts it right; JSON is read as JSON."""
    with terminal(asking, "submit", "asker", "--input", OPEN, LEASE) as on:
        on.wait_for("answer: ")
        on.type("many\n")
        on.wait_for("this is not an answer: expected integer")
        on.wait_for('the answer is {"type":"integer","minimum":1}')
        while on.raw.count("answer: ") < 3:
            on.read_more()
        on.type("\n")
        while on.raw.count("answer: ") < 4:
            on.read_more()
        on.type("12\n")
        assert on.end() == 0
        assert on.lines[-2:] == ["12", ""]


def test_ctrl_c_comes_first(asking: Commands) -> None:
    """At Ctrl-C the question gives way to the one how to leave, and is asked again afterwards."""
    with terminal(asking, "submit", "asker", "--input", CHOICE, LEASE) as on:
        on.wait_for("answer: ")
        on.type("\x03")
        on.wait_for("(g)o on watching? ")
        on.type("g\n")
        while on.raw.count("answer: ") < 2:
            on.read_more()
        confirmed = "going on; Ctrl-C asks again\r\n"
        assert confirmed in on.raw.rpartition("answer: ")[0], "before the question"
        on.type("yes\n")
        assert on.end() == 0


def test_what_happens_is_shown_above_the_question(asking: Commands) -> None:
    """While a person thinks, the events of a job that goes on are shown, and then the question."""
    with terminal(asking, "submit", "busy", LEASE) as on:
        on.wait_for("answer: ")
        on.wait_for("info: line 8")
        on.type("yes\n")
        assert on.end() == 0
    asked = on.lines.index("question: Enough?")
    assert "info: line 8" in on.lines[asked:]
    assert "answer: yes" in on.lines
    assert on.lines[-2:] == ["yes", ""]


def test_watch_asks_on_a_terminal(asking: Commands) -> None:
    """A job that was submitted elsewhere is answered where it is watched; an approver may, too."""
    job_id = asking.detached("asker", "--input", CHOICE, LEASE)
    with terminal(evolve(asking, token="eves"), "watch", job_id) as on:
        on.wait_for("answer: ")
        on.type("yes\n")
        assert on.end() == 0
        assert '{"answer":"yes","by":"eve"}' in "".join(on.lines)


def test_a_question_that_is_answered_elsewhere_is_withdrawn(asking: Commands) -> None:
    """A question on the terminal goes away once another person has answered it."""
    job_id = asking.detached("asker", "--input", CHOICE, LEASE)
    with terminal(asking, "watch", job_id) as on:
        on.wait_for("answer: ")
        assert asking.run("answer", job_id, "no").code == 0
        assert on.end() == 0
        assert on.lines[-2:] == ["no", ""]


def test_without_a_terminal_the_question_is_printed(asking: Commands) -> None:
    """Through a pipe `submit` says how to answer, and goes on once somebody does."""
    process = asking.start("submit", "asker", "--input", CHOICE, LEASE)
    assert process.stderr is not None
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or not lines[-1].endswith(" VALUE answers it\n"):
        lines.append(process.stderr.readline())
        assert lines[-1], lines
    assert lines[-4:-1] == ["question for the editor: Publish?\n", "  1  yes\n", "  2  no\n"]
    _, _, *ids, _, _, _ = lines[-1].split()
    done = asking.run("answer", *ids, "yes")
    assert (done.code, done.out, done.err) == (0, "", "answered: Publish?\n")
    assert process.wait(LIFETIME_SECONDS) == 0
    assert process.stdout.read() == "yes\n"
    process.stdout.close()
    process.stderr.close()


@pytest.mark.parametrize(
    ("question", "value", "result"),
    [
        ({"prompt": "?"}, "12", 12),
        ({"prompt": "?"}, '{"a": [1]}', {"a": [1]}),
        ({"prompt": "?"}, "plain words", "plain words"),
        ({"prompt": "?", "options": ["1", "2"]}, "2", "2"),
        ({"prompt": "?", "schema": {"type": "string"}}, "12", "12"),
        ({"prompt": "?", "schema": {"type": "number"}}, "-5", -5),
    ],
)
def test_a_value_is_json_where_no_text_is_wanted(
    asking: Commands, question: object, value: str, result: object
) -> None:
    """`answer` takes a value as the question wants it."""
    job_id = asking.detached("asker", "--input", json.dumps(question), LEASE)
    (asked,) = waiting(asking, job_id)
    done = asking.run("answer", job_id, value, "--json")
    ids = {"job_id": job_id, "question_id": asked["question_id"]}
    assert done.objects == [{"type": "x-vendor.arcp-trio.answered", **ids}]
    end = asking.run("watch", job_id, "--json").objects[-1]
    assert end["result"] == result


def test_several_questions_of_a_job(asking: Commands) -> None:
    """Where a job asks several, the question has to be named; a list has the ids."""
    job_id = asking.detached("pair", LEASE)
    while len(asked := waiting(asking, job_id)) < 2:
        pass
    ids = {str(each["prompt"]): str(each["question_id"]) for each in asked}
    said = asking.refused(1, "answer", job_id, "x")
    assert said.startswith(f"{job_id} asks several questions; name one of them: call_")
    assert f"{ids['one?']} (one?)" in said
    heading, *rows = asking.run("jobs", "--waiting").out.splitlines()
    assert heading.split() == ["JOB", "QUESTION", "AGENT", "WHO", "FOR", "OPEN", "UNTIL", "ASKS"]
    shown = [row.split() for row in rows if job_id in row]
    assert sorted(shown) == sorted(
        [job_id, ids[prompt], "pair@1.0.0", "alice", prompt] for prompt in ids
    )
    assert asking.run("answer", job_id, ids["two?"], "2").code == 0
    assert asking.run("answer", job_id, "1").code == 0
    assert asking.run("watch", job_id, "--json").objects[-1]["result"] == {"one?": 1, "two?": 2}
    missing = asking.refused(1, "answer", job_id, ids["two?"], "2")
    assert missing == (
        f"{job_id} has no open question {ids['two?']};"
        " arcp-trio jobs --waiting lists those that there are"
    )
    assert "no open question;" in asking.refused(1, "answer", "job_none", "2")


def test_a_refused_answer(asking: Commands) -> None:
    """An answer outside of what was asked for is refused in one line."""
    job_id = asking.detached("asker", "--input", CHOICE, LEASE)
    waiting(asking, job_id)
    said = asking.refused(1, "answer", job_id, "perhaps")
    assert said == ("refused: INVALID_REQUEST: answer: expected one of 'yes', 'no'")
    assert asking.run("answer", job_id, "yes").code == 0


ASK = "--ask=fs.write=/srv/**"
PROMPT = "  no\r\nyes, job or no: "


def careful(*paths: str) -> list[str]:
    """Return the options for a job that wants to write these files."""
    return ["careful", "--input", json.dumps(paths), ASK]


def test_submit_asks_for_approvals(asking: Commands) -> None:
    """A person sees what is asked for, and types a whole word: yes for once, job, or no."""
    paths = ["/srv/a", "/srv/b", "/srv/b", "/srv/c"]
    with terminal(asking, "submit", *careful(*paths)) as on:
        on.wait_for(PROMPT)
        at = on.lines.index("approval: Allow fs.write of /srv/a?")
        assert on.lines[at + 1] == '  fs/write {"path":"/srv/a"}'
        assert on.lines[at + 2].startswith("  open until ")
        assert on.lines[at + 3 :] == [
            "  yes  once",
            "  job  for this job: fs.write of /srv/a, with any content",
            "  no",
            "yes, job or no:",
        ]
        on.type("y\n")
        on.wait_for("please type yes, job or no, as a whole word")
        for number, word in enumerate(["yes", "JOB", "no"], 2):
            while on.raw.count(PROMPT) < number:
                on.read_more()
            on.type(f"{word}\n")
        assert on.end() == 0
        assert on.lines[-2:] == ['["allow","allow","allow","deny"]', ""]


@pytest.mark.parametrize("typed", ["yes\n", "ye"])
def test_what_was_typed_before_is_no_answer(asking: Commands, typed: str) -> None:
    """What is typed before a question is shown does not answer it: neither a line nor a part."""
    (asking.folder / "ask-now").unlink(missing_ok=True)
    with terminal(asking, "submit", "late", ASK) as on:
        on.wait_for("running 0:0")
        on.type(typed)
        on.wait_for(typed.rstrip())
        (asking.folder / "ask-now").touch()
        on.wait_for(PROMPT)
        on.type("no\n")
        assert on.end() == 0
        assert on.lines[-2:] == ["deny", ""]


def test_what_was_typed_before_a_resize_is_no_answer(asking: Commands) -> None:
    """Where a terminal's new size has the question drawn again, a line begun before is dropped."""
    with terminal(asking, "submit", *careful("/srv/a")) as on:
        on.wait_for(PROMPT)
        on.type("ye")
        on.wait_for(f"{PROMPT}ye")
        on.resize(100)
        while on.raw.count(PROMPT) < 2:
            on.read_more()
        on.type("no\n")
        assert on.end() == 0
        assert on.lines[-2:] == ['["deny"]', ""]


def test_what_was_typed_without_a_connection_is_no_answer(asking: Commands) -> None:
    """Once the connection is back, an open question is asked again, and a line begun is dropped."""
    with relay(asking.url) as between:
        through = evolve(asking, url=between.url)
        with terminal(through, "submit", *careful("/srv/a")) as on:
            on.wait_for(PROMPT)
            between.fail()
            on.wait_for("connection lost, trying again; nothing is missed")
            on.type("ye")
            between.works = True
            on.wait_for("connected again")
            while on.raw.rpartition("connected again")[2].count(PROMPT) < 1:
                on.read_more()
            on.type("no\n")
            assert on.end() == 0
            assert on.lines[-2:] == ['["deny"]', ""]


def test_watch_asks_an_approver(asking: Commands) -> None:
    """Where a job is watched by an approver, it is asked, too."""
    job_id = asking.detached(*careful("/srv/a"))
    with terminal(evolve(asking, token="eves"), "watch", job_id) as on:
        on.wait_for(PROMPT)
        on.type("no\n")
        assert on.end() == 0
        assert '"by":"eve"' in "".join(on.lines)


def test_an_approval_from_elsewhere(asking: Commands) -> None:
    """Without a terminal `submit` prints how to answer and goes on; `answer` has a scope."""
    process = asking.start("submit", *careful("/srv/a", "/srv/a"))
    assert process.stderr is not None
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or not lines[-1].endswith(" yes|no answers it\n"):
        lines.append(process.stderr.readline())
        assert lines[-1], lines
    assert lines[-2] == "  --scope job allows for this job: fs.write of /srv/a, with any content\n"
    job_id, question_id = lines[-1].split()[2:4]
    assert "must be one of once, job" in asking.refused(
        2, "answer", job_id, "allow", "--scope=ever"
    )
    said = asking.refused(1, "answer", job_id, question_id, "ye")
    assert said == "refused: INVALID_REQUEST: answer: expected 'allow' or 'deny'"
    done = asking.run("answer", job_id, "allow", "--scope", "job")
    assert (done.code, done.err) == (0, "answered: Allow fs.write of /srv/a?\n")
    assert process.wait(LIFETIME_SECONDS) == 0
    assert process.stdout.read() == '["allow","allow"]\n'
    process.stdout.close()
    process.stderr.close()


@pytest.mark.parametrize(
    ("word", "decision"), [("yes", "allow"), ("Y", "allow"), ("no", "deny"), ("n", "deny")]
)
def test_an_approval_in_the_words_of_the_terminal(
    asking: Commands, word: str, decision: str
) -> None:
    """`answer` takes yes and no for an approval, too."""
    job_id = asking.detached(*careful("/srv/a"))
    waiting(asking, job_id)
    assert asking.run("answer", job_id, word).code == 0
    assert asking.run("watch", job_id).out == f'["{decision}"]\n'


def test_what_ask_cannot_say(asking: Commands) -> None:
    """--ask names one of four capabilities and a pattern."""
    for item in ("fs.write", "model.use=m/*", "=x"):
        said = asking.refused(2, "submit", "careful", "--ask", item)
        assert said.startswith(f"--ask {item} is not CAP=PATTERN, such as fs.write=/srv/**; CAP is")
