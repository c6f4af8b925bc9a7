"""`submit --prompt`: the input of a coding agent, in words."""

from __future__ import annotations

import json

import pytest

from tests.cli.clients import Commands

pytestmark = pytest.mark.real_tcp


def test_a_prompt_is_an_input(commands: Commands) -> None:
    """The prompt goes as it is, the folder as an absolute path, and the session as an id."""
    done = commands.run("submit", "echo", "--prompt", '{"x": "é"} @f')
    assert json.loads(done.out) == {"echo": {"prompt": '{"x": "é"} @f'}}
    options = ("--cwd", "src/..", "--session", "job_1")
    done = commands.run("submit", "echo", "--prompt", "go on", *options)
    cwd = str(commands.folder)
    assert json.loads(done.out)["echo"] == {"prompt": "go on", "cwd": cwd, "session": "job_1"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--prompt", "x", "--input", "1"), "--prompt and --input are two ways"),
        (("--cwd", "."), "--cwd is for a prompt"),
        (("--input", '"x"', "--session", "job_1"), "--session is for a prompt"),
    ],
)
def test_what_contradicts_itself(commands: Commands, options: tuple[str, ...], words: str) -> None:
    """Options that do not go together are refused in one line."""
    assert words in commands.refused(2, "submit", "echo", *options)
