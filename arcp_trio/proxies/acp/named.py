"""What a request of an ACP agent names, and which capability of the lease decides it.

Only paths, URLs and names count. A call's title proves nothing: a model wrote it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import chain, islice
from typing import Final

import attrs

from arcp_trio.wire.errors import PermissionDenied
from arcp_trio.wire.json import JsonObject, JsonValue, dumps, is_list, is_object, object_in
from arcp_trio.wire.questions import own_tool

WRITE: Final = "fs.write"
MOST_NAMED: Final = 256
"""Paths or URLs of one request, at most; one that names more is refused."""

KINDS: Final = frozenset(
    {"read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode"}
)
"""Kinds of tool calls; any other is `other`."""

_OF_PATHS: Final = {
    "read": "fs.read",
    "search": "fs.read",
    "edit": WRITE,
    "delete": WRITE,
    "move": WRITE,
}
_PATH_KEYS: Final = frozenset(
    {
        "path",
        "file_path",
        "filePath",
        "filepath",
        "abs_path",
        "absolute_path",
        "notebook_path",
        "old_path",
        "new_path",
        "source",
        "destination",
        "target_file",
    }
    | {"from", "to", "from_path", "to_path", "directory", "dir", "file", "filename", "target"}
    | {"paths"}
)
_URL_KEYS: Final = frozenset({"url", "uri", "urls"})
_TEXT_KEYS: Final = frozenset(
    {"content", "contents", "text", "code", "diff", "patch", "pattern", "replacement"}
    | {"old_string", "new_string", "oldString", "newString", "old_str", "new_str"}
    | {"oldText", "newText", "old_text", "new_text", "file_text", "insert_text", "description"}
)
"""What is under these keys is text of a file, which may begin with a slash and not be a path."""

_RUNS_OTHERS: Final = frozenset(
    {"sh", "ash", "bash", "csh", "dash", "fish", "ksh", "mksh", "rbash", "tcsh", "zsh", "busybox"}
    | {"awk", "bwrap", "chroot", "chrt", "doas", "env", "expect", "find", "flock", "gawk", "ionice"}
    | {"mawk", "nice", "nohup", "nsenter", "parallel", "prlimit", "runuser", "screen", "script"}
    | {"setpriv", "setsid", "ssh", "start-stop-daemon", "stdbuf", "strace", "su", "sudo"}
    | {"systemd-run", "taskset", "time", "timeout", "tmux", "unshare", "watch", "xargs"}
)
"""Programs that run whatever their arguments say."""
SHELL: Final = "terminal/sh"
"""The name in the lease of every command that may run others."""
_HARMLESS: Final = frozenset(
    {"CI", "CLICOLOR", "COLUMNS", "FORCE_COLOR", "LANG", "LANGUAGE", "LINES", "NO_COLOR", "TERM"}
    | {"TZ"}
)
"""Variables with which a program does what it does without them, as with those of `LC_`."""
_PAGERS: Final = frozenset({"PAGER", "GIT_PAGER", "MANPAGER"})
"""Variables that name a program; `cat` is a harmless one."""
_ORDINARY: Final = frozenset("%+,-./:=@_")
"""Characters of a program's name that are not letters or digits and mean nothing to a shell."""


@attrs.frozen
class Need:
    """What has to be allowed for a request."""

    capability: str
    targets: Sequence[str]


def tool_of(call: JsonObject) -> str:
    """Return the name under which the lease knows the tool of a call, and clients are told of it.

    A name under which the runtime tells what it does itself gets a prefix.
    """
    name, kind = call.get("name"), call.get("kind")
    if isinstance(name, str) and name:
        return f"agent/{name}" if name.startswith("terminal/") else own_tool(name)
    return f"acp/{kind}" if isinstance(kind, str) and kind in KINDS else "acp/other"


def digest_of(call_id: str) -> bytes:
    """Return what is kept of an agent's id of a tool call, or a path, which may be long."""
    return blake2b(call_id.encode(errors="surrogatepass"), digest_size=16).digest()


def title_of(call: JsonObject) -> str | None:
    """Return the title of a call; anything but a text, as JSON."""
    title = call.get("title")
    return title if title is None or isinstance(title, str) else dumps(title).decode()


def needed_for_call(call: JsonObject, cwd: str) -> Need:
    """Return what has to be allowed for a tool call that the agent asks permission for.

    Raises:
        PermissionDenied: it names too much.
    """
    kind = call.get("kind")
    if isinstance(kind, str) and kind in _OF_PATHS:
        named = _paths(call)
        if _OF_PATHS[kind] == WRITE:
            named = chain(named, _absolute_paths(call.get("rawInput")))
        paths = _distinct(absolute(path, cwd) for path in named)
        if paths:
            return Need(_OF_PATHS[kind], paths)
    if kind == "fetch":
        urls = _distinct(_texts(call.get("rawInput"), _URL_KEYS))
        if urls:
            return Need("net.fetch", urls)
    return Need("tool.call", (tool_of(call),))


def needed_for_command(words: Sequence[str], variables: Mapping[str, str]) -> Need:
    """Return what has to be allowed for a program with its arguments in a terminal.

    Variables can have a program run others: `git` runs what those of `GIT_CONFIG_` say.
    """
    name = words[0].rpartition("/")[2]
    unclear = needs_shell(words[0]) or not name or runs_others(words[0])
    unclear |= not all(_is_harmless(*each) for each in variables.items())
    return Need("tool.call", (SHELL if unclear else f"terminal/{name}",))


def _is_harmless(variable: str, value: str) -> bool:
    if variable in _PAGERS:
        return value in ("", "cat")
    return variable in _HARMLESS or variable.startswith("LC_")


def needs_shell(command: str) -> bool:
    """Return whether a command is a line that a shell would have to take apart."""
    return not all(each.isalnum() or each in _ORDINARY for each in command)


def runs_others(program: str) -> bool:
    """Return whether a program is one that runs others: its own name says nothing."""
    return program.rpartition("/")[2] in _RUNS_OTHERS


def words_of(command: str, args: Sequence[str]) -> Sequence[str]:
    """Return the program and the arguments that are to be run for a command with arguments."""
    if not needs_shell(command):
        return (command, *args)
    return ("/bin/sh", "-c", line_of(command, args))


def line_of(command: str, args: Sequence[str]) -> str:
    """Return a command with arguments as one line for a shell."""
    return f"{command} {shlex.join(args)}" if args else command


def command_in(call: JsonObject) -> str | None:
    """Return the command line that a tool call names, if it names one."""
    command = object_in(call.get("rawInput")).get("command")
    if is_list(command):
        return shlex.join(each for each in command if isinstance(each, str)) or None
    return command if isinstance(command, str) else None


def _distinct(named: Iterable[str]) -> Sequence[str]:
    first = tuple(islice(dict.fromkeys(named), MOST_NAMED + 1))
    if len(first) > MOST_NAMED:
        raise PermissionDenied(f"the request names more than {MOST_NAMED} paths or URLs")
    return first


def absolute(path: str, cwd: str) -> str:
    """Return an absolute path, or, of what is not a path for everybody, what no lease allows."""
    if path.startswith(("/", "~")) or "://" in path:
        return path
    return f"{cwd}/{path}"


def _paths(call: JsonObject) -> Iterator[str]:
    yield from paths_beside(call)
    yield from _texts(call.get("rawInput"), _PATH_KEYS)


def paths_beside(call: JsonObject) -> Iterator[str]:
    """Yield the paths that a call names beside its input: its locations', and those of diffs."""
    for place in _objects(call.get("locations")):
        yield from _texts_under(place.get("path"))
    for content in _objects(call.get("content")):
        if content.get("type") == "diff":
            yield from _texts_under(content.get("path"))


def texts_beside(call: JsonObject) -> Iterator[str]:
    """Yield the texts that a call shows beside its input, such as a plan that is to be approved."""
    for content in _objects(call.get("content")):
        if content.get("type") == "content":
            yield from _texts_under(object_in(content.get("content")).get("text"))


def _absolute_paths(value: JsonValue) -> Iterator[str]:
    """Yield the texts in a value that look like absolute paths, whatever their key says."""
    if isinstance(value, str):
        if value.startswith("/") and len(value.splitlines()) == 1:
            yield value
    elif is_object(value):
        for key, item in value.items():
            if key not in _TEXT_KEYS:
                yield from _absolute_paths(item)
    elif is_list(value):
        for item in value:
            yield from _absolute_paths(item)


def _objects(value: JsonValue) -> Iterator[JsonObject]:
    if is_list(value):
        yield from (object_in(each) for each in value)


def _texts(value: JsonValue, keys: frozenset[str]) -> Iterator[str]:
    """Yield the texts under some keys, however deep in a value they are."""
    if is_object(value):
        for key, item in value.items():
            if key in keys:
                yield from _texts_under(item)
            yield from _texts(item, keys)
    elif is_list(value):
        for item in value:
            yield from _texts(item, keys)


def _texts_under(value: JsonValue) -> Iterator[str]:
    for each in value if is_list(value) else [value]:
        if isinstance(each, str):
            yield each
