"""The files of a command: found through links and first lines, with where they are installed."""

from __future__ import annotations

import os
import pwd
import sys
from pathlib import Path

import pytest

from arcp_trio.sandbox.program import program_mounts


def paths(*command: str, search: str | None = None) -> set[str]:
    """Return the paths that are mounted for a command."""
    return {mount.path for mount in program_mounts(command, search)}


def script(path: Path, first_line: str) -> Path:
    """Write a program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{first_line}\n")
    path.chmod(0o755)
    return path


def test_a_virtual_environment(tmp_path: Path) -> None:
    """A script of a virtual environment comes with its folder and that of its Python."""
    python = script(tmp_path / "python/bin/python3", "a program")
    (tmp_path / "python/lib").mkdir()
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/pyvenv.cfg").touch()
    (tmp_path / "venv/bin/python").symlink_to(python)
    script(tmp_path / "venv/bin/agent", f"#!{tmp_path}/venv/bin/python")
    found = paths("agent", "--quiet", search=f"{tmp_path}/venv/bin")
    assert found == {f"{tmp_path}/venv", f"{tmp_path}/python"}


def test_a_tree_of_npm(tmp_path: Path) -> None:
    """A link into node_modules comes with all of it, and with what runs the script."""
    script(tmp_path / "app/node_modules/agent/dist/main.js", "#!/usr/bin/env -S node --quiet")
    (tmp_path / "app/node_modules/.bin").mkdir()
    (tmp_path / "app/node_modules/.bin/agent").symlink_to("../agent/dist/main.js")
    script(tmp_path / "node/bin/node", "a program")
    (tmp_path / "node/lib").mkdir()
    search = f"{tmp_path}/app/node_modules/.bin:{tmp_path}/node/bin"
    found = paths("agent", search=search)
    assert {f"{tmp_path}/app/node_modules", f"{tmp_path}/node"} <= found
    assert not any(path in found for path in (str(tmp_path), f"{tmp_path}/app"))


def test_a_file_alone(tmp_path: Path) -> None:
    """A file that is not installed anywhere comes alone, and nothing beside it."""
    agent = script(tmp_path / "agent.py", "print()")
    found = program_mounts([sys.executable, str(agent), f"{tmp_path}/missing", "relative"])
    assert [each for each in found if each.path.startswith(str(tmp_path))] == [
        each for each in found if each.path == str(agent) and not each.is_tree
    ]
    assert not any(each.writable for each in found)


def test_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that is named from this process's folder is where it will be started from."""
    script(tmp_path / "far/venv/bin/agent", "a program")
    (tmp_path / "far/venv/pyvenv.cfg").touch()
    (tmp_path / "near").mkdir()
    (tmp_path / "near/venv").symlink_to(tmp_path / "far/venv")
    monkeypatch.chdir(tmp_path / "near")
    assert paths("venv/bin/agent") == {f"{tmp_path}/near/venv", f"{tmp_path}/far/venv"}


def test_never_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program in ~/bin comes alone, and neither the home nor the root is mounted for a word."""
    monkeypatch.setenv("HOME", str(tmp_path))
    agent = script(tmp_path / "bin/agent", "#!/bin/sh")
    (tmp_path / "agent").symlink_to(agent)
    found = paths(str(tmp_path / "agent"), "/", str(tmp_path))
    assert str(agent) in found
    assert not {"/", str(tmp_path), os.path.dirname(tmp_path)} & found  # noqa: PTH120


def test_never_the_home_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of another user's ~/bin or ~/.local/bin comes alone, even beside a ~/lib."""
    alice = ("alice", "x", 1000, 1000, "", str(tmp_path), "/bin/sh")
    monkeypatch.setattr(pwd, "getpwall", lambda: [pwd.struct_passwd(alice)])
    for prefix in (tmp_path, tmp_path / ".local"):
        agent = script(prefix / "bin/agent", "a program")
        (prefix / "lib").mkdir()
        assert paths(str(agent)) == {str(agent)}


def test_a_folder_that_is_no_installation(tmp_path: Path) -> None:
    """A program in some folder's `bin` comes alone; with its libraries beside that, all comes."""
    agent = script(tmp_path / "stuff/bin/agent", "a program")
    (tmp_path / "stuff/secret").touch()
    assert paths(str(agent)) == {str(agent)}
    (tmp_path / "stuff/lib").mkdir()
    assert paths(str(agent)) == {f"{tmp_path}/stuff"}


def test_hidden_folders_of_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ~/.local and the like, which others keep secrets in, only the program is mounted.

    What it is a link to comes with where that is installed, and so does a virtual environment.
    """
    monkeypatch.setenv("HOME", str(tmp_path))
    agent = script(tmp_path / ".local/share/uv/tools/agent/bin/agent", "#!/bin/sh")
    (agent.parent.parent / "pyvenv.cfg").touch()
    (tmp_path / ".local/lib").mkdir()
    (tmp_path / ".local/bin").mkdir()
    (tmp_path / ".local/bin/agent").symlink_to(agent)
    script(tmp_path / ".cargo/bin/other", "a program")
    script(tmp_path / ".venv/bin/third", "a program")
    (tmp_path / ".venv/pyvenv.cfg").touch()
    search = ":".join(f"{tmp_path}/{each}/bin" for each in (".local", ".cargo", ".venv"))
    found = [paths(each, search=search) - {"/usr", "/"} for each in ("agent", "other", "third")]
    assert {f"{tmp_path}/.local/bin/agent", str(agent.parent.parent)} <= found[0]
    assert f"{tmp_path}/.local" not in found[0]
    assert found[1:] == [{f"{tmp_path}/.cargo/bin/other"}, {f"{tmp_path}/.venv"}]


def test_what_cannot_be_read(tmp_path: Path) -> None:
    """Links in a circle, pipes and missing programs do not hold it up."""
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    os.mkfifo(tmp_path / "pipe")
    assert paths("no-such-program") == set()
    assert f"{tmp_path}/pipe" in paths("sh", f"{tmp_path}/a", f"{tmp_path}/pipe")
