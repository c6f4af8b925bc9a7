"""The console's files over HTTP: who gets them, under which headers, and when not again."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

import pytest
import trio

from arcp_trio.front.console import Console
from tests.front.asking import get
from tests.front.echo import Answer, EchoRuntime, knock, read_answer, serving

MOST_BYTES = 160_000
"""Of what a browser loads."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
FILES = {
    file.name: file.read_text(encoding="utf-8")
    for file in files("arcp_trio").joinpath("console").iterdir()
    if file.name.endswith((".html", ".css", ".js", ".ts"))
}


async def asked(head: bytes, method: str = "GET", **door: Any) -> Answer:
    """Send a request through a door that has the console, and read the answer."""
    async with trio.open_nursery() as nursery:
        stream = knock(EchoRuntime(nursery), console=Console.load(), **door)
        await stream.send_all(head)
        answer = await read_answer(stream, method)
        await stream.aclose()
    return answer


@pytest.mark.parametrize("name", FILES)
async def test_each_file_is_served(name: str) -> None:
    """Each file of the page has its type, the strict policy, and the other headers."""
    path = "/" if name == "index.html" else f"/{name}"
    answer = await asked(get(path))
    assert (answer.status, answer.body) == (200, FILES[name])
    kinds = {
        "html": "text/html",
        "css": "text/css",
        "js": "text/javascript",
        "ts": "application/typescript",
    }
    assert answer.headers["content-type"] == f"{kinds[name.rpartition('.')[2]]}; charset=utf-8"
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-cache"
    head = await asked(get(path, "HEAD"), "HEAD")
    assert (head.status, head.body) == (200, "")
    assert (await asked(get(path, "POST"))).status == 405


async def test_a_kept_file_is_not_sent_again() -> None:
    """With the file's tag the answer is 304; with another one it is the file."""
    tag = (await asked(get("/"))).headers["etag"]
    for given, status in ((tag, 304), (f'"x", W/{tag}', 304), ('"x"', 200)):
        answer = await asked(get("/", more=f"If-None-Match: {given}\r\n"))
        assert (answer.status, answer.headers["etag"]) == (status, tag)
        assert bool(answer.body) is (status == 200)


async def test_other_hosts_and_pages_do_not_get_it() -> None:
    """On loopback a foreign Host is refused, and so is a page that may not connect."""
    foreign = b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"
    assert (await asked(foreign, loopback=True)).status == 403
    assert (await asked(get("/", more="Origin: http://evil.example\r\n"))).status == 403
    own = await asked(get("/arcp.js", more="Origin: http://localhost:7777\r\n"), loopback=True)
    assert own.status == 200
    app = "https://app.example"
    allowed = await asked(get("/arcp.js", more=f"Origin: {app}\r\n"), origins=(app,))
    assert allowed.headers["access-control-allow-origin"] == app


@pytest.mark.real_tcp
@pytest.mark.parametrize(("options", "status"), [({}, b"200"), ({"console": False}, b"404")])
async def test_serve_has_it_unless_told_otherwise(options: dict[str, bool], status: bytes) -> None:
    """`serve` has the console at `/`, and with `console=False` nothing."""
    async with serving(**options) as (_, port):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port)
        assert (await stream.receive_some(12)) == b"HTTP/1.1 " + status
        await stream.aclose()


def test_the_page_is_small_and_its_own() -> None:
    """All files together are small, name no other origin, and load nothing from elsewhere."""
    loaded = [text for name, text in FILES.items() if not name.endswith(".d.ts")]
    assert sum(len(text.encode()) for text in loaded) < MOST_BYTES
    for name, text in FILES.items():
        found = set(re.findall(r"https?://[\w.-]+", text)) - {"http://www.w3.org"}
        assert not found, name
        assert "innerHTML" not in text
        assert "eval(" not in text
