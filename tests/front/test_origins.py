"""Which web pages may connect, and under which names a runtime may be asked for."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from arcp_trio import Runtime, StaticTokens
from arcp_trio.front.door import Caller, Door
from arcp_trio.front.origins import Host, Origin, Origins, parse_host, parse_origin
from arcp_trio.front.waiting import WaitingRoom
from arcp_trio.transport import memory_streams
from tests.front.echo import EchoRuntime, knock, read_answer, serving
from tests.transport.peers import RawPeer, request

# --- reading what clients say ---

LABEL = r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?"
NAMES = st.from_regex(LABEL + r"(\.[a-z][a-z0-9]{0,5}){0,3}", fullmatch=True)
PORTS = st.none() | st.integers(0, 65_535)

NO_HOSTS = """
    :80 . .. a..b .a -a a- a/b a\\b a?b a#b a@b user:pw@localhost a%2eb a,b a:b a:1:2 a:-1 a:+1
    a:65536 a:99999999999 a:\u0663 \u00fcn\u00ef a\x00 ::1 ::1:80 [::1 ::1] [] [a] [127.0.0.1]
    [::1]x evil[::1] [::1].evil [[::1]] [::1]] [fe80::1%eth0] [fe80::1%25eth0]
    """
ODD_HOSTS = ["", "a b", "a: 1", "a\n", " a", "[::1] ", "x" * 64, "a." * 127 + "a"]

NO_ORIGINS = """
    null NULL app.example //app.example ://app.example https: https:// https://a/ https://a/b
    https://u@a file:// https://a,https://b * https://*.example
    """
ODD_ORIGINS = ["", "https://a b", "https://a https://b", "ht tp://a"]


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("localhost", Host("localhost")),
        ("LocalHost:7777", Host("localhost", 7777)),
        ("app.example.", Host("app.example")),
        ("app.example:", Host("app.example")),
        ("a_b.example:080", Host("a_b.example", 80)),
        ("127.0.0.1:1", Host("127.0.0.1", 1)),
        ("[::1]", Host("::1")),
        ("[::1]:8080", Host("::1", 8080)),
        ("[0:0:0:0:0:0:0:1]", Host("::1")),
        ("xn--p1ai:7777", Host("xn--p1ai", 7777)),
        *((text, None) for text in (*NO_HOSTS.split(), *ODD_HOSTS)),
    ],
)
def test_a_host_is_a_name_or_an_address_and_perhaps_a_port(text: str, host: Host | None) -> None:
    """A Host header is a name or an address and perhaps a port, with nothing around it."""
    assert parse_host(text) == host


@given(NAMES, PORTS)
def test_names_are_read_as_they_are_written(name: str, port: int | None) -> None:
    """A name is read without regard to its case, with and without a port."""
    suffix = "" if port is None else f":{port}"
    assert parse_host(name + suffix) == parse_host(name.upper() + suffix) == Host(name, port)


@given(st.ip_addresses(), PORTS)
def test_addresses_are_read_as_they_are_written(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int | None
) -> None:
    """Each way to write an address gives the same host, and only loopback is loopback."""
    suffix = "" if port is None else f":{port}"
    for text in {str(address), address.exploded}:
        written = f"[{text}]" if address.version == 6 else text
        host = parse_host(written + suffix)
        assert host == Host(str(address), port)
        assert host is not None
        assert host.address == address
        mapped = getattr(address, "ipv4_mapped", None) or address
        assert host.is_loopback is mapped.is_loopback
        # With other text around it, it is a name, or malformed.
        for other in (f"evil{written}", f"{written}.evil", f"{written}@evil", f" {written}"):
            wrong = parse_host(other + suffix)
            assert wrong is None or (wrong.address is None and not wrong.is_loopback)


@given(st.text(max_size=40))
def test_any_text_is_a_host_or_none(text: str) -> None:
    """A host that is accepted reads the same when it is written again."""
    host = parse_host(text)
    if host is not None:
        name = f"[{host.name}]" if ":" in host.name else host.name
        assert parse_host(name if host.port is None else f"{name}:{host.port}") == host


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("https://app.example", Origin("https", "app.example", 443)),
        ("HTTPS://App.Example:443", Origin("https", "app.example", 443)),
        ("http://[::1]:3000", Origin("http", "::1", 3000)),
        ("chrome-extension://abcdef", Origin("chrome-extension", "abcdef", None)),
        *((text, None) for text in (*NO_ORIGINS.split(), *ODD_ORIGINS)),
    ],
)
def test_an_origin_is_a_scheme_a_host_and_a_port(text: str, origin: Origin | None) -> None:
    """Equal origins have one form; a path, a list or a pattern is not an origin."""
    assert parse_origin(text) == origin


@pytest.mark.parametrize("text", ["https://app.example/", "app.example", "*", "", "NULL"])
def test_only_origins_can_be_allowed(text: str) -> None:
    """Allowing a text that is not an origin raises an error that quotes it."""
    with pytest.raises(ValueError, match="is not an origin") as raised:
        Origins([text])
    assert repr(text) in str(raised.value)


# --- who is let in ---

APP = "https://app.example"
REFUSED = 403


async def status(
    host: str, origin: str | None = None, *, path: str = "/arcp", **door: Any
) -> tuple[int, list[str]]:
    """Ask a door for a WebSocket; return the status, and the reasons that are counted."""
    async with trio.open_nursery() as nursery:
        runtime = EchoRuntime(nursery)
        more = "" if origin is None else f"\r\nOrigin: {origin}"
        head = request(path).replace(b"Host: localhost", f"Host: {host}{more}".encode())
        stream = knock(runtime, **door)
        await stream.send_all(head)
        code = int((await RawPeer(stream).read_head())[9:12])
        assert code == 101 or runtime.deadlines == []  # the runtime has attended to nothing
        await stream.aclose()
    return code, runtime.turned_away


@pytest.mark.parametrize(
    ("host", "origin", "code"),
    [
        ("localhost:7777", None, 101),
        ("127.0.0.1:7777", None, 101),
        ("127.9.9.9", None, 101),
        ("[::1]:7777", None, 101),
        ("[::ffff:127.0.0.1]", None, 101),
        ("localhost.", None, 101),
        ("evil.example:7777", None, 403),  # its name has been pointed here
        ("localhost.evil.example", None, 403),
        ("127.0.0.1.evil.example", None, 403),
        ("2130706433", None, 403),
        ("10.0.0.1", None, 403),
        ("[::2]", None, 403),
        ("evil.example:7777", "http://evil.example:7777", 403),
        ("localhost:7777", "http://evil.example", 403),
        ("localhost:7777", "http://localhost:3000", 403),  # another page of this machine
        ("localhost:7777", "http://localhost", 403),
        ("localhost:7777", "https://localhost:7777", 403),
        ("localhost:7777", "http://127.0.0.1:7777", 403),
        ("localhost:7777", "null", 403),
        ("localhost:7777", "", 403),
        ("localhost:7777", "chrome-extension://abcdef", 403),
        ("localhost:7777", "http://localhost:7777", 101),
        ("[::1]:7777", "http://[::1]:7777", 101),
        ("127.0.0.1", "http://127.0.0.1:80", 101),
    ],
)
async def test_on_loopback_only_this_machine_is_let_in(
    host: str, origin: str | None, code: int
) -> None:
    """Over loopback, a client must name this machine, and a web page must be the runtime's own."""
    reason = (
        [] if code == 101 else ["origin" if "evil" not in host and origin is not None else "host"]
    )
    assert await status(host, origin, loopback=True) == (code, reason)


@pytest.mark.parametrize(
    ("host", "origin", "code"),
    [
        ("app.example", APP, 101),
        ("app.example:8443", APP, 101),
        ("localhost:7777", APP, 101),
        ("localhost:7777", APP + ":443", 101),
        ("localhost:7777", "null", 101),
        ("app.example", None, 101),
        ("www.app.example", None, 403),
        ("app.example", "http://app.example", 403),
        ("app.example", APP + ":8443", 403),
        ("app.example", "https://www.app.example", 403),
    ],
)
async def test_what_is_allowed_is_let_in(host: str, origin: str | None, code: int) -> None:
    """An allowed page may connect, also under its own host name, and no page like it."""
    assert (await status(host, origin, loopback=True, origins=[APP, "null"]))[0] == code


@pytest.mark.parametrize(
    ("host", "origin", "code"),
    [
        ("anything.example", None, 101),
        ("10.0.0.1:7777", "http://10.0.0.1:7777", 101),
        ("[fd00::1]:7777", "http://[fd00::1]:7777", 101),
        ("evil.example:7777", "http://evil.example:7777", 403),
        ("10.0.0.1:7777", "http://evil.example:7777", 403),
        ("localhost:7777", "http://localhost:7777", 101),
    ],
)
async def test_elsewhere_any_name_will_do_but_no_web_page(
    host: str, origin: str | None, code: int
) -> None:
    """Elsewhere any host will do, and a page may connect only from the runtime's own address."""
    assert (await status(host, origin))[0] == code


async def test_the_pages_for_probes_are_for_everybody() -> None:
    """`/metrics` needs a Host that is served here; other pages ignore Host and Origin."""
    for path, code in (("/healthz", 200), ("/readyz", 200), ("/metrics", 403), ("/x", 404)):
        assert (await status("evil.example", APP, path=path, loopback=True))[0] == code
    assert (await status("localhost", path="/metrics", loopback=True))[0] == 200


async def test_http_1_0_need_not_name_a_host() -> None:
    """A request in HTTP/1.0 need not name a host, as browsers do not send such requests."""
    async with trio.open_nursery() as nursery:
        stream = knock(EchoRuntime(nursery), loopback=True)
        await stream.send_all(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert (await read_answer(stream)).status == 200
        await stream.aclose()


async def test_a_whole_url_names_the_host() -> None:
    """The host of a whole URL takes precedence over the Host header (RFC 9112 §3.2.2)."""
    for host, code in (("localhost", 101), ("evil.example", 403)):
        target = f"http://{host}/arcp"
        assert (await status("localhost", path=target, loopback=True))[0] == code


async def test_a_refused_request_opens_no_session() -> None:
    """A refused request is counted, and opens no connection of the runtime."""
    async with Runtime(auth=StaticTokens({})) as runtime, trio.open_nursery() as nursery:
        near, far = memory_streams()
        door = Door(runtime=runtime, room=WaitingRoom(1))
        caller = Caller(peer="peer", private=True, loopback=True)

        @nursery.start_soon
        async def receive() -> None:
            await door.receive(near, caller)

        await far.send_all(request().replace(b"Host: localhost", b"Host: evil.example"))
        assert (await read_answer(far)).status == REFUSED
        await far.aclose()
        text = runtime.exposition()
    assert 'arcp_connection_failures_total{reason="host"} 1' in text
    assert "arcp_connections 0" in text


async def test_a_line_of_the_log_stays_short(caplog: pytest.LogCaptureFixture) -> None:
    """A log line quotes only the beginning of an Origin or a path."""
    with caplog.at_level("INFO", "arcp_trio.front.door"):
        assert (await status("localhost", "http://" + "x" * 10_000))[0] == REFUSED
        assert (await status("localhost", path="/" + "x" * 10_000))[0] == 404
    whys: list[str] = [vars(record)["why"] for record in caplog.records]
    assert len(whys) == 2
    assert max(map(len, whys)) < 200


@pytest.mark.real_tcp
@pytest.mark.parametrize("listens", ["127.0.0.1", "0.0.0.0"])
async def test_host_is_checked_on_loopback_connections(listens: str) -> None:
    """A server checks Host on loopback connections, whatever address it listens on."""
    async with serving(host=listens) as (_, port):
        for name, code in (("evil.example", 403), ("localhost", 200)):
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            await stream.send_all(f"GET /metrics HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
            assert (await read_answer(stream)).status == code
            await stream.aclose()
