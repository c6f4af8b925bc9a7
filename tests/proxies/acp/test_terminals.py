"""Commands that an agent has its client run: within the lease, bounded, and ended with the job."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from arcp_trio import JobCancelled, Limits
from tests.processes import alive, gone
from tests.proxies.acp.asking import asked, asked_of, values_in
from tests.proxies.acp.stage import begin, connected, first_word, told

pytestmark = pytest.mark.real_tcp

EXITED = {"exitCode": 0, "signal": None}
PYTHON = f"terminal/{Path(sys.executable).name}"


def may(*names: str) -> dict[str, list[str]]:
    """Return a lease for these commands."""
    return {"tool.call": [f"terminal/{each}" for each in names]}


def python(code: str, **fields: Any) -> list[Any]:
    """Return the step that runs a program in Python."""
    return ["terminal", sys.executable, ["-c", code], fields]


async def test_a_command() -> None:
    """The agent gets its end and its output; clients are told of it when it ends."""
    done = await asked(["terminal", "echo", ["a  b", "$HOME"]], lease=may("echo"))
    created, ended, output, released = done.answers
    assert list(created) == ["terminalId"]
    assert ended == EXITED
    assert output == {"output": "a  b $HOME\n", "truncated": False, "exitStatus": EXITED}
    assert released == {}
    ((tool, args),) = done.calls
    assert (tool, args["command"], args["args"]) == ("terminal/create", "echo", ["a  b", "$HOME"])
    assert done.results == [EXITED]


async def test_a_line_for_a_shell() -> None:
    """A line is run by a shell, as what agents send as a command often is one."""
    done = await asked(["terminal", "echo one; echo two >&2"], lease=may("sh"))
    assert done.answers[2]["output"] == "one\ntwo\n"


@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("echo hi; id", []),
        ("echo $(id)", []),
        ("sh", ["-c", "id"]),
        ("/bin/bash", ["-c", "id"]),
        ("env", ["id"]),
        ("sudo", ["id"]),
        ("xargs", ["id"]),
        ("{work}/echo", ["-c", "id"]),
        ("./echo", ["-c", "id"]),
    ],
)
async def test_no_shell_behind_another_name(tmp_path: Path, command: str, args: list[str]) -> None:
    """A lease for `terminal/echo` runs no shell: not by a line, a wrapper, or a link."""
    (tmp_path / "echo").symlink_to("/bin/sh")
    async with connected() as client:
        steps = json.dumps([["terminal", command.format(work=tmp_path), args]])
        handle = await client.submit(
            "scripted",
            {"prompt": steps, "cwd": str(tmp_path)},
            lease={**may("echo"), "fs.read": [str(tmp_path), f"{tmp_path}/**"]},
        )
        (answer,) = values_in(await handle.result())
        assert answer["code"] == -32603
        assert answer["message"].startswith("PERMISSION_DENIED: ")


async def test_the_folder_of_a_command(tmp_path: Path) -> None:
    """Another folder than the job's has to be readable, itself and where its links lead."""
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    (inside / "link").symlink_to(outside)
    lease = {**may("pwd"), "fs.read": [f"{inside}", f"{inside}/**"]}
    folders = [inside, outside, inside / ".." / "out", inside / "link"]
    steps: list[list[Any]] = [["terminal", "pwd", [], {"cwd": str(each)}] for each in folders]
    done = await asked(*steps, lease=lease)
    assert done.answers[2]["output"] == f"{inside}\n"
    assert [each["code"] for each in done.answers[4:]] == [-32603] * 3
    assert sorted(map(str, done.results)) == sorted([str(EXITED), *["PERMISSION_DENIED"] * 3])


async def test_variables() -> None:
    """A command has the agent's variables and the ones that the agent adds, but no LD_ ones."""
    code = "import json, os, sys; print(json.dumps({**os.environ, 'in': sys.stdin.read()}))"
    env = [{"name": name, "value": "x"} for name in ("ADDED", "LD_PRELOAD", "LD_LIBRARY_PATH")]
    done = await asked(python(code, env=env), lease=may("sh"), environment={"KEY": "agents"})
    variables = json.loads(done.answers[2]["output"])
    assert (variables["ADDED"], variables["KEY"], variables["in"]) == ("x", "agents", "")
    assert not [name for name in variables if name.startswith("LD_")]


async def test_variables_that_run_programs(tmp_path: Path) -> None:
    """A lease for `git` alone runs no command of a variable; variables are told."""
    env = [{"name": name, "value": value} for name, value in git_that_touches(tmp_path / "ran")]
    step: list[Any] = ["terminal", "git", ["own"], {"env": env}]
    done = await asked(step, lease=may("git"))
    assert done.results == ["PERMISSION_DENIED"]
    assert done.calls[0][1]["env"] == dict(git_that_touches(tmp_path / "ran"))
    assert not (tmp_path / "ran").exists()
    harmless = [{"name": "LANG", "value": "C"}]
    done = await asked(["terminal", "echo", ["x"], {"env": harmless}], lease=may("echo"))
    assert done.results == [EXITED]


def git_that_touches(path: Path) -> list[tuple[str, str]]:
    """Return variables with which `git own` runs a shell."""
    return [
        ("GIT_CONFIG_COUNT", "1"),
        ("GIT_CONFIG_KEY_0", "alias.own"),
        ("GIT_CONFIG_VALUE_0", f"!touch {path}"),
    ]


async def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    """A command in a folder that is missing is refused as something that is not found."""
    gone_folder = str(tmp_path / "none")
    lease = {**may("pwd"), "fs.read": [f"{tmp_path}/**"]}
    async with connected() as client:
        handle = await begin(client, ["terminal", "pwd", [], {"cwd": gone_folder}], lease=lease)
        (answer,) = values_in(str(await handle.result()))
    words = f"INTERNAL_ERROR: {gone_folder}: there is no such folder"
    assert answer == {"code": -32002, "message": words}


async def test_how_a_command_ends() -> None:
    """Its exit code, or the name of its signal; a program that is not there is told at once."""
    done = await asked(
        python("raise SystemExit(3)"),
        python("import os; os.kill(os.getpid(), 11)"),
        ["terminal", "no-such-program"],
        lease={"tool.call": [PYTHON, "terminal/no-such-program"]},
    )
    code, by_signal = {"exitCode": 3, "signal": None}, {"exitCode": None, "signal": "SIGSEGV"}
    assert (done.answers[1], done.answers[5]) == (code, by_signal)
    assert done.answers[8]["code"] == -32002
    assert done.results == [code, by_signal, "INTERNAL_ERROR"]


async def test_output_is_cut_at_a_character() -> None:
    """Only the newest output is kept, from the beginning of a character on."""
    code = "import sys; sys.stdout.write('é' * 100_000 + 'z')"
    done = await asked(
        python(code, outputByteLimit=10),
        python(code),
        python(code, outputByteLimit=10**9),
        python("print('whole', end='')", outputByteLimit=5),
        lease={"tool.call": [PYTHON]},
        limits=Limits(terminal_bytes=1_001),
    )
    outputs = done.answers[2::4]
    whole = "é" * 500 + "z"
    assert [each["output"] for each in outputs] == ["ééééz", whole, whole, "whole"]
    assert [each["truncated"] for each in outputs] == [True, True, True, False]


async def test_kill_and_release() -> None:
    """A killed command is still known, a released one is killed and not known."""
    done = await asked(
        ["killed", "sleep", ["100"]],
        ["call", "terminal/kill", {"terminalId": "none"}],
        ["call", "terminal/output", {}],
        lease=may("sleep"),
    )
    before, killed, ended, after, released, unknown, *rest = done.answers
    by_signal = {"exitCode": None, "signal": "SIGKILL"}
    assert before == {"output": "", "truncated": False}
    assert (killed, released, ended) == ({}, {}, by_signal)
    assert after == {**before, "exitStatus": by_signal}
    assert [each.get("code") for each in (unknown, *rest)] == [-32002, None, *[-32002] * 3]
    assert done.results == [by_signal] * 2


async def test_commands_end_with_their_turn() -> None:
    """A command that is left running is killed, and its result told, before the job's end."""
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(100)"
    async with connected() as client:
        done = await asked_of(
            client,
            ["call", "terminal/create", {"command": sys.executable, "args": ["-c", code]}],
            lease={"tool.call": [PYTHON]},
        )
        assert done.results == [{"exitCode": None, "signal": "SIGKILL"}]


async def test_commands_end_with_a_cancelled_job(tmp_path: Path) -> None:
    """A cancel kills the command and what it has started, and answers who waits for its end."""
    code = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '100'])\n"
        f"open({str(tmp_path / 'new')!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        f"os.rename({str(tmp_path / 'new')!r}, {str(tmp_path / 'pids')!r})\n"
        "time.sleep(100)"
    )
    async with connected() as client:
        handle = await begin(client, python(code), ["wait"], lease={"tool.call": [PYTHON]})
        while not (tmp_path / "pids").exists():  # noqa: ASYNC110 - another process makes it
            await trio.sleep(0.02)
        pids = [int(each) for each in (tmp_path / "pids").read_text().split()]
        assert all(map(alive, pids))
        await handle.cancel()
        events = await told(handle)
        with pytest.raises(JobCancelled):
            await handle.result()
        (result,) = [body for kind, body in events if kind == "tool_result"]
        assert result["result"] == {"exitCode": None, "signal": "SIGKILL"}
        await gone(pids)


async def test_many_commands() -> None:
    """Commands that have ended make room for new ones; while too many run, another is refused."""
    running = ["call", "terminal/create", {"command": "sleep", "args": ["100"]}]
    done = await asked(
        *(["left", "true"] for _ in range(5)),
        *(running for _ in range(3)),
        lease=may("sleep", "true"),
        limits=Limits(terminals_per_job=2),
    )
    assert ["terminalId" in each for each in done.answers] == [True] * 7 + [False]
    assert done.answers[-1]["message"].startswith("INTERNAL_ERROR: the limit terminals_per_job")


async def test_memory_of_output() -> None:
    """However much a command writes, no more memory is used than is kept of it."""
    code = "import sys\nfor _ in range(256): sys.stdout.buffer.write(b'x' * 2**20)"
    async with connected(limits=Limits(terminal_bytes=1_000)) as client:
        before = resident()
        handle = await begin(
            client,
            ["left", sys.executable, ["-c", code]],
            ["wait"],
            lease={"tool.call": [PYTHON]},
        )
        assert "terminalId" in await first_word(handle)
        assert resident() - before < 96 * 1024
        await handle.cancel()
        with pytest.raises(JobCancelled):
            await handle.result()


def resident() -> int:
    """Return how much memory this process has, in KiB."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"command": ""},
        {"command": 3},
        {"command": "x", "args": "y"},
        {"command": "x", "args": [3]},
        {"command": "x", "args": ["\0"]},
        {"command": "x", "cwd": 3},
        {"command": "x", "env": [{"name": "A"}]},
        {"command": "x", "env": [{"name": "A=", "value": "b"}]},
    ],
)
async def test_what_is_no_command(params: dict[str, Any]) -> None:
    """What has the wrong shape is refused as such, and is not told as a tool call."""
    done = await asked(["call", "terminal/create", params], lease=may("*"))
    assert done.answers[0]["code"] == -32602
    assert not done.calls
