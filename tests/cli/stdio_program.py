"""Processes `serve --stdio`, spoken to by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.cli.processes import LIFETIME_SECONDS, ROOT

SERVE = [sys.executable, "-m", "arcp_trio", "serve", "--stdio"]


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process, without the ARCP variables of this one."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ARCP_")}
    return {**kept, "PYTHONPATH": str(ROOT), "ARCP_TOKENS": "alice=tok", **more}


def frame(kind: str, payload: object, end: bytes = b"\n") -> bytes:
    """Return a frame as a line."""
    fields = {"arcp": "1.1", "id": f"id of {kind}", "type": kind, "payload": payload}
    return json.dumps(fields, ensure_ascii=False).encode() + end


class Program:
    """A process that speaks ARCP on its standard input and output."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def write(self, data: bytes) -> None:
        """Write bytes to its standard input as they are."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, kind: str, payload: object, end: bytes = b"\n") -> None:
        """Send a frame."""
        self.write(frame(kind, payload, end))

    def receive(self) -> dict[str, Any]:
        """Receive a frame."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1].decode()
        assert line.endswith(b"}\n"), line
        received: dict[str, Any] = json.loads(line)
        assert received["arcp"] == "1.1"
        return received

    def until(self, *kinds: str) -> list[dict[str, Any]]:
        """Receive frames up to one of these types."""
        frames = [self.receive()]
        while frames[-1]["type"] not in kinds:
            frames.append(self.receive())
        return frames

    def hello(self) -> dict[str, Any]:
        """Open the session, and return the welcome."""
        self.send("session.hello", HELLO)
        welcome = self.receive()
        assert welcome["type"] == "session.welcome"
        return welcome

    def submit(self, agent: str, input_: object = None) -> list[dict[str, Any]]:
        """Run a job, and return its frames."""
        self.send("job.submit", {"agent": agent, "input": input_})
        return self.until("job.result", "job.error")

    def end(self, *, close: bool = True) -> tuple[int, list[dict[str, Any]], str]:
        """Close its input; return the exit code, the remaining frames and standard error."""
        if close and self.process.stdin is not None:
            self.process.stdin.close()
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        frames = list(map(json.loads, self.process.stdout))
        return self.process.wait(), frames, self.process.stderr.read().decode()


HELLO = {
    "client": {"name": "by-hand", "version": "1"},
    "auth": {"scheme": "bearer", "token": "tok"},
    "capabilities": {"encodings": ["json"], "features": ["progress", "result_chunk"]},
}


@contextmanager
def program(
    folder: Path,
    *arguments: str,
    stdin: int = subprocess.PIPE,
    more: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Program]:
    """Run a process for the block, and kill it after that."""
    with subprocess.Popen(
        [*SERVE, *arguments],
        cwd=folder,
        env=environment(more),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        guard = threading.Timer(LIFETIME_SECONDS, process.kill)
        guard.start()
        try:
            yield Program(process)
        finally:
            guard.cancel()
            process.kill()
