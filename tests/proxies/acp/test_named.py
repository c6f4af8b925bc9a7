"""What a request of an ACP agent names, and what the lease is asked about."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arcp_trio.proxies.acp.named import (
    MOST_NAMED,
    Need,
    needed_for_call,
    needed_for_command,
    needs_shell,
    tool_of,
    words_of,
)
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.errors import PermissionDenied

CWD = "/srv/shop"
KEYS = [
    *("path", "file_path", "filePath", "filepath", "abs_path", "absolute_path", "notebook_path"),
    *("old_path", "new_path", "source", "destination", "target_file", "from", "to", "from_path"),
    *("to_path", "directory", "dir", "file", "filename", "target", "paths"),
]
PATHS = st.text("ab/.", min_size=1, max_size=6)


def put(call: Frame, place: str, path: str) -> None:
    """Have a call name a path in one of the places where calls name paths."""
    if place == "locations":
        call.setdefault("locations", []).append({"path": path, "line": 1})
    elif place == "diff":
        diff = {"type": "diff", "path": path, "oldText": "/not/this", "newText": "/nor/this"}
        call.setdefault("content", []).append(diff)
    elif place.startswith("deep "):
        edits = call.setdefault("rawInput", {}).setdefault("edits", [])
        edits.append({"more": [{place.removeprefix("deep "): path}]})
    else:
        paths = call.setdefault("rawInput", {}).setdefault(place, [])
        paths.append(path)


PLACES = st.sampled_from(["locations", "diff", *KEYS, *(f"deep {key}" for key in KEYS)])


@given(
    named=st.lists(st.tuples(PLACES, PATHS), min_size=1, max_size=6),
    kind=st.sampled_from(["read", "search", "edit", "delete", "move"]),
    title=PATHS,
)
def test_every_path_counts(named: list[tuple[str, str]], kind: str, title: str) -> None:
    """All paths of a call have to be allowed, wherever they stand, and its title names none."""
    call: Frame = {"toolCallId": "pending", "kind": kind, "title": title, "name": "Tool"}
    for place, path in named:
        put(call, place, path)
    need = needed_for_call(call, CWD)
    assert need.capability == ("fs.read" if kind in ("read", "search") else "fs.write")
    expected = {path if path.startswith("/") else f"{CWD}/{path}" for _, path in named}
    assert len(need.targets) == len(expected)
    assert set(need.targets) == expected


@pytest.mark.parametrize(
    ("call", "need"),
    [
        ({"kind": "edit", "title": "/etc/passwd"}, Need("tool.call", ("acp/edit",))),
        ({"kind": "edit", "name": "Write"}, Need("tool.call", ("Write",))),
        ({"kind": "execute", "rawInput": {"path": "/a"}}, Need("tool.call", ("acp/execute",))),
        ({"kind": "fetch", "rawInput": {"url": "http://a/"}}, Need("net.fetch", ("http://a/",))),
        (
            {"kind": "fetch", "rawInput": {"url": "http://a/", "urls": ["http://b/"]}},
            Need("net.fetch", ("http://a/", "http://b/")),
        ),
        (
            {"kind": "move", "rawInput": {"from": "a", "to": "/etc/cron.d/a"}},
            Need("fs.write", (f"{CWD}/a", "/etc/cron.d/a")),
        ),
        (
            {"kind": "edit", "rawInput": {"path": "/a", "more": [{"odd": "/etc/b", "n": 1}]}},
            Need("fs.write", ("/a", "/etc/b")),
        ),
        (
            {"kind": "edit", "rawInput": {"path": "/a", "new_string": "/b", "odd": "/c\n"}},
            Need("fs.write", ("/a", "/c\n")),
        ),
        (
            {"kind": "edit", "rawInput": {"path": "/a", "odd": "/* c\n */"}},
            Need("fs.write", ("/a",)),
        ),
        ({"kind": "read", "rawInput": {"odd": "/etc/b"}}, Need("tool.call", ("acp/read",))),
        ({"kind": "fetch", "rawInput": {"q": "x"}}, Need("tool.call", ("acp/fetch",))),
        ({"kind": "../x"}, Need("tool.call", ("acp/other",))),
        ({"kind": 3, "name": 4, "rawInput": "path"}, Need("tool.call", ("acp/other",))),
        ({}, Need("tool.call", ("acp/other",))),
        ({"kind": "read", "rawInput": {"path": "~/key"}}, Need("fs.read", ("~/key",))),
        (
            {"kind": "read", "rawInput": {"path": "file:///etc/passwd"}},
            Need("fs.read", ("file:///etc/passwd",)),
        ),
        (
            {
                "kind": "read",
                "locations": [3, {"path": 4}],
                "content": "x",
                "rawInput": {"path": 5},
            },
            Need("tool.call", ("acp/read",)),
        ),
    ],
)
def test_what_decides(call: Frame, need: Need) -> None:
    """Without paths or URLs the tool's name decides; what has the wrong type counts for nothing."""
    assert needed_for_call(call, CWD) == need
    if need.capability == "tool.call":
        assert (tool_of(call),) == need.targets


def test_too_many_paths() -> None:
    """A request that names paths without end is refused."""
    call: Frame = {"kind": "read", "rawInput": {"path": [f"/{n}" for n in range(MOST_NAMED + 1)]}}
    with pytest.raises(PermissionDenied, match="names more than"):
        needed_for_call(call, CWD)
    call["rawInput"]["path"].pop()
    assert len(needed_for_call(call, CWD).targets) == MOST_NAMED


@pytest.mark.parametrize(
    ("command", "target"),
    [
        ("git", "terminal/git"),
        ("/usr/bin/git", "terminal/git"),
        ("g++-12", "terminal/g++-12"),
        ("/bin/bash", "terminal/sh"),
        ("env", "terminal/sh"),
        ("sudo", "terminal/sh"),
        ("xargs", "terminal/sh"),
        ("/usr/bin/find", "terminal/sh"),
        ("prlimit", "terminal/sh"),
        ("ssh", "terminal/sh"),
        ("echo hi", "terminal/sh"),
        ("echo;id", "terminal/sh"),
        ("echo$(id)", "terminal/sh"),
        ("/bin/", "terminal/sh"),
        ("", "terminal/sh"),
    ],
)
def test_commands(command: str, target: str) -> None:
    """A program counts under its own name, unless it runs others or a shell has to read it."""
    assert needed_for_command([command, "-c", "x"], {}) == Need("tool.call", (target,))


@pytest.mark.parametrize(
    ("variable", "value", "target"),
    [
        ("LANG", "C.UTF-8", "terminal/git"),
        ("LC_ALL", "C", "terminal/git"),
        ("NO_COLOR", "1", "terminal/git"),
        ("GIT_PAGER", "cat", "terminal/git"),
        ("GIT_PAGER", "sh -c id", "terminal/sh"),
        ("GIT_CONFIG_COUNT", "1", "terminal/sh"),
        ("PATH", "/tmp/own", "terminal/sh"),
        ("BASH_ENV", "/tmp/own", "terminal/sh"),
        ("lang", "C", "terminal/sh"),
    ],
)
def test_commands_with_variables(variable: str, value: str, target: str) -> None:
    """A variable that may have a program run others makes its command count as a shell."""
    variables = {"TERM": "dumb", variable: value}
    assert needed_for_command(["git", "status"], variables) == Need("tool.call", (target,))


@given(command=st.text(min_size=1, max_size=8), args=st.lists(st.text(max_size=5), max_size=3))
def test_what_runs_is_what_was_decided(command: str, args: list[str]) -> None:
    """A line runs in a shell with its arguments quoted, and everything else as it is."""
    words = words_of(command, args)
    if needs_shell(command):
        assert words[:2] == ("/bin/sh", "-c")
        assert words[2].startswith(command)
        if args:
            assert shlex.split(words[2].removeprefix(command)) == args
        assert needed_for_command([command], {}).targets == ("terminal/sh",)
    else:
        assert words == (command, *args)
