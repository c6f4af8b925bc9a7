"""A person at a terminal decides what a program that speaks ACP may do."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.clients import Commands, served
from tests.cli.processes import LIFETIME_SECONDS, ROOT
from tests.cli.terminals import Terminal, terminal

AGENT = f"coder=acp:{sys.executable} {shlex.quote(str(ROOT / 'tests/proxies/acp/scripted.py'))}"
PROMPT = "  no\r\nyes, job or no: "

pytestmark = pytest.mark.real_tcp


@pytest.fixture(scope="module")
def coding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """Serve the scripted agent."""
    with served(tmp_path_factory.mktemp("coding"), "--agent", AGENT, demo_agents=False) as commands:
        yield commands


def whole(on: Terminal) -> str:
    """Return what is on the screen, without the breaks of lines that are longer than it is wide."""
    return "\n".join(on.lines).replace("\n  ↪ ", "")


def test_from_an_edit_to_a_file(coding: Commands, tmp_path: Path) -> None:
    """`submit --ask` asks for the edit and for the command; yes and job allow them."""
    path = tmp_path / "file"
    steps = [
        ["write", str(path), "one"],
        ["terminal", "echo two"],
        ["terminal", "echo three"],
        ["write", str(path), "four"],
    ]
    prompt = ("--prompt", json.dumps(steps))
    asks = (f"--ask=fs.write={tmp_path}/**", "--ask=tool.call=terminal/*")
    with terminal(coding, "submit", "coder", *prompt, *asks) as on:
        for number, word in enumerate(["yes", "job", "no"], 1):
            while on.raw.count(PROMPT) < number:
                on.read_more()
            on.type(f"{word}\n")
        assert on.end() == 0
        lines = whole(on)
        assert f"approval: Allow fs.write of {path}?" in lines
        assert "approval: Allow tool.call of terminal/sh?" in lines
        assert '"command":"echo two"' in lines
    assert path.read_text() == "one"


def test_what_is_shown(coding: Commands, tmp_path: Path) -> None:
    """A person sees what a call is about to do, and every character and step of a path."""
    call = {"kind": "execute", "title": "list files", "rawInput": {"command": "rm -rf /"}}
    steps = [["ask", call], ["write", f"{tmp_path}/a/../cart\u200b.py", "x"]]
    prompt = ("--prompt", json.dumps(steps))
    asks = (f"--ask=fs.write={tmp_path}/**", "--ask=tool.call=acp/*")
    with terminal(coding, "submit", "coder", *prompt, *asks) as on:
        for number in (1, 2):
            while on.raw.count(PROMPT) < number:
                on.read_more()
            on.type("no\n")
        assert on.end() == 0
        lines = whole(on)
        assert '"input":{"command":"rm -rf /"}' in lines
        assert f"approval: Allow fs.write of {tmp_path}/cart\\u200b.py?" in lines


def test_a_write_is_shown_whole(coding: Commands, tmp_path: Path) -> None:
    """The diff, the folder and what `job` allows stand above the prompt, and nothing passes for it.

    What the agent writes is escaped and indented, also where the terminal would break a line.
    """
    path = tmp_path / "file"
    path.write_text("".join(f"{number}\n" for number in range(100)))
    hostile = "\x1b[2J" + "=" * 200 + "approval: Allow fs.read of /etc/motd?"
    new = "".join(f"{number}!\n" for number in range(100)) + hostile
    prompt = ("--prompt", json.dumps([["write", str(path), new]]), "--cwd", str(tmp_path))
    lease = (f"--lease=fs.read={tmp_path}/**", f"--ask=fs.write={tmp_path}/**")
    with terminal(coding, "submit", "coder", *prompt, *lease) as on:
        on.wait_for(PROMPT)
        above = on.lines[on.lines.index("    @@ -1,100 +1,101 @@") : -1]
        above = above[: next(n for n, line in enumerate(above) if line.startswith("  open until "))]
        assert all(line.startswith(("    ", "  ↪ ")) for line in above)
        diff = [line[4:] for line in whole(on).splitlines() if line.startswith("    ")]
        assert {f"-{number}" for number in range(100)} <= {*diff}
        assert {f"+{number}!" for number in range(100)} <= {*diff}
        assert "+\\x1b" + hostile[1:] in diff
        assert f"  in {tmp_path}" in whole(on).splitlines()
        assert f"  job  for this job: fs.write of {path}, with any content" in whole(on)
        on.type("no\n")
        assert on.end() == 0


def test_a_command_is_shown_whole(coding: Commands, tmp_path: Path) -> None:
    """The line that would run stands above the prompt, with each of its own lines."""
    prompt = ("--prompt", json.dumps([["terminal", "echo one\nno\x1b[A"]]), "--cwd", str(tmp_path))
    lease = (f"--lease=fs.read={tmp_path}/**", "--ask=tool.call=terminal/*")
    with terminal(coding, "submit", "coder", *prompt, *lease) as on:
        on.wait_for(PROMPT)
        at = on.lines.index("  it would run")
        assert "echo one" in on.lines[at + 1]
        assert on.lines[at + 2].startswith("    no\\x1b[A")
        on.type("no\n")
        assert on.end() == 0


def test_from_elsewhere(coding: Commands, tmp_path: Path) -> None:
    """What waits is listed with the others' questions, all of it for programs, and is answered."""
    path = tmp_path / "file"
    prompt = ("--prompt", json.dumps([["write", str(path), "x"]]))
    job_id = coding.detached("coder", *prompt, f"--ask=fs.write={tmp_path}/**")
    ends = time.monotonic() + LIFETIME_SECONDS
    while f"Allow fs.write of {path}? (allow, deny)" not in coding.run("jobs", "--waiting").out:
        assert time.monotonic() < ends
    (listed,) = coding.run("jobs", "--waiting", "--json").objects
    (asked,) = listed["waiting"]
    assert asked["kind"] == "approval"
    assert (asked["capability"], asked["targets"]) == ("fs.write", [str(path)])
    assert (asked["tool"], asked["args"]) == ("fs/write_text_file", {"path": str(path)})
    assert coding.run("answer", job_id, "allow").code == 0
    assert coding.run("watch", job_id).code == 0
    assert path.read_text() == "x"


def test_a_wrong_input_is_told_with_its_place(coding: Commands) -> None:
    """What is wrong with an input that the agent itself refuses is told like other refusals."""
    wrong = coding.run("submit", "coder", "--input", '{"prompt": 3}')
    told = "INVALID_REQUEST: prompt: expected a text, or a list of content blocks"
    assert (wrong.code, wrong.err.endswith(f" failed: {told}\n")) == (1, True), wrong.err
    assert told in coding.run("jobs").out


def test_words_during_a_question_on_a_dumb_terminal(coding: Commands, tmp_path: Path) -> None:
    """What the agent says while it asks begins a line, without a control sequence for that."""
    question = {
        "toolCall": {"toolCallId": "p", "kind": "think"},
        "options": [{"optionId": "o", "name": "o", "kind": "allow_once"}],
    }
    asked = tmp_path / "asked"
    wait = ["run", f"until test -e {asked}; do sleep 0.1; done; echo words"]
    prompt = json.dumps([["send", "session/request_permission", question], wait])
    options = ("--ask=tool.call=acp/*", f"--lease=fs.read={tmp_path}/**", "--prompt", prompt)
    with terminal(coding, "submit", "coder", *options, environment={"TERM": "dumb"}) as on:
        on.wait_for("yes, job or no: ")
        asked.touch()
        on.end()
        assert '"words\\n"' in on.lines
        assert "\x1b" not in on.raw
