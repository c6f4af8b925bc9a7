"""Runs a document as its reader would: its files are saved, its commands are typed.

- A Python block is a file: its first line names it, `# agents.py`, or `# agents.py, continued` for
  a later part of it. All files are there before the first command.
  A file that no command names is run at the end.
- In a console block, a line that begins with `$ ` is a command; the lines after it are what the
  terminal then shows. There, `…` stands for any text, and alone in a line for any lines; two or
  more spaces stand for any number.
- In what a command shows, a line that begins with `answer: ` is a question's, and one with
  `yes, job or no: ` an approval's; the reader types the rest of it.
- Commands of `docker` are not run, as no test has a daemon; tests/test_package.py reads the
  Dockerfile. Nor is `pip install`: what it installs is there.
- A shell block is a console block that needs a program of other people: tests/agents plays it where
  that is installed. The program `opencode` of console blocks is one of this folder.
- A command that serves runs on, up to the next one that serves or the document's end.
- `kill -9` kills the server, and nothing else that the command may find.
- A JSON block is frames of a client.
- A js block is a module; tests/console runs it.
- Port 7777 is another one, which is free, and `make serve` is the command that it runs.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from attrs import define, field, frozen

from tests.cli.processes import ROOT
from tests.cli.terminals import shown

WAIT_SECONDS: Final = 60.0
COLUMNS: Final = 120
PORT: Final = "7777"

_BLOCK: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE: Final = re.compile(r"# ([\w.-]+)(, continued)?\n")
_SERVES: Final = re.compile(r"\barcp_trio\.serve\(|\bserve\b")

_ANSWER: Final = "(?:answer|yes, job or no):"
"""The prompts at which a reader types; the screen drops the space after them."""
_NOT_RUN: Final = re.compile("docker |.*pip install")
_PROGRAMS: Final = Path(__file__).with_name("programs")
_TYPED: Final = re.compile(rf"^{_ANSWER} (.+)$", re.MULTILINE)

_LISTENS: Final = re.compile(r".*(?:ws|wss|http)://", re.DOTALL)


@frozen
class Step:
    """A command, and what the terminal is said to show after it."""

    command: str
    output: str


@define
class Story:
    """What a document has its reader do."""

    files: dict[str, str] = field(factory=dict)
    steps: list[Step] = field(factory=list)
    frames: list[str] = field(factory=list)
    configurations: list[str] = field(factory=list)
    modules: list[str] = field(factory=list)

    def serves(self, command: str) -> bool:
        """Whether a command runs on, as a server."""
        program = next((text for name, text in self.files.items() if name in command), "")
        return _SERVES.search(command + program) is not None


def read(document: str, kind: str = "console") -> Story:
    """Find the files and the commands of a document; fail at a block that is neither.

    `kind` is that of the blocks whose commands are run.
    """
    story = Story()
    for language, text in _BLOCK.findall(document):
        if language == "python":
            named = _FILE.match(text)
            assert named is not None, f"a Python block without the name of its file: {text}"
            assert (named[1] in story.files) == bool(named[2]), named[0]
            story.files[named[1]] = story.files.get(named[1], "") + text
        elif language == kind:
            for step in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                command, _, output = step.replace("\\\n", "").partition("\n")
                if not _NOT_RUN.match(command):
                    story.steps.append(Step(command, output))
        elif language == "toml":
            story.configurations.append(text)
        elif language == "js":
            story.modules.append(text)
        else:
            assert language in ("", "json", "shell"), f"a block that nothing runs: {language}"
            story.frames += text.splitlines() if language == "json" else []
    commands = "\n".join(step.command for step in story.steps)
    for name in story.files:
        if name.removesuffix(".py") not in commands:
            story.steps.append(Step(f"python {name}", ""))
    return story


class Screen:
    """A command on a terminal of its own."""

    def __init__(self, command: str, folder: Path, environment: dict[str, str]) -> None:
        self._keyboard, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
        self._process = subprocess.Popen(
            ["bash", "-c", command],
            cwd=folder,
            env=environment,
            stdin=inside,
            stdout=inside,
            stderr=inside,
            start_new_session=True,
        )
        os.close(inside)
        self._raw = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._keyboard, 65_536)
            except OSError:  # EIO: the other side has no more descriptors open
                return
            self._raw += data

    def text(self) -> str:
        """Return what the screen shows now."""
        return "\n".join(shown(self._raw.decode(errors="ignore"), COLUMNS))

    def wait(self) -> str:
        """Wait for the command's end, and return what the screen shows then."""
        self._process.wait(WAIT_SECONDS)
        self._reader.join(WAIT_SECONDS)
        return self.text()

    def wait_for(self, output: re.Pattern[str]) -> None:
        """Wait until the screen shows this much of a command that runs on."""
        end = time.monotonic() + WAIT_SECONDS
        while output.match(self.text()) is None:
            assert self._process.poll() is None, self.wait()
            assert time.monotonic() < end, f"{output.pattern} is not how this begins: {self.text()}"
            time.sleep(0.05)

    def answer(self, texts: Sequence[str]) -> None:
        """Type these texts, each in answer to a question."""
        for count, text in enumerate(texts, 1):
            asked = re.compile(rf"(?:.*?^{_ANSWER}){{{count}}}", re.DOTALL | re.MULTILINE)
            self.wait_for(asked)
            os.write(self._keyboard, f"{text}\n".encode())

    def interrupt(self) -> None:
        """Press Ctrl-C, again if the command asks, and wait for its quiet end."""
        before = len(self.text())
        asked = False
        os.killpg(self._process.pid, signal.SIGINT)
        while self._process.poll() is None:
            if not asked and "press Ctrl-C again" in self.text()[before:]:
                asked = True
                os.killpg(self._process.pid, signal.SIGINT)
            time.sleep(0.05)
        said = self.wait()[before:]
        assert (self._process.returncode, "Traceback" in said) == (0, False), said

    def close(self) -> None:
        """End what is left of the command."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self.wait()
        os.close(self._keyboard)


def play(document: str, folder: Path, kind: str = "console") -> Iterator[tuple[Step, str]]:
    """Run a document in a folder; yield each command that ends, and what the terminal showed."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    story = read(document, kind)
    for name, text in story.files.items():
        (folder / name).write_text(text.replace(PORT, port), encoding="utf-8")
    (folder / ".venv").symlink_to(sys.prefix)
    environment = _environment(port)
    server: Screen | None = None
    try:
        for step in story.steps:
            command = step.command.replace("make serve", "arcp-trio serve").replace(PORT, port)
            if command.startswith("kill -9 "):
                assert server is not None
                server.close()
                server = None
                continue
            if not story.serves(step.command):
                with _screen(command, folder, environment) as screen:
                    screen.answer(_TYPED.findall(step.output))
                    yield step, screen.wait().replace(port, PORT)
                continue
            if server is not None:
                server.interrupt()
                server.close()
            if command.startswith("arcp-trio serve"):
                command += f" --port {port}"
            server = Screen(command, folder, environment)
            server.wait_for(_LISTENS)
            server.wait_for(pattern(step.output.replace(PORT, port)))
        if server is not None:
            server.interrupt()
    finally:
        if server is not None:
            server.close()


@contextmanager
def _screen(command: str, folder: Path, environment: dict[str, str]) -> Iterator[Screen]:
    screen = Screen(command, folder, environment)
    try:
        yield screen
    finally:
        screen.close()


def pattern(output: str) -> re.Pattern[str]:
    """Return what matches the output that a document shows."""
    lines = [".*(?:\n.*)*" if line == "…" else re.escape(line) for line in output.splitlines()]
    text = "\n".join(lines).replace("…", ".*")
    return re.compile(re.sub(r"(?:\\ ){2,}", " +", text) + r"\s*")


def _environment(port: str) -> dict[str, str]:
    """Return the environment of a reader who has followed the document so far."""
    own = ("ARCP_", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "PYTEST")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    path = os.pathsep.join([str(Path(sys.executable).parent), str(_PROGRAMS), os.environ["PATH"]])
    address = f"ws://127.0.0.1:{port}/arcp"
    added = {"PATH": path, "ARCP_URL": address, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT)}
    return kept | added
