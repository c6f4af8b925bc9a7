"""Where `serve` listens, and for whom: addresses, TLS, Unix sockets, web pages, probes."""

from __future__ import annotations

import re
import signal
import socket
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect, unix_connect

from arcp_trio.transport.close_codes import CloseCode
from tests.cli.processes import FRAME_SECONDS, Peer, Serve, Starter, assert_refused, peer

pytestmark = pytest.mark.real_tcp


@pytest.fixture
def authority(tmp_path: Path) -> trustme.CA:
    """Write cert.pem and key.pem for localhost; return the authority that clients trust."""
    authority = trustme.CA()
    write_pair(tmp_path, authority, "localhost", "127.0.0.1")
    return authority


def write_pair(folder: Path, authority: trustme.CA, *names: str) -> None:
    """Write a certificate for these names, and its key."""
    issued = authority.issue_cert(*names)
    (folder / "cert.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    (folder / "key.pem").write_bytes(issued.private_key_pem.bytes())


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    """Return the TLS context of a client that trusts this authority."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


TLS = ("--tls-cert=cert.pem", "--tls-key=key.pem")


def serve(start: Starter, *arguments: str) -> Serve:
    """Serve alice, in memory, on a free port."""
    return start("serve", "--memory", "--port=0", "--token=alice=x", *arguments)


def address_line(served: Serve) -> str:
    """Return the address that is printed."""
    assert served.process.stdout is not None
    return served.process.stdout.readline().removeprefix("listening on ").removesuffix("\n")


def ask(url: str, path: str, **headers: str) -> tuple[int, str]:
    """Return the status and the text of a page beside the WebSocket."""
    address = f"http://{urlsplit(url).netloc}{path}"
    request = urllib.request.Request(address, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=FRAME_SECONDS) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


# --- addresses ---


@pytest.mark.spec("1.0/4.1-3")
@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_other_machines_are_let_in_on_purpose_only(start: Starter, host: str) -> None:
    """An address that other machines can reach is refused without TLS and without --insecure."""
    err = assert_refused(serve(start, "--host", host))
    assert f"other machines can reach {host}, " in err
    assert "add --tls-cert and --tls-key, or --insecure" in err


def test_one_address_that_others_can_reach_is_enough(start: Starter, tmp_path: Path) -> None:
    """One such address among others is refused, too, and no socket is left behind."""
    path = tmp_path / "arcp.sock"
    err = assert_refused(serve(start, "--host", f"unix:{path}", "--host=0.0.0.0"))
    assert "other machines can reach 0.0.0.0, " in err
    assert not path.exists()


@pytest.mark.parametrize("how", ["--insecure", "TLS"])
def test_on_purpose_it_is_possible(start: Starter, authority: trustme.CA, how: str) -> None:
    """With TLS or with --insecure such an address is served."""
    served = serve(start, "--host=0.0.0.0", *(TLS if how == "TLS" else [how]))
    assert re.fullmatch(r"wss?://0\.0\.0\.0:[1-9][0-9]*/arcp", address_line(served))


def test_several_hosts(start: Starter, tmp_path: Path) -> None:
    """Standard output names the first host, the log each; all lead to the same runtime."""
    path = tmp_path / "arcp.sock"
    served = serve(start, "--host=127.0.0.1", "--host", f"unix:{path}", "--host=127.0.0.2")
    url = address_line(served)
    port = urlsplit(url).port
    assert url == f"ws://127.0.0.1:{port}/arcp"
    served.line(f"accepting connections address=unix:{path}")
    with peer(url, "x") as one, peer(f"ws://127.0.0.2:{port}/arcp", "x") as other:
        accepted = one.submit("sleeper", {"seconds": 60})
        other.send("session.list_jobs", {})
        assert accepted["payload"]["job_id"] in str(other.receive())
    served.send_signal(signal.SIGTERM)
    code, out, _ = served.end()
    assert (code, out) == (0, "")


def test_a_unix_socket(start: Starter, tmp_path: Path) -> None:
    """The URL of a Unix socket is its path, sessions work over it, and the file is removed."""
    path = tmp_path / "arcp.sock"
    served = serve(start, "--host", f"unix:{path}")
    assert address_line(served) == f"unix:{path}"
    with unix_connect(str(path), "ws://localhost/arcp", compression=None) as client:
        (end,) = Peer(client, "x", None).run("echo", 1)
        assert end["payload"]["result"] == {"echo": 1}
        err = assert_refused(serve(start, "--host", f"unix:{path}"))
        assert f"cannot listen on unix:{path}: address already in use; " in err
    served.send_signal(signal.SIGTERM)
    assert served.end()[0] == 0
    assert not path.exists()


def test_a_unix_socket_that_a_killed_process_left(start: Starter, tmp_path: Path) -> None:
    """The socket that a killed process left behind is replaced."""
    path = tmp_path / "arcp.sock"
    killed = serve(start, "--host", f"unix:{path}")
    address_line(killed)
    killed.send_signal(signal.SIGKILL)
    killed.end()
    assert path.is_socket()
    assert address_line(serve(start, "--host", f"unix:{path}")) == f"unix:{path}"


def test_a_file_where_the_socket_should_be(start: Starter, tmp_path: Path) -> None:
    """A file in the place of the socket stays, and a failed start leaves no socket behind."""
    path = tmp_path / "precious"
    path.write_text("precious", encoding="utf-8")
    err = assert_refused(serve(start, "--host", f"unix:{path}"))
    assert f"unix:{path}: the path exists and is not a socket; choose another" in err
    assert path.read_text(encoding="utf-8") == "precious"
    assert_refused(serve(start, "--host=unix:made.sock", "--token=hush"))
    assert not (tmp_path / "made.sock").exists()


# --- TLS ---


def test_tls(start: Starter, authority: trustme.CA) -> None:
    """With TLS the address says wss, and an independent client verifies the certificate."""
    url = address_line(serve(start, *TLS))
    assert re.fullmatch(r"wss://127\.0\.0\.1:[1-9][0-9]*/arcp", url)
    with connect(url, ssl=trusting(authority), compression=None) as client:
        (end,) = Peer(client, "x", None).run("echo", 1)
    assert end["payload"]["result"] == {"echo": 1}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--tls-cert=cert.pem",), "--tls-cert is of no use alone; add --tls-key"),
        (("--tls-key=key.pem",), "--tls-key is of no use alone; add --tls-cert"),
        (("--tls-cert=absent", "--tls-key=key.pem"), "cannot read absent: no such file"),
        (("--tls-cert=key.pem", "--tls-key=key.pem"), "key.pem and key.pem are not a certificate"),
        (("--allow-origin=app.example",), "'app.example' is not an origin, like https://"),
        (("--allow-origin=https://app.example/",), "is not an origin"),
    ],
)
def test_what_cannot_be_served_with(
    start: Starter, authority: trustme.CA, arguments: tuple[str, ...], complaint: str
) -> None:
    """A wrong option is one line that names it, and exit code 2."""
    err = assert_refused(serve(start, *arguments))
    assert complaint in err
    assert arguments[0].partition("=")[0] in err


def test_a_certificate_is_renewed_at_a_signal(
    start: Starter, tmp_path: Path, authority: trustme.CA
) -> None:
    """SIGHUP reads the certificate again for new connections; an unusable one changes nothing."""
    served = serve(start, *TLS)
    url = address_line(served)

    def certificate() -> bytes | None:
        with connect(url, ssl=trusting(authority)) as client:
            assert isinstance(client.socket, ssl.SSLSocket)
            return client.socket.getpeercert(binary_form=True)

    first = certificate()
    with connect(url, ssl=trusting(authority), compression=None) as client:
        session = Peer(client, "x", None)
        write_pair(tmp_path, authority, "127.0.0.1")
        served.send_signal(signal.SIGHUP)
        served.line("reloaded what=certificates")
        second = certificate()
        assert second != first
        (tmp_path / "key.pem").write_bytes(b"")
        served.send_signal(signal.SIGHUP)
        served.line("reload failed what=certificates")
        assert certificate() == second
        session.run("echo", 1)


# --- who is let in ---


def test_web_pages(start: Starter) -> None:
    """Only web pages of an allowed origin connect; its host may be that of a proxy."""
    served = serve(start, "--allow-origin=https://app.example")
    url = address_line(served)
    port = urlsplit(url).port
    refused = [
        (None, "http://evil.example"),
        (None, f"http://localhost:{port}1"),
        ("evil.example", None),
        (f"evil.example:{port}", f"http://evil.example:{port}"),
    ]
    for host, origin in refused:
        with pytest.raises(InvalidStatus) as raised:
            open_as(url, host, origin)
        assert raised.value.response.status_code == 403
    for host, origin in ((None, "https://app.example"), ("app.example", "https://app.example")):
        open_as(url, host, origin)


def open_as(url: str, host: str | None, origin: str | None) -> None:
    """Open a session as a web page at `origin` would, under the name `host`."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    named = url if host is None else f"ws://{host}/arcp"
    with (
        socket.create_connection((parts.hostname, parts.port or 0)) as sock,
        connect(named, sock=sock, origin=origin, compression=None) as client,  # type: ignore[arg-type]
    ):
        assert Peer(client, "x", None).answer["type"] == "session.welcome"


def test_probes_and_figures(start: Starter) -> None:
    """The port has pages for probes and metrics; the WebSocket is one of its paths."""
    url = address_line(serve(start))
    assert ask(url, "/healthz") == (200, "alive\n")
    assert ask(url, "/readyz", Host="10.1.2.3") == (200, "ready\n")
    status, figures = ask(url, "/metrics")
    assert status == 200
    assert "# TYPE arcp_connections gauge" in figures
    assert ask(url, "/metrics", Host="evil.example")[0] == 403
    assert ask(url, "/nowhere")[0] == 404
    assert ask(url, "/arcp")[0] == 426


SABOTEUR = """
import os, socket
import arcp_trio

agents = arcp_trio.Agents()

@agents.agent("saboteur")
async def saboteur(job):
    for name in os.listdir("/dev/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as found:
                if found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    found.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
"""


def test_a_listener_that_can_never_accept_again_ends_it_in_one_line(
    start: Starter, tmp_path: Path
) -> None:
    """A listener that fails for good ends the process; the last line has its address and why.

    The clients are told goodbye.
    """
    (tmp_path / "saboteur.py").write_text(SABOTEUR, encoding="utf-8")
    served = serve(start, "--agents=saboteur")
    url = served.url()
    with peer(url, "x") as session:
        session.submit("saboteur")
        with pytest.raises(ConnectionClosed) as caught:
            receive_for_ever(session)
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == CloseCode.GOING_AWAY
    code, _, err = served.end()
    assert code == 1
    last = err.splitlines()[-1]
    assert last.startswith("arcp-trio: ")
    assert f"{url}: no longer accepts connections: Invalid argument" in last
    assert "Traceback" not in err


def receive_for_ever(session: Peer) -> None:
    """Receive frames until the connection is closed, which raises."""
    while True:
        session.receive()


def test_the_console_can_be_left_out(start: Starter) -> None:
    """With --no-console there is nothing at `/`."""
    url = start("serve", "--port=0", "--memory", "--token=alice=s3cret", "--no-console").url()
    assert ask(url, "/")[0] == 404
    url = start("serve", "--port=0", "--memory", "--token=alice=s3cret").url()
    status, page = ask(url, "/")
    assert (status, page[:15]) == (200, "<!doctype html>")
