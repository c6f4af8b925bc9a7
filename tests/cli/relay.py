"""A network between a client and its runtime that can fail."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit


class Relay:
    """Passes on all bytes, as long as it works."""

    def __init__(self, to_url: str, listener: socket.socket, keeps_back: bytes | None) -> None:
        self.works = True
        self.kept_back = threading.Event()
        """Set when a connection has had these bytes to pass on, and has gone silent instead."""
        self._keeps_back = keeps_back
        port = listener.getsockname()[1]
        self.url = f"ws://127.0.0.1:{port}/arcp"
        self._to = ("127.0.0.1", urlsplit(to_url).port)
        self._listener = listener
        self._open: list[socket.socket] = []
        self._copying: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def lead_to(self, url: str) -> None:
        """Lead the connections to come to another runtime, and let them in."""
        self._to = ("127.0.0.1", urlsplit(url).port)
        self.works = True

    def fail(self) -> None:
        """Cut all connections, and refuse others until `works` is set again."""
        self.works = False
        for end in self._open:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._copying:
            thread.join()
        for end in self._open:
            end.close()
        self._open.clear()

    def end(self) -> None:
        """Cut all connections for good."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._accepting.join()
        self.fail()

    def _accept(self) -> None:
        with suppress(OSError):  # at the end the listener is closed
            while True:
                near, _ = self._listener.accept()
                if not self.works:
                    near.close()
                    continue
                try:
                    far = socket.create_connection(self._to)
                except ConnectionRefusedError:  # nothing listens there now
                    near.close()
                    continue
                self._open += near, far
                for ends in ((near, far), (far, near)):
                    copying = threading.Thread(target=self._copy, args=ends, daemon=True)
                    copying.start()
                    self._copying.append(copying)

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if self._keeps_back is not None and self._keeps_back in data:
                    self.kept_back.set()
                    return
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


@contextmanager
def relay(to_url: str, *, keeps_back: bytes | None = None) -> Iterator[Relay]:
    """Run a relay for the block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        between = Relay(to_url, listener, keeps_back)
        try:
            yield between
        finally:
            between.end()
