"""A small web server on this machine."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Web:
    """What the server has been asked."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.site = f"http://127.0.0.1:{port}"
        self.seen: list[str] = []
        """Methods and paths."""


@contextmanager
def web() -> Generator[Web]:
    """Serve for the length of the block: each answer repeats the request."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            found.seen.append(f"{self.command} {self.path}")
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            words = f"{self.path} {self.headers['host']} ".encode() + body
            self.send_response(200)
            self.send_header("content-length", str(len(words)))
            self.end_headers()
            self.wfile.write(words)

        do_GET = do_POST = _answer  # noqa: N815 - the library's names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            del format, args

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Web(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()
