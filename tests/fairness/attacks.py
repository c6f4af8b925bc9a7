"""What a principal with a token, or a stranger, does to a runtime; each runs in its own process.

`python -m tests.fairness.attacks NAME URL` prints `begun` and goes on until it is ended.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from urllib.parse import urlsplit

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

ALICE = "alice-token"
BIG = json.dumps([[] for _ in range(24_000)])
"""A JSON text whose objects take far more room than its bytes, just within `json_values`."""
BEGIN = bytes([0x1, 0x80, 0, 0, 0, 0])
"""The first fragment of a text, which is empty."""
GO_ON = bytes([0x0, 0x80, 0, 0, 0, 0]) * 10_000
"""More fragments, and no last one."""


def attack_silent_reader(url: str) -> None:
    """Ask for listings with wide leases in many sessions, and read nothing."""
    lease = {"tool.call": [f"{n:03}{'x' * 400}" for n in range(150)]}
    with _session(url) as first:
        for _ in range(60):
            _say(first, "job.submit", {"agent": "sleeper", "input": 60, "lease_request": lease})
            first.recv()
    for _ in range(8):
        threading.Thread(target=_flood, args=(url, _listings), daemon=True).start()


def attack_listings(url: str) -> None:
    """Have many sessions ask for listings, and read them."""
    for _ in range(20):
        threading.Thread(target=_ask_and_read, args=(url, _listings), daemon=True).start()


def attack_one_key(url: str) -> None:
    """Submit under one key, as fast as it goes, in many sessions."""
    submit = {"agent": "echo", "input": 1, "idempotency_key": f"k{os.getpid()}"}
    for _ in range(8):
        threading.Thread(
            target=_ask_and_read,
            args=(url, lambda: itertools.repeat(("job.submit", submit))),
            daemon=True,
        ).start()


def attack_big_inputs(url: str) -> None:
    """Submit inputs of small objects, one after the other."""
    for _ in range(2):
        threading.Thread(target=_big_inputs, args=(url,), daemon=True).start()


def attack_subscriptions(url: str) -> None:
    """Subscribe and unsubscribe in many sessions, as fast as it goes."""
    with _session(url) as first:
        _say(first, "job.submit", {"agent": "sleeper", "input": 60})
        job_id = json.loads(first.recv())["payload"]["job_id"]
    both = [("job.subscribe", {"job_id": job_id}), ("job.unsubscribe", {"job_id": job_id})]
    for _ in range(4):
        threading.Thread(
            target=_ask_and_read, args=(url, lambda: itertools.cycle(both)), daemon=True
        ).start()


def attack_echoes(url: str) -> None:
    """Have short jobs done in many sessions, as fast as they go."""
    submit = {"agent": "echo", "input": "x" * 1_000}
    for _ in range(16):
        threading.Thread(
            target=_ask_and_read,
            args=(url, lambda: itertools.repeat(("job.submit", submit))),
            daemon=True,
        ).start()


def attack_fragments(url: str) -> None:
    """Send empty fragments of a message that never ends, without a session."""
    stream = _upgraded(url)
    stream.sendall(BEGIN)
    threading.Thread(target=_send_for_ever, args=(url, stream, GO_ON), daemon=True).start()


def attack_fragments_in_sessions(url: str) -> None:
    """Send empty fragments in many sessions."""
    for _ in range(20):
        threading.Thread(target=_fragments, args=(url,), daemon=True).start()


def attack_connects(url: str) -> None:
    """Connect from one address, again and again, and say nothing."""
    for _ in range(2):
        threading.Thread(target=_connect_for_ever, args=(url,), daemon=True).start()


ATTACKS: dict[str, Callable[[str], None]] = {
    name.removeprefix("attack_"): function
    for name, function in list(globals().items())
    if name.startswith("attack_")
}
Requests = Iterator[tuple[str, dict[str, object]]]


def _listings() -> Requests:
    while True:
        yield "session.list_jobs", {"page_size": 100, "filter": {"agent": "echo@1.0.0"}}


def _session(url: str) -> ClientConnection:
    connection = connect(url, compression=None, max_size=None, ping_interval=None)
    hello = {
        "client": {"name": "alice", "version": "1"},
        "auth": {"scheme": "bearer", "token": ALICE},
        "capabilities": {"encodings": ["json"], "features": ["list_jobs", "subscribe"]},
    }
    _say(connection, "session.hello", hello)
    connection.recv()
    return connection


def _say(connection: ClientConnection, kind: str, payload: dict[str, object]) -> None:
    frame = {"arcp": "1.1", "id": f"c{time.monotonic_ns()}", "type": kind, "payload": payload}
    connection.send(json.dumps(frame))


def _flood(url: str, requests: Callable[[], Requests]) -> None:
    """Send requests on a bare socket, and read nothing."""
    with suppress(ConnectionClosed, OSError):
        connection = _session(url)
        for kind, payload in requests():
            _say(connection, kind, payload)


def _ask_and_read(url: str, requests: Callable[[], Requests]) -> None:
    while True:
        with suppress(ConnectionClosed, OSError), _session(url) as connection:
            threading.Thread(target=_drain, args=(connection,), daemon=True).start()
            for kind, payload in requests():
                _say(connection, kind, payload)


def _drain(connection: ClientConnection) -> None:
    with suppress(ConnectionClosed, OSError):
        while True:
            connection.recv()


def _big_inputs(url: str) -> None:
    with suppress(ConnectionClosed, OSError), _session(url) as connection:
        threading.Thread(target=_drain, args=(connection,), daemon=True).start()
        while True:
            frame = f'"type":"job.submit","payload":{{"agent":"echo","input":{BIG}}}'
            connection.send(f'{{"arcp":"1.1","id":"b{time.monotonic_ns()}",{frame}}}')


def _upgraded(url: str) -> socket.socket:
    parts = urlsplit(url)
    stream = socket.create_connection((parts.hostname or "", parts.port or 0))
    stream.sendall(
        f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n"
        "Sec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    stream.recv(4_096)
    return stream


def _send_for_ever(url: str, stream: socket.socket, data: bytes) -> None:
    while True:
        with suppress(OSError):
            while True:
                stream.sendall(data)
        with suppress(OSError):
            stream = _upgraded(url)
            stream.sendall(BEGIN)


def _fragments(url: str) -> None:
    while True:
        with suppress(ConnectionClosed, OSError), _session(url) as connection:
            connection.socket.sendall(BEGIN)
            while True:
                connection.socket.sendall(GO_ON)


def _connect_for_ever(url: str) -> None:
    parts = urlsplit(url)
    held: list[socket.socket] = []
    while True:
        with suppress(OSError):
            held.append(socket.create_connection((parts.hostname or "", parts.port or 0)))
        if len(held) > 300:
            held.pop(0).close()


def main() -> None:
    """Begin an attack, and let it go on."""
    name, url = sys.argv[1:]
    ATTACKS[name](url)
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    threading.Event().wait()


if __name__ == "__main__":
    main()
