"""`ping` to runtimes without heartbeat, and Ctrl-C."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest
from websockets.sync.server import ServerConnection, serve

from tests.cli.clients import Commands
from tests.cli.processes import FRAME_SECONDS

pytestmark = pytest.mark.real_tcp


@contextmanager
def speaking(features: list[str], goes_on: Callable[[ServerConnection], None]) -> Generator[str]:
    """Run a server that sends a welcome with `features`, then calls `goes_on`; yield its URL."""

    def speak(socket: ServerConnection) -> None:
        socket.recv(timeout=FRAME_SECONDS)
        capabilities = {"encodings": ["json"], "features": features}
        payload = {"session_id": "sess_1", "capabilities": capabilities}
        welcome = {"arcp": "1.1", "id": "w", "type": "session.welcome", "payload": payload}
        socket.send(json.dumps(welcome))
        goes_on(socket)

    with serve(speak, "127.0.0.1", 0, compression=None) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}/arcp"
        server.shutdown()
        thread.join()


def next_type(socket: ServerConnection) -> str:
    """Return the type of the next frame."""
    kind: str = json.loads(socket.recv(timeout=FRAME_SECONDS))["type"]
    return kind


def test_without_a_heartbeat(tmp_path: Path) -> None:
    """A runtime without the feature ends `ping` with 1, after an orderly close."""
    seen: list[str] = []
    with speaking([], lambda socket: seen.append(next_type(socket))) as url:
        done = Commands(url, tmp_path).run("ping")
    assert (done.code, seen) == (1, ["session.close"])
    said = "can be reached, but answers no pings: it does not have the feature heartbeat"
    assert done.err == f"arcp-trio: {url} {said}\n"


def test_ctrl_c_after_some_answers(commands: Commands) -> None:
    """Ctrl-C between two pings sums up what was measured until then."""
    with commands.start("ping", "--count", "1000") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("answer from "):
                break
        process.send_signal(signal.SIGINT)
        *_, last = process.stdout
    assert process.returncode == 130
    assert " ms at best, " in last


def test_ctrl_c(tmp_path: Path) -> None:
    """Ctrl-C closes the session and ends `ping` with 130."""
    seen: list[str] = []

    def say_nothing(socket: ServerConnection) -> None:
        seen.append(next_type(socket))
        process.send_signal(signal.SIGINT)
        seen.append(next_type(socket))

    with speaking(["heartbeat"], say_nothing) as url:
        process = Commands(url, tmp_path).start("ping")
        with process:
            _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    assert seen == ["session.ping", "session.close"]
