"""What a principal with a token, or a stranger, does to a runtime; each runs in its own process.

`python -m tests.fairness.attacks NAME URL` prints `begun` and goes on until it is ended.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TypeAlias
from urllib.parse import urlsplit

from websockets.sync.client import ClientConnection, connect

ALICE = "alice-token"
BIG: list[object] = [[] for _ in range(24_000)]
"""A value whose objects take far more room than its bytes, just within `json_values`."""
FINISHED_JOBS = 100
"""Jobs of each listing."""
BEGIN = bytes([0x1, 0x80, 0, 0, 0, 0])
"""The first fragment of a text, which is empty."""
GO_ON = bytes([0x0, 0x80, 0, 0, 0, 0]) * 10_000
"""More fragments, and no last one."""


def attack_silent_reader(url: str) -> None:
    """Ask for listings with wide leases in many sessions, and read nothing."""
    with _session(url) as first:
        for _ in range(60):
            first.send(_text(_SLEEPER))
            first.recv()
    for _ in range(8):
        _start(_flood, url, [("session.list_jobs", {"page_size": 100})])


def attack_listings(url: str) -> None:
    """Have many sessions ask for listings of finished jobs, and read them."""
    with _session(url) as first:
        for _ in range(FINISHED_JOBS):
            first.send(_text(("job.submit", {"agent": "echo", "input": 1})))
            while '"job.result"' not in str(first.recv()):
                pass
    for _ in range(20):
        _start(_hammer, url, [("session.list_jobs", {"page_size": FINISHED_JOBS})])


def attack_one_key(url: str) -> None:
    """Submit under one key, as fast as it goes, in many sessions."""
    submit = {"agent": "echo", "input": 1, "idempotency_key": f"k{os.getpid()}"}
    for _ in range(8):
        _start(_hammer, url, [("job.submit", submit)])


def attack_big_inputs(url: str) -> None:
    """Submit inputs of small objects, one after the other."""
    for _ in range(2):
        _start(_hammer, url, [("job.submit", {"agent": "echo", "input": BIG})])


def attack_subscriptions(url: str) -> None:
    """Subscribe to a job with a wide lease, and unsubscribe, in many sessions."""
    with _session(url) as first:
        first.send(_text(_SLEEPER))
        job_id = json.loads(first.recv())["payload"]["job_id"]
    both = [("job.subscribe", {"job_id": job_id}), ("job.unsubscribe", {"job_id": job_id})]
    for _ in range(4):
        _start(_hammer, url, both)


def attack_echoes(url: str) -> None:
    """Have short jobs done in many sessions, as fast as they go."""
    submit = {"agent": "echo", "input": "x" * 1_000}
    for _ in range(16):
        _start(_hammer, url, [("job.submit", submit)])


def attack_fragments(url: str) -> None:
    """Send empty fragments of a message that never ends, without a session."""
    _start(_send_fragments, partial(_upgraded, url))


def attack_fragments_in_sessions(url: str) -> None:
    """Send empty fragments in many sessions."""
    for _ in range(20):
        _start(_send_fragments, partial(_in_session, url))


def attack_connects(url: str) -> None:
    """Connect from one address, two thousand times a second, and say nothing."""
    for _ in range(2):
        _start(_connect_for_ever, url)


ATTACKS: dict[str, Callable[[str], None]] = {
    name.removeprefix("attack_"): function
    for name, function in list(globals().items())
    if name.startswith("attack_")
}
_Request: TypeAlias = tuple[str, object]
"""The type of a message, and its payload."""
_SLEEPER: _Request = (
    "job.submit",
    {
        "agent": "sleeper",
        "input": {"seconds": 3_600},
        "lease_request": {"tool.call": [f"{n:03}{'x' * 400}" for n in range(150)]},
    },
)
"""A job whose acceptance, subscriptions and listings are large."""
_HELLO: _Request = (
    "session.hello",
    {
        "client": {"name": "alice", "version": "1"},
        "auth": {"scheme": "bearer", "token": ALICE},
        "capabilities": {"encodings": ["json"], "features": ["list_jobs", "subscribe"]},
    },
)
_BATCH_BYTES = 256 * 1024
"""What is sent at once, so that the attacker needs little time for much."""


def _start(act: Callable[..., None], *args: object) -> None:
    threading.Thread(target=act, args=args, daemon=True).start()


@contextmanager
def _session(url: str) -> Iterator[ClientConnection]:
    with connect(url, compression=None, max_size=None, ping_interval=None) as connection:
        connection.send(_text(_HELLO))
        connection.recv()
        yield connection


def _text(request: _Request) -> str:
    kind, payload = request
    return json.dumps({"arcp": "1.1", "id": "a1", "type": kind, "payload": payload})


def _frame(request: _Request) -> bytes:
    """Return a request as a client's frame, with a mask that changes nothing."""
    data = _text(request).encode()
    if len(data) < 126:
        length = bytes([0x80 | len(data)])
    elif len(data) < 1 << 16:
        length = b"\xfe" + len(data).to_bytes(2, "big")
    else:
        length = b"\xff" + len(data).to_bytes(8, "big")
    return b"\x81" + length + bytes(4) + data


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


def _in_session(url: str) -> socket.socket:
    stream = _upgraded(url)
    stream.sendall(_frame(_HELLO))
    return stream


def _flood(url: str, requests: Sequence[_Request]) -> None:
    """Send requests in a session, over and over again, and read nothing."""
    _send_for_ever(partial(_in_session, url), _batch(requests))


def _hammer(url: str, requests: Sequence[_Request]) -> None:
    """Send requests in a session, over and over again, and read what comes."""

    def opened() -> socket.socket:
        stream = _in_session(url)
        _start(_drain, stream)
        return stream

    _send_for_ever(opened, _batch(requests))


def _batch(requests: Sequence[_Request]) -> bytes:
    once = b"".join(map(_frame, requests))
    return once * (_BATCH_BYTES // len(once) + 1)


def _drain(stream: socket.socket) -> None:
    with suppress(OSError):
        while stream.recv(_BATCH_BYTES):
            pass


def _send_fragments(connect_: Callable[[], socket.socket]) -> None:
    def begun() -> socket.socket:
        stream = connect_()
        stream.sendall(BEGIN)
        return stream

    _send_for_ever(begun, GO_ON)


def _send_for_ever(connect_: Callable[[], socket.socket], data: bytes) -> None:
    """Send the same again and again, on another connection when one has ended."""
    while True:
        with suppress(OSError), connect_() as stream:
            while True:
                stream.sendall(data)


def _connect_for_ever(url: str) -> None:
    parts = urlsplit(url)
    held: deque[socket.socket] = deque()
    begin = time.monotonic()
    for number in itertools.count():
        time.sleep(max(0.0, begin + number / 1_000 - time.monotonic()))
        with suppress(OSError):
            stream = socket.create_connection((parts.hostname or "", parts.port or 0))
            # Else the system would run out of ports, and the attack would stop for a minute.
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            held.append(stream)
        if len(held) > 300:
            held.popleft().close()


def main() -> None:
    """Begin an attack, and let it go on."""
    name, url = sys.argv[1:]
    ATTACKS[name](url)
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    threading.Event().wait()


if __name__ == "__main__":
    main()
