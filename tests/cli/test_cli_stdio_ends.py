"""How a process `serve --stdio` ends, and what keeps it from starting."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.processes import LIFETIME_SECONDS
from tests.cli.stdio_program import HELLO, SERVE, environment, frame, program


def test_the_end_in_the_middle_of_a_line(tmp_path: Path) -> None:
    """At the end of input, half a line is dropped, and the ends of running jobs are still sent."""
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


def test_a_drain_after_the_end(tmp_path: Path) -> None:
    """With --drain, jobs go on after the end of standard input, and their results arrive."""
    with program(tmp_path, "--memory", "--drain", "20") as serve:
        serve.hello()
        serve.send("job.submit", {"agent": "countdown", "input": {"n": 3, "delay": 0.1}})
        serve.receive()
        code, frames, _ = serve.end()
    assert code == 0
    assert [each["type"] for each in frames] == ["job.event"] * 3 + ["job.result"]


def test_the_end_at_once(tmp_path: Path) -> None:
    """The end of input before any session ends the process with 0."""
    with program(tmp_path, "--memory") as serve:
        code, frames, _ = serve.end()
    assert (code, frames) == (0, [])


def test_it_waits_for_a_slow_parent(tmp_path: Path) -> None:
    """The process waits for its first frame longer than the limit of a handshake."""
    config = tmp_path / "config.toml"
    config.write_text("[limits]\nhandshake_seconds = 1\n", encoding="utf-8")
    with program(tmp_path, "--memory", "--config", str(config)) as serve:
        with pytest.raises(subprocess.TimeoutExpired):
            serve.process.wait(2.5)
        serve.hello()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    """A signal ends the process in order, as it ends a runtime on the network."""
    with program(tmp_path, "--memory") as serve:
        serve.hello()
        serve.send("job.submit", {"agent": "sleeper"})
        serve.receive()
        serve.process.send_signal(number)
        code, frames, _ = serve.end(close=False)
    assert code == 0
    assert [each["payload"]["code"] for each in frames] == ["INTERNAL_ERROR"]


def test_standard_output_is_closed(tmp_path: Path) -> None:
    """The process ends when its parent closes the pipe of standard output."""
    with program(tmp_path, "--memory") as serve:
        serve.hello()
        assert serve.process.stdout is not None
        serve.process.stdout.close()
        serve.send("job.submit", {"agent": "chatty"})
        assert serve.process.wait() == 0


def test_a_session_that_is_closed(tmp_path: Path) -> None:
    """The process ends when its client closes the session."""
    with program(tmp_path, "--memory") as serve:
        serve.hello()
        serve.send("session.close", {})
        code, frames, _ = serve.end(close=False)
    assert code == 0
    assert [each["type"] for each in frames] == ["session.closed"]


@contextmanager
def on_a_socket(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    """Run a process with one socket as both streams; expect the socket to be blocking again."""
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
    """After its end the file of both streams is blocking again, for the parent that shares it."""
    with on_a_socket(tmp_path) as (process, ours):
        ours.shutdown(socket.SHUT_WR)
        assert process.wait(LIFETIME_SECONDS) == 0


def test_what_was_shared_blocks_after_a_second_signal(tmp_path: Path) -> None:
    """The file of both streams is blocking again also after an end by a second signal."""
    with on_a_socket(tmp_path) as (process, ours):
        ours.sendall(frame("job.submit", {"agent": "sleeper"}))
        assert b"job.accepted" in ours.recv(100_000)
        process.terminate()
        answer = b""
        while b"shutting down" not in answer:  # until the runtime has taken up the signal
            ours.sendall(frame("job.submit", {"agent": "sleeper"}))
            answer = ours.recv(100_000)
            assert answer
        process.terminate()
        assert process.wait(LIFETIME_SECONDS) == 128 + signal.SIGTERM


def test_standard_input_from_a_file(tmp_path: Path) -> None:
    """Standard input may be a file of frames."""
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
    """--stdio beside an option of the network is refused in one line."""
    with program(tmp_path, "--memory", *arguments) as serve:
        code, frames, err = serve.end()
    assert (code, frames) == (2, [])
    assert complaint in err
    assert err.count("\n") == 1


def test_without_standard_streams(tmp_path: Path) -> None:
    """A closed standard stream is refused in one line."""
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
