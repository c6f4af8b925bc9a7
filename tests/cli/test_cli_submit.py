"""`submit` with pipes: its output and its exit codes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.clients import HOSTILE, Commands
from tests.cli.processes import LIFETIME_SECONDS

pytestmark = pytest.mark.real_tcp

JOB_ID = r"job_[0-9A-Z]{26}"


def test_the_result_alone_is_on_standard_output(commands: Commands) -> None:
    """The result is one line of JSON on standard output; the rest is on standard error."""
    done = commands.run("submit", "echo", "--input", '{"a": "é"}')
    assert (done.code, done.out) == (0, '{"echo":{"a":"é"}}\n')
    assert re.fullmatch(rf"{JOB_ID}  echo@1\.0\.0\n", done.err)


def test_text_is_printed_as_it_is(commands: Commands) -> None:
    """A result that is text has no quotes; streamed text is printed byte for byte."""
    assert commands.run("submit", "parrot", "--input", '"two words"').out == "two words\n"
    report = commands.run("submit", "report", "--input", '{"size": 10000}').out
    assert len(report) == 10_000
    assert report.startswith("Page 1 ")


def test_a_binary_result_goes_through(commands: Commands) -> None:
    """A binary result is written as it is."""
    assert commands.run("submit", "binary").raw == bytes(range(256))


def test_events_are_plain_lines(commands: Commands) -> None:
    """Each kind of event has its line, without colours and without a live line."""
    options = ("--lease", "tool.call=search.*", "--budget", "USD:1", "--expires-in", "1h")
    done = commands.run("submit", "speaker", *options)
    assert (done.code, done.out) == (0, "done\n")
    assert done.err.splitlines()[1:] == [
        "warn: first",
        "  second",
        "thought: perhaps",
        'tool call: search.web {"q":1}',
        'tool result: search.web {"hits":3}',
        "metric: cost.search 0.25 USD",
        "budget: 0.75 of 1.00 USD left",
        "metric: speed 3 m/s",
        "artifact: file:///a.png (image/png, 7 bytes)",
        'x-vendor.acme.note: {"a":1}',
    ]


def test_a_budget_in_another_currency(commands: Commands) -> None:
    """A job that spends what no budget bounds fails, and says what it needs."""
    shopping = ("submit", "shopper", "--lease", "tool.call=shop.*", "--input", '{"most": 2}')
    done = commands.run(*shopping, "--budget", "EUR:5")
    assert done.code == 1
    assert done.err.splitlines()[-1].endswith(
        "failed: BUDGET_EXHAUSTED: a cost in 'USD', and the budget is in EUR: the job needs one in"
        " that unit, too"
    )
    assert commands.run(*shopping).code == 0, "it was not to be bounded"


def test_progress_has_a_line_per_percent(commands: Commands) -> None:
    """Progress has at most one line per percent."""
    done = commands.run("submit", "countdown", "--input", '{"n": 1000, "delay": 0}')
    lines = [line for line in done.err.splitlines() if line.startswith("progress: ")]
    assert len(lines) == 101
    assert lines[-1] == "progress: 1000/1000 steps"


def test_json(commands: Commands) -> None:
    """Each event is an object on a line, and the last line is the message that ended the job."""
    done = commands.run("submit", "countdown", "--input", '{"n": 2, "delay": 0}', "--json")
    first, second, last = done.objects
    assert (done.code, done.err) == (0, "")
    assert first["seq"] == 1
    assert first["kind"] == "progress"
    assert first["body"] == {"current": 1, "total": 2, "units": "steps"}
    assert first.keys() == second.keys() == {"seq", "job_id", "kind", "body", "ts"}
    assert last.pop("completed_at")
    assert last == {
        "type": "job.result",
        "job_id": first["job_id"],
        "final_status": "success",
        "result": {"done": 2},
    }


def test_json_comes_as_it_happens(commands: Commands) -> None:
    """Each line is written as soon as its event arrives."""
    with commands.start("submit", "waiting", "--json") as process:
        assert process.stdout is not None
        assert '"message":"begun"' in process.stdout.readline()
        process.send_signal(signal.SIGINT)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("failing",), 1, "failed: INTERNAL_ERROR: no luck$"),
        (("sleeper", "--max-runtime", "1"), 5, "timed out: TIMEOUT: "),
    ],
)
def test_a_job_that_does_not_succeed(
    commands: Commands, arguments: tuple[str, ...], code: int, words: str
) -> None:
    """The end of a failed job is one line and an exit code; in JSON it is the last object."""
    done = commands.run("submit", *arguments)
    assert (done.code, done.out) == (code, "")
    *_, line = done.err.splitlines()
    assert re.match(rf"arcp-trio: {JOB_ID} {words}", line)
    done = commands.run("submit", *arguments, "--json")
    assert (done.code, done.err) == (code, "")
    assert done.objects[-1]["type"] == "job.error"
    assert done.objects[-1]["final_status"] == ("error" if code == 1 else "timed_out")


def test_a_misspelt_agent(commands: Commands) -> None:
    """An agent whose name is much like the given one is named."""
    said = commands.refused(1, "submit", "countdwn@1.0.0")
    assert said.endswith(": there is no agent countdwn (did you mean countdown?)")


def test_refusals(commands: Commands) -> None:
    """A refusal ends with 1 and says why."""
    assert commands.refused(1, "submit", "nobody") == (
        "refused: AGENT_NOT_AVAILABLE: there is no agent nobody; "
        "arcp-trio agents lists the agents there are"
    )


def test_a_key_makes_one_job(commands: Commands) -> None:
    """The same submission under the same key is the same job; another one is refused."""
    first = commands.detached("echo", "--key", "k", "--input", "1")
    assert commands.detached("echo", "--key", "k", "--input", "1") == first
    refused = commands.refused(1, "submit", "echo", "--key", "k", "--input", "2")
    assert refused.startswith("refused: DUPLICATE_KEY: ")
    assert refused.endswith("; with another --key it is another job")


def test_input_from_elsewhere(commands: Commands, tmp_path: Path) -> None:
    """The input is read from a file, or from standard input."""
    (tmp_path / "input.json").write_text("[1, 2]")
    done = commands.run("submit", "echo", "--input", f"@{tmp_path}/input.json")
    assert done.out == '{"echo":[1,2]}\n'
    assert commands.run("submit", "echo", "--input", "-", stdin=" 3\n").out == '{"echo":3}\n'


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--input", "{"), "--input cannot be sent: not valid JSON: "),
        (("--input", "@"), "--input @ names no file; write @FILE"),
        (("--input", "two words"), """is not JSON; to send text, write --input '"two words"'"""),
        (("--input", "2026-01-01"), """is not JSON; to send text, write --input '"2026-01-01"'"""),
        (("--input", "client_agents.py"), "in the file, write --input @client_agents.py"),
        (("--input", "{'n': 1}"), "--input cannot be sent: not valid JSON: Expecting property"),
        (
            ("--input", "{n:1}"),
            """; JSON has double quotes, which a shell leaves alone in '{"n": 3}'""",
        ),
        (("--input", "@no/such.json"), "cannot read the input no/such.json: no such file"),
        (("--budget", "5"), "--budget 5 is not CURRENCY:AMOUNT, such as USD:5"),
        (("--budget", "usd:2"), "--budget usd:2: did you mean USD? codes of three letters are"),
        (("--lease", "tool.call"), "--lease tool.call is not CAP=PATTERN"),
        (
            ("--lease", "bogus=x"),
            "there is no capability bogus; there are agent.delegate, ",
        ),
        (("--budget", "USD:4", "--lease", "cost.budget=USD:5"), "give it once"),
        (("--expires-in", "soon"), "argument --expires-in: must be a time such as 90s, 10m"),
        (("--max-runtime", "0"), "argument --max-runtime: must be a whole number"),
        (("--url", "http://h"), "--url is not the address of a runtime: 'http://h': for http://"),
        (("--url", ""), "argument --url: must be text that is not empty"),
        (("--url", "ws://a:1,,ws://b:1"), "'ws://a:1,,ws://b:1': a comma has no address before or"),
        (("--ca", "no/such.pem"), "cannot read --ca no/such.pem: no such file"),
    ],
)
def test_usage(commands: Commands, arguments: tuple[str, ...], words: str) -> None:
    """A malformed option is refused before anything is sent, with exit code 2."""
    assert words in commands.refused(2, "submit", "echo", *arguments)


def test_an_input_that_is_too_large(commands: Commands, tmp_path: Path) -> None:
    """An input that is too large for the runtime is one line."""
    (tmp_path / "large.json").write_text(f'"{"x" * 5_000_000}"')
    said = commands.refused(1, "submit", "echo", "--input", f"@{tmp_path}/large.json")
    assert "bytes are more than the runtime takes" in said


def test_advice_is_given_where_it_fits(commands: Commands) -> None:
    """The advice on quotes is not given for JSON that cannot be sent."""
    refused = commands.refused(2, "submit", "echo", "--input", '{"n": 99999999999999999999}')
    assert refused == "--input cannot be sent: n: integer beyond 64 bits"


@pytest.mark.parametrize(
    ("redirected", "code", "said"),
    [
        ("--input - <&-", 2, "arcp-trio: standard input cannot be sent: not valid JSON: "),
        ("--input 1 <&- >&-", 0, "job_"),
        ("--input 1 <&- 2>&-", 0, '{"echo":1}\n'),
        ("--input { 2>&-", 2, ""),
    ],
)
def test_closed_standard_streams(commands: Commands, redirected: str, code: int, said: str) -> None:
    """Output to a closed stream is dropped, and everything else works as usual."""
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m arcp_trio submit echo {redirected}', sys.executable],
        cwd=commands.folder,
        env=commands.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if "2>&-" not in redirected else subprocess.PIPE,
        text=True,
        check=False,
        timeout=LIFETIME_SECONDS,
    )
    assert done.returncode == code
    assert done.stdout.startswith(said) if said else done.stdout == ""


def test_hostile_text(commands: Commands) -> None:
    """No control sequence of an agent is printed; its text is."""
    text = '"' + HOSTILE.encode("unicode_escape").decode().replace("\\x", "\\u00") + '"'
    done = commands.run("submit", "parrot", "--input", text)
    assert done.err.splitlines()[1:] == [
        "info: red",
        "  gnp.exe 漢",
        "thought: red",
        "  gnp.exe 漢",
        "status: red gnp.exe 漢",
        "progress: 1/2 red",
        "  gnp.exe 漢",
    ]
    done = commands.run("submit", "parrot", "--input", text, "--json")
    assert done.objects[-1]["result"] == HOSTILE
    assert not set(done.out) & set(map(chr, [*range(10), *range(11, 32), *range(127, 160), 0x202E]))


def test_a_reader_that_has_had_enough(commands: Commands) -> None:
    """After `| head -1` the command ends quietly with the id of the job that is left running."""
    with commands.start("submit", "chatty", "--input", '{"n": 100000}', "--json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        job_id = json.loads(process.stdout.readline())["job_id"]
        process.stdout.close()
        assert process.wait(timeout=60) == 0
        said = process.stderr.read()
    assert said == f"the job goes on; arcp-trio watch {job_id} shows it\n"
    commands.run("cancel", job_id)


def test_the_id_without_a_reader(commands: Commands) -> None:
    """`--detach` into a closed pipe names the job on standard error."""
    with commands.start("submit", "echo", "--detach") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
        assert process.wait(timeout=60) == 0
    assert re.fullmatch(rf"the job goes on; arcp-trio watch {JOB_ID} shows it\n", said)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_the_job_running(commands: Commands, number: int, code: int) -> None:
    """Without a terminal, a signal leaves the job running, and its id is printed."""
    with commands.start("submit", "waiting") as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "waiting: for you" in line:
                break
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == code
    job_id = out.rstrip()
    assert re.fullmatch(JOB_ID, job_id)
    assert err == f"the job goes on; arcp-trio watch {job_id} shows it\n"
    assert job_id in commands.run("jobs", "--status", "running").out
    assert commands.run("cancel", job_id).code == 0


def test_a_full_disk_is_one_line(commands: Commands) -> None:
    """Output that cannot be written is a failure of one line."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "arcp_trio", "submit", "echo"],
            env=commands.environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "arcp-trio: cannot write the output: no space left on device"
    )
