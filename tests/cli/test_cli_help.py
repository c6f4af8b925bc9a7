"""The help of each command, and how fast it is."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

from arcp_trio.cli import main
from arcp_trio.cli.commands import COMMANDS, ConsoleCommand
from arcp_trio.cli.errors import PROGRAM
from arcp_trio.cli.parser import build_parser
from tests.cli.processes import ROOT, Starter

each = pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)


@each
@pytest.mark.parametrize("columns", [80, 120])
def test_it_explains_itself(
    command: ConsoleCommand,
    columns: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The help of a command has all its options and its example, and fits into the terminal."""
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit) as caught:
        main([command.name, "--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert f"example:\n  {command.example}\n" in text
    assert all(option.flag in text for option in command.options)
    assert all(len(line) < columns for line in text.splitlines())


@each
def test_the_example_is_one(command: ConsoleCommand) -> None:
    """The example in the help is accepted by the parser."""
    program, *arguments = shlex.split(command.example)
    assert program == PROGRAM
    assert build_parser().parse_args(arguments).command == command.name


@pytest.mark.real_tcp
def test_the_example_of_serve_runs(start: Starter) -> None:
    """The example of `serve` runs, apart from the port, which may be in use."""
    (example,) = (command.example for command in COMMANDS if command.name == "serve")
    assert start(*shlex.split(example)[1:], "--port", "0").url().startswith("ws://")


def test_all_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """The help of the program has a line for each command."""
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert all(f"\n    {command.name} " in text for command in COMMANDS)


def test_it_loads_nothing() -> None:
    """No help imports Trio, the runtime or the client, and each takes at most 200 ms."""
    names = [command.name for command in COMMANDS]
    script = f"""
import sys, time
from arcp_trio.cli import main
for name in {names}:
    begun = time.process_time()
    try: main([name, "--help"])
    except SystemExit: pass
    if time.process_time() - begun > 0.2: print(name, "is slow", file=sys.stderr)
heavy = {{"trio", "cattrs", "msgspec", "ssl", "arcp_trio.client", "arcp_trio.cli.client.runner"}}
print(heavy & set(sys.modules), file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "set()\n")


@each
def test_a_wrong_option_is_one_line(
    command: ConsoleCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    """A usage error names the option and the help, and has exit code 2."""
    with pytest.raises(SystemExit) as caught:
        main([command.name, *("x" for _ in command.arguments), "--qqq"])
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert (out, err) == (
        "",
        f"arcp-trio: unknown option --qqq; see arcp-trio {command.name} --help\n",
    )
