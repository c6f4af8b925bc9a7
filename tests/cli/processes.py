"""Real `serve` processes, each bounded in time, and a client that is not this project's."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

ROOT = Path(__file__).parents[2]
LIFETIME_SECONDS = 100.0
"""The time after which a process is killed, so that reading its output ends."""
FRAME_SECONDS = 60.0
END_SECONDS = 10.0
"""Twice what `serve` promises from the end of the drain to that of its process.

Python's own end, and noticing it, take their time on a busy machine.
"""


class Serve:
    """A process whose output is read line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[str] = []

    def url(self) -> str:
        """Wait until the process listens, and return its address."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        known = ("listening on ws:", "listening on wss:", "listening on unix:")
        assert line.startswith(known), (line, self.process.communicate()[1])
        return line.removeprefix("listening on ").removesuffix("\n")

    def line(self, part: str) -> str:
        """Wait for a line of standard error with this part, and return what follows it."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            if part in line:
                return line.partition(part)[2].strip()
        raise AssertionError(f"no line with {part!r} in {self.said}")

    def send_signal(self, number: int) -> None:
        """Send a signal to the process."""
        self.process.send_signal(number)

    def end(self) -> tuple[int, str, str]:
        """Wait for the end; return the exit code and the rest of standard output and error."""
        out, err = self.process.communicate()
        return self.process.returncode, out, err


def without_stalls(lines: Iterable[str]) -> Iterator[str]:
    """Yield what a process has logged, but not that its loop was held: on a busy machine, it is."""
    return (line for line in lines if " arcp_trio.runtime.watchdog: event loop " not in line)


Starter = Callable[..., Serve]


def assert_refused(served: Serve) -> str:
    """Expect a process not to start, with exit code 2 and one line on stderr; return the line."""
    code, out, err = served.end()
    assert (code, out) == (2, ""), err
    assert err.startswith("arcp-trio: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    return err


@contextmanager
def starter(folder: Path, lifetime: float = LIFETIME_SECONDS) -> Iterator[Starter]:
    """Start processes in a folder, and kill those that are left at the end."""
    started: list[tuple[subprocess.Popen[str], threading.Timer]] = []

    def start(
        *arguments: str,
        environment: dict[str, str] | None = None,
        umask: int = -1,
        program: Sequence[str] = ("arcp_trio",),
    ) -> Serve:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ARCP_")}
        process = subprocess.Popen(
            [sys.executable, "-m", *program, *arguments],
            cwd=folder,
            env={**kept, "PYTHONPATH": str(ROOT), **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            umask=umask,
        )
        guard = threading.Timer(lifetime, process.kill)
        guard.start()
        started.append((process, guard))
        return Serve(process)

    try:
        yield start
    finally:
        for process, guard in started:
            guard.cancel()
            process.kill()
            with process:  # closes its pipes and waits
                pass


FEATURES = [
    "ack",
    "list_jobs",
    "subscribe",
    "lease_expires_at",
    "cost.budget",
    "model.use",
    "progress",
    "result_chunk",
    "agent_versions",
]


class Peer:
    """One session, spoken by hand."""

    def __init__(
        self, socket: ClientConnection, token: str, resume: dict[str, object] | None
    ) -> None:
        self.socket = socket
        self.lines: list[str] = []
        """All frames received, as they came."""
        self._ids = itertools.count()
        hello: dict[str, object] = {
            "client": {"name": "by-hand", "version": "1"},
            "auth": {"scheme": "bearer", "token": token},
            "capabilities": {"encodings": ["json"], "features": FEATURES},
        }
        if resume is not None:
            hello["resume"] = resume
        self._session: dict[str, str] = {}
        self.send("session.hello", hello)
        self.answer = self.receive()
        if self.answer["type"] == "session.welcome":
            self._session = {"session_id": self.answer["session_id"]}

    def send(self, type_: str, payload: object) -> None:
        """Send one frame."""
        frame = {"arcp": "1.1", "id": f"c{next(self._ids)}", "type": type_, "payload": payload}
        self.socket.send(json.dumps(frame | self._session))

    def receive(self) -> dict[str, Any]:
        """Receive one frame."""
        line = self.socket.recv(timeout=FRAME_SECONDS)
        assert isinstance(line, str)
        self.lines.append(line)
        frame: dict[str, Any] = json.loads(line)
        return frame

    def resume_from(self, last_event_seq: int) -> dict[str, object]:
        """Return what the hello of another connection needs to resume this session."""
        return {
            "session_id": self.answer["session_id"],
            "resume_token": self.answer["payload"]["resume_token"],
            "last_event_seq": last_event_seq,
        }

    def submit(self, agent: str, input_: object = None, **fields: object) -> dict[str, Any]:
        """Submit a job and return the answer; `fields` are the other fields of the submit."""
        self.send("job.submit", {"agent": agent, "input": input_} | fields)
        return self.receive()

    def until_terminal(self) -> list[dict[str, Any]]:
        """Receive a job's frames up to the last one."""
        frames = [self.receive()]
        while frames[-1]["type"] not in ("job.result", "job.error"):
            frames.append(self.receive())
        return frames

    def run(self, agent: str, input_: object = None, **fields: object) -> list[dict[str, Any]]:
        """Submit a job and return the frames after its acceptance."""
        accepted = self.submit(agent, input_, **fields)
        assert accepted["type"] == "job.accepted", accepted
        return self.until_terminal()


@contextmanager
def peer(
    url: str, token: str, resume: dict[str, object] | None = None, *, address: str = "127.0.0.1"
) -> Iterator[Peer]:
    """Connect from an address and say hello for the block, and disconnect after it."""
    with connect(url, compression=None, source_address=(address, 0)) as socket:
        yield Peer(socket, token, resume)
