"""`serve --stdio`: real processes, spoken to by hand, by our client and by the vendor's."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import trio

from arcp_trio import Unauthenticated, connect

ROOT = Path(__file__).parents[2]
SERVE = [sys.executable, "-m", "arcp_trio", "serve", "--stdio"]
LIFETIME_SECONDS = 30.0

NOISY = """
import os, subprocess, sys
import arcp_trio

agents = arcp_trio.Agents()
print("printed while it is imported")

@agents.agent("noisy")
async def noisy(job):
    print("printed", flush=True)
    sys.__stdout__.write("written to the other one\\n")
    os.write(1, b"written to 1\\n")
    subprocess.run(["sh", "-c", "echo echoed; cat"], check=True)
    await job.log("é漢😀")
    print("left behind in a buffer", end="")
    return sys.stdin.read()
"""


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """The process's, without what would be about ARCP."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ARCP_")}
    return {**kept, "PYTHONPATH": str(ROOT), "ARCP_TOKENS": "alice=tok", **more}


def frame(kind: str, payload: object, end: bytes = b"\n") -> bytes:
    """A frame as a line."""
    fields = {"arcp": "1.1", "id": f"id of {kind}", "type": kind, "payload": payload}
    return json.dumps(fields, ensure_ascii=False).encode() + end


class Program:
    """A process and what it says, line by line."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def write(self, data: bytes) -> None:
        """Write as it stands."""
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
        """Open the session."""
        self.send("session.hello", HELLO)
        welcome = self.receive()
        assert welcome["type"] == "session.welcome"
        return welcome

    def submit(self, agent: str, input_: object = None) -> list[dict[str, Any]]:
        """Run a job, and return its frames."""
        self.send("job.submit", {"agent": agent, "input": input_})
        return self.until("job.result", "job.error")

    def end(self, *, close: bool = True) -> tuple[int, list[dict[str, Any]], str]:
        """Say no more, and return the exit code, the frames that still came, and the errors."""
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
    """Start it; the block talks to it, and nothing of it is left at the end."""
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


@pytest.mark.spec("4-2")
def test_a_session(tmp_path: Path) -> None:
    """It runs jobs and leaves no word but frames; at the end of standard input it ends well."""
    with program(tmp_path, "--memory") as serve:
        serve.hello()
        accepted, result = serve.submit("echo", "é漢😀")
        assert accepted["type"] == "job.accepted"
        assert result["payload"]["result"] == {"echo": "é漢😀"}
        code, frames, err = serve.end()
    assert (code, frames) == (0, [])
    assert "Traceback" not in err
    assert "listening on" not in err


@pytest.mark.spec("1.0/4.2-1")
@pytest.mark.parametrize("how", [{"LC_ALL": "C"}, {"PYTHONIOENCODING": "latin1", "LANG": "C"}])
def test_only_frames_on_standard_output(tmp_path: Path, how: dict[str, str]) -> None:
    """Neither the log nor an agent gets in between, whatever they try, in UTF-8 in any locale."""
    (tmp_path / "noisy.py").write_text(NOISY, encoding="utf-8")
    arguments = ("--memory", "--agents", "noisy", "--log-level", "debug")
    with program(tmp_path, *arguments, more=how) as serve:
        serve.hello()
        frames = serve.submit("noisy")
        assert frames[1]["payload"]["body"]["message"] == "é漢😀"
        assert frames[-1]["payload"]["result"] == ""
        code, rest, err = serve.end()
    assert (code, rest) == (0, [])
    for words in ("while it is imported", "printed", "the other one", "written to 1", "echoed"):
        assert words in err
    assert "left behind in a buffer" in err
    assert "runtime started" in err


def test_lines_of_other_systems(tmp_path: Path) -> None:
    """Blank lines are nothing, and a line may end in CRLF."""
    with program(tmp_path, "--memory") as serve:
        serve.write(b"\n\r\n  \n")
        serve.send("session.hello", HELLO, end=b"\r\n\r\n")
        assert serve.receive()["type"] == "session.welcome"
        assert serve.submit("echo", 1)[-1]["payload"]["result"] == {"echo": 1}


@pytest.mark.parametrize("line", [b"garbage", b"\xff\xfe", b"[1]", b'{"arcp":"1.1"'])
def test_what_is_no_frame(tmp_path: Path, line: bytes) -> None:
    """It is answered, before the session and in it, and changes nothing."""
    with program(tmp_path, "--memory") as serve:
        for _ in range(2):
            serve.write(line + b"\n")
            refusal = serve.receive()
            assert refusal["type"] == "session.error"
            assert refusal["payload"]["code"] == "INVALID_REQUEST"
        serve.hello()
        serve.write(line + b"\n")
        assert serve.receive()["payload"]["code"] == "INVALID_REQUEST"
        assert serve.submit("echo", 1)[-1]["payload"]["result"] == {"echo": 1}


def test_large_frames(tmp_path: Path) -> None:
    """A line may be as large as any frame, and what is larger ends the session, which is told."""
    with program(tmp_path, "--memory") as serve:
        serve.hello()
        text = "x" * 900_000
        assert serve.submit("echo", text)[-1]["payload"]["result"] == {"echo": text}
        serve.write(b'{"arcp":"' + b"x" * 4 * 1024 * 1024)
        refusal = serve.receive()
        assert refusal["payload"]["code"] == "INTERNAL_ERROR"
        assert refusal["payload"]["details"]["limit"] == "frame_bytes_in"
        code, frames, _ = serve.end(close=False)
    assert (code, frames) == (0, [])


def test_an_endless_line(tmp_path: Path) -> None:
    """Also before the session it is told, and not kept."""
    with program(tmp_path, "--memory") as serve:
        serve.write(b"x" * 4 * 1024 * 1024 + b"x")
        assert serve.receive()["payload"]["details"]["limit"] == "first_frame_bytes"
        assert serve.end(close=False)[0] == 0


def test_a_wrong_token(tmp_path: Path) -> None:
    """Who has started the process says who it is all the same."""
    with program(tmp_path, "--memory", more={"ARCP_TOKENS": "alice=other"}) as serve:
        serve.send("session.hello", HELLO)
        assert serve.receive()["payload"]["code"] == "UNAUTHENTICATED"
        assert serve.end(close=False)[0] == 0


def test_a_token_that_is_made(tmp_path: Path) -> None:
    """It is shown on standard error, as everywhere, and is good."""
    with program(tmp_path, "--memory", more={"ARCP_TOKENS": ""}) as serve:
        assert serve.process.stderr is not None
        line = b""
        while b"token for local: " not in line:
            line = serve.process.stderr.readline()
            assert line
        token = line.decode().partition("token for local: ")[2].strip()
        serve.send("session.hello", HELLO | {"auth": {"scheme": "bearer", "token": token}})
        assert serve.receive()["type"] == "session.welcome"


# -- its ends


def test_the_end_in_the_middle_of_a_line(tmp_path: Path) -> None:
    """Half a line is none. Jobs that run are ended, and that is told, for somebody may read on."""
    with program(tmp_path, "--memory") as serve:
        serve.hello()
        serve.send("job.submit", {"agent": "sleeper"})
        serve.receive()
        serve.write(b'{"arcp":"1.1","id":"half')
        code, frames, _ = serve.end()
    assert code == 0
    assert [each["type"] for each in frames] == ["job.error"]
    assert frames[0]["payload"]["code"] == "INTERNAL_ERROR"
    assert frames[0]["payload"]["retryable"] is True


def test_a_drain_behind_the_end(tmp_path: Path) -> None:
    """With --drain, jobs go on behind the end of standard input, and their results arrive."""
    with program(tmp_path, "--memory", "--drain", "20") as serve:
        serve.hello()
        serve.send("job.submit", {"agent": "countdown", "input": {"n": 3, "delay": 0.1}})
        serve.receive()
        code, frames, _ = serve.end()
    assert code == 0
    assert [each["type"] for each in frames] == ["job.event"] * 3 + ["job.result"]


def test_the_end_at_once(tmp_path: Path) -> None:
    """Without a session it ends just as well."""
    with program(tmp_path, "--memory") as serve:
        code, frames, _ = serve.end()
    assert (code, frames) == (0, [])


def test_it_waits_for_a_slow_parent(tmp_path: Path) -> None:
    """It ends at the end of standard input and not before, whatever limits a handshake has."""
    config = tmp_path / "config.toml"
    config.write_text("[limits]\nhandshake_seconds = 1\n", encoding="utf-8")
    with program(tmp_path, "--memory", "--config", str(config)) as serve:
        with pytest.raises(subprocess.TimeoutExpired):
            serve.process.wait(2.5)
        serve.hello()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    """It ends in order, as a runtime on the network does."""
    with program(tmp_path, "--memory") as serve:
        serve.hello()
        serve.send("job.submit", {"agent": "sleeper"})
        serve.receive()
        serve.process.send_signal(number)
        code, frames, _ = serve.end(close=False)
    assert code == 0
    assert [each["payload"]["code"] for each in frames] == ["INTERNAL_ERROR"]


def test_nobody_reads(tmp_path: Path) -> None:
    """When the parent closes its end of standard output, the process ends."""
    with program(tmp_path, "--memory") as serve:
        serve.hello()
        assert serve.process.stdout is not None
        serve.process.stdout.close()
        serve.send("job.submit", {"agent": "chatty"})
        assert serve.process.wait() == 0


def test_a_session_that_is_closed(tmp_path: Path) -> None:
    """There will be no other one: the process ends."""
    with program(tmp_path, "--memory") as serve:
        serve.hello()
        serve.send("session.close", {})
        code, frames, _ = serve.end(close=False)
    assert code == 0
    assert [each["type"] for each in frames] == ["session.closed"]


@contextmanager
def on_a_socket(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    """Start it with one socket as both of its streams; at the end that has to be as it was."""
    ours, theirs = socket.socketpair()
    ours.settimeout(LIFETIME_SECONDS)
    with ours, theirs:
        process = subprocess.Popen(
            [*SERVE, "--memory", "--drain", "60"],
            cwd=folder,
            env=environment({}),
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=subprocess.DEVNULL,
        )
        try:
            ours.sendall(frame("session.hello", HELLO))
            assert b"session.welcome" in ours.recv(100_000)
            assert not os.get_blocking(theirs.fileno())
            yield process, ours
        finally:
            process.kill()
            process.wait()
        assert os.get_blocking(theirs.fileno())


def test_what_was_shared_blocks_as_before(tmp_path: Path) -> None:
    """The parent's own file is as it was, also if both streams are one."""
    with on_a_socket(tmp_path) as (process, ours):
        ours.shutdown(socket.SHUT_WR)
        assert process.wait(LIFETIME_SECONDS) == 0


def test_what_was_shared_blocks_after_a_second_signal(tmp_path: Path) -> None:
    """Also if the process is in a hurry."""
    with on_a_socket(tmp_path) as (process, ours):
        ours.sendall(frame("job.submit", {"agent": "sleeper"}))
        assert b"job.accepted" in ours.recv(100_000)
        process.terminate()
        answer = b""
        while b"shutting down" not in answer:  # until it has heard of the signal
            ours.sendall(frame("job.submit", {"agent": "sleeper"}))
            answer = ours.recv(100_000)
            assert answer
        process.terminate()
        assert process.wait(LIFETIME_SECONDS) == 128 + signal.SIGTERM


def test_standard_input_from_a_file(tmp_path: Path) -> None:
    """A file of frames is as good as a pipe."""
    file = tmp_path / "frames"
    file.write_bytes(frame("session.hello", HELLO) + frame("session.ping", {"nonce": "n"}))
    with file.open("rb") as stdin, program(tmp_path, "--memory", stdin=stdin.fileno()) as serve:
        code, answers, _ = serve.end(close=False)
    assert code == 0
    assert [each["type"] for each in answers] == ["session.welcome", "session.pong"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--port", "0"), "--stdio does not listen on the network; leave out --port"),
        (("--host", "::1", "--tls-cert", "c"), "leave out --host, --tls-cert"),
    ],
)
def test_with_the_network(tmp_path: Path, arguments: tuple[str, ...], complaint: str) -> None:
    """One runtime is on one or the other."""
    with program(tmp_path, "--memory", *arguments) as serve:
        code, frames, err = serve.end()
    assert (code, frames) == (2, [])
    assert complaint in err
    assert err.count("\n") == 1


def test_without_standard_streams(tmp_path: Path) -> None:
    """It says so."""
    with subprocess.Popen(
        ["sh", "-c", f"exec {' '.join(SERVE)} --memory <&-"],
        cwd=tmp_path,
        env=environment({}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        out, err = process.communicate(timeout=LIFETIME_SECONDS)
    assert (process.returncode, out) == (2, b"")
    assert b"--stdio needs standard input" in err


# -- clients


async def test_our_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts the process by itself, and a wrong token is refused as such."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("ARCP_TOKENS", "alice=tok")
    monkeypatch.chdir(tmp_path)
    with trio.fail_after(LIFETIME_SECONDS):
        async with connect([*SERVE, "--memory"], token="tok") as client:
            assert await (await client.submit("echo", 1)).result() == {"echo": 1}
            big = await client.submit("report", {"size": 1_000_000})
            assert len(str(await big.result())) == 1_000_000
            events = [event async for event in big.events()]
            assert max(len(event.body["data"]) for event in events) <= 32 * 1024
        with pytest.raises(Unauthenticated):
            async with connect([*SERVE, "--memory"], token="wrong"):
                pytest.fail("it connected")


def test_the_vendors_client(tmp_path: Path) -> None:
    """The vendor's Python SDK over the pipes of a process runs jobs, streamed results too."""
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("vendor_stdio_client.py"), *SERVE, "--memory"],
        cwd=tmp_path,
        env=environment({}),
        stdout=subprocess.PIPE,
        timeout=LIFETIME_SECONDS,
        check=True,
    )
    said = json.loads(done.stdout)
    assert said == {"echo": {"echo": {"text": "é漢😀"}}, "report": 1_000_000, "code": 0}
