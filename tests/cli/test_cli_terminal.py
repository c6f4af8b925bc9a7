"""What people see on a terminal of 80 and of 40 columns, with colours and without."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from attrs import evolve

from tests.cli.clients import HOSTILE, Commands, go_on
from tests.cli.relay import relay
from tests.cli.terminals import Terminal, terminal

pytestmark = pytest.mark.real_tcp

widths = pytest.mark.parametrize("columns", [80, 40])
COUNT = ("submit", "countdown", "--input", '{"n": 4, "delay": 0.3}')


def seen_on_the_way(on: Terminal) -> list[str]:
    """Return all states of the live line."""
    return [
        re.sub(r"\x1b\[[0-9;]*m", "", part.partition("\r")[0].partition("\n")[0])
        for part in on.raw.split("\r\x1b[K")[1:]
    ]


@widths
def test_a_job_with_progress(commands: Commands, columns: int, tmp_path: Path) -> None:
    """The bar grows in one line, which the result replaces."""
    with terminal(commands, *commands.stepping(tmp_path), columns=columns) as on:
        for step in (1, 2, 3, 4):
            on.wait_for(f"{step}/4 steps")
            go_on(tmp_path, step)
        assert on.end() == 0
        assert "".join(on.lines[:-2]).endswith("  stepper@1.0.0")
        assert on.lines[-2:] == ['{"done":4}', ""]
        bar = 20 if columns == 80 else 10
        drawn = seen_on_the_way(on)
        for step in (1, 2, 3):
            full = bar * step // 4
            assert f"[{'#' * full}{'-' * (bar - full)}] {step}/4 steps" in drawn
        assert "\x1b[36m" in on.raw


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [
        ({"NO_COLOR": "1"}, False),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        ({"NO_COLOR": ""}, True),
        ({"TERM": "dumb"}, False),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, True),
    ],
    ids=str,
)
def test_colours(commands: Commands, environment: dict[str, str], *, coloured: bool) -> None:
    """NO_COLOR, FORCE_COLOR and a dumb terminal decide about colours, in this order."""
    lease = ("--lease", "tool.call=search.*")
    with terminal(commands, "submit", "speaker", *lease, environment=environment) as on:
        assert on.end() == 0
        assert ("\x1b[33mwarn: first\x1b[0m" in on.raw) is coloured
        assert bool(re.search(r"\x1b\[[0-9;]*m", on.raw)) is coloured
        assert on.lines[1:4] == ["warn: first", "  second", "thought: perhaps"]
        assert on.lines[-2:] == ["done", ""]


def test_a_dumb_terminal(commands: Commands) -> None:
    """On a dumb terminal, progress has lines."""
    with terminal(commands, *COUNT, environment={"TERM": "dumb"}) as on:
        assert on.end() == 0
        assert "\x1b" not in on.raw
        assert on.lines[1:] == [
            *(f"progress: {step}/4 steps" for step in (1, 2, 3, 4)),
            '{"done":4}',
            "",
        ]


def test_colours_are_not_for_pipes(commands: Commands) -> None:
    """Output to a pipe has no colours unless they are forced."""
    lease = ("--lease", "tool.call=search.*")
    assert "\x1b" not in commands.run("submit", "speaker", *lease).err
    assert "\x1b[33m" in commands.run("submit", "speaker", *lease, FORCE_COLOR="1").err


@widths
def test_lines_stand_above_the_live_line(commands: Commands, columns: int) -> None:
    """A line that stays is written above the live line."""
    with terminal(commands, "submit", "waiting", columns=columns) as on:
        on.wait_for("waiting: fo")
        *_, log, live_line = on.lines
        assert log == "info: begun"
        bar = "[#####---------------]" if columns == 80 else "[##--------]"
        assert live_line.startswith(f"{bar} 1/4 steps  waiting: fo")
        assert len(live_line) < columns


def test_the_log_has_lines_of_its_own(commands: Commands, tmp_path: Path) -> None:
    """Lines of the log are written above the live line, too."""
    with relay(commands.url) as between:
        through = evolve(commands, url=between.url)
        command = (*commands.stepping(tmp_path), "--log-level", "info")
        with terminal(through, *command, columns=200) as on:
            on.wait_for("1/4 steps")
            between.fail()
            on.wait_for("connection lost, trying again")
            between.works = True
            go_on(tmp_path, 1, 2, 3, 4)
            assert on.end() == 0
        told = [line for line in on.lines if " info " in line]
        assert told
        assert all(re.match("20[0-9-]+T", line) for line in told)


@widths
def test_hostile_text(commands: Commands, columns: int) -> None:
    """Hostile text is shown without its control sequences, and fits the screen."""
    text = json.dumps(HOSTILE)
    with terminal(commands, "submit", "parrot", "--input", text, columns=columns) as on:
        assert on.end() == 0
        lines = on.lines
        assert lines[-3:] == ["red", "gnp.exe 漢", ""]
        assert lines.index("info: red") == lines.index("thought: red") - 2


def test_a_result_that_is_large_is_laid_out(commands: Commands) -> None:
    """JSON that is wider than the screen is indented over several lines."""
    given = json.dumps({"words": ["漢字"] * 30})
    with terminal(commands, "submit", "echo", "--input", given) as on:
        assert on.end() == 0
        result = "\n".join(on.lines[1:])
        assert json.loads(result) == {"echo": json.loads(given)}
        assert '      "漢字",' in on.lines


def test_bytes_are_not_for_the_screen(commands: Commands) -> None:
    """A binary result is not written to a terminal."""
    with terminal(commands, "submit", "binary") as on:
        assert on.end() == 0
        assert on.lines[-2:] == [
            "the result is 256 bytes and not text; send the output to a file",
            "",
        ]


@widths
def test_lists(commands: Commands, columns: int) -> None:
    """A list has columns; on a narrow terminal a job takes several lines."""
    job_id = commands.detached("echo")
    with terminal(commands, "jobs", columns=columns) as on:
        assert on.end() == 0
        lines = on.lines
        if columns == 80:
            assert lines[0].split() == ["STATE", "JOB", "AGENT", "AT", "(UTC)", "TOOK", "WHO"]
        else:
            assert any(job_id in line for line in lines)
        assert all(len(line) <= columns for line in lines)


@widths
def test_tool_calls_stay(commands: Commands, columns: int) -> None:
    """Tool calls and results are lines that stay and fit; the last one says what is left."""
    options = ("--lease", "tool.call=shop.*", "--budget", "USD:2", "--input", '{"most": 3}')
    with terminal(commands, "submit", "shopper", *options, columns=columns) as on:
        assert on.end() == 0
    assert [line for line in on.lines if "shop.buy" in line] == [
        line
        for item, receipt in (("apples", 1), ("bread", 2), ("coffee", 3))
        for line in (
            f'tool call: shop.buy {{"item":"{item}"}}',
            f'tool result: shop.buy {{"receipt":{receipt}}}',
        )
    ]
    assert on.lines[-3:-1] == ["0.95 of 2.00 USD left", '{"bought":3,"stopped_by":null}']
    assert "1.65 of 2.00 USD left" in on.raw


@widths
def test_a_long_tool_call_is_one_line(commands: Commands, columns: int) -> None:
    """The arguments and the result of a tool call take one line each, whatever is in them."""
    given = json.dumps("long " * 30 + HOSTILE)
    options = ("--lease", "tool.call=*", "--input", given)
    with terminal(commands, "submit", "caller", *options, columns=columns) as on:
        assert on.end() == 0
    calls = [line for line in on.lines if line.startswith("tool ")]
    assert [line[:16] for line in calls] == ["tool call: copy ", "tool result: cop"]
    assert all(len(line) == columns - 1 and line.endswith("…") for line in calls)


@widths
def test_a_refused_delegation(commands: Commands, columns: int) -> None:
    """A delegation without a grant says that it is refused, to whom, and why."""
    with terminal(commands, "submit", "team", "--input", '["a"]', columns=columns) as on:
        assert on.end() == 1
    told = "".join(f"{line:{columns}}" for line in on.lines)
    why = "delegation refused: agent echo: the lease does not allow agent.delegate of 'echo@1.0.0'"
    assert 'delegating to: echo "a"' in on.lines
    assert f"{why} (PERMISSION_DENIED)" in told
    assert f" failed: PERMISSION_DENIED: {why}" in told
