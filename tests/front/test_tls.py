"""TLS at the front: certificates that can and cannot be used, and their replacement."""

from __future__ import annotations

import os
import ssl
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import trio
import trustme
from cryptography.hazmat.primitives import serialization
from trio.testing import MockClock, wait_all_tasks_blocked
from websockets.sync.client import connect as sync_connect

from arcp_trio.front import pages
from arcp_trio.front.listening import listen, url
from arcp_trio.front.serve import serve_on
from arcp_trio.front.tls import Tls, UnusableCertificate
from arcp_trio.transport import connect
from tests.front.echo import EchoRuntime, assert_echoes, knock, read_answer, serving
from tests.transport.peers import request

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """Return the authority that the clients trust."""
    return trustme.CA()


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    """Return a client's context."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def write_pair(folder: Path, authority: trustme.CA, name: str = "localhost") -> tuple[Path, Path]:
    """Write a certificate for `name` and its key."""
    issued = authority.issue_cert(name)
    certificate, key = folder / "cert.pem", folder / "key.pem"
    certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    return certificate, key


async def encrypted(
    port: int, authority: trustme.CA, name: str = "localhost"
) -> trio.SSLStream[trio.SocketStream]:
    """Connect to a server and do the TLS handshake."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    secure = trio.SSLStream(
        stream, trusting(authority), server_hostname=name, https_compatible=True
    )
    try:
        await secure.do_handshake()
    except BaseException:
        await stream.aclose()
        raise
    return secure


async def until_closed(stream: trio.abc.Stream) -> None:
    """Read to the end of a stream, or to its reset."""
    with suppress(trio.BrokenResourceError):
        while await stream.receive_some():
            pass


# --- the files ---


def test_a_pair_that_fits_serves(tmp_path: Path, authority: trustme.CA) -> None:
    """A matching certificate and key serve, with TLS 1.2 at least."""
    context = Tls(*write_pair(tmp_path, authority)).current()
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def spoil(folder: Path, authority: trustme.CA, how: str) -> str:
    """Spoil one of the files, and return the beginning of the message about it."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    if how == "no certificate":
        certificate.unlink()
        return f"cannot read {certificate}: no such file or directory"
    if how == "no key":
        key.unlink()
        return f"cannot read {key}: no such file or directory"
    if how == "a folder":
        key.unlink()
        key.mkdir()
        return f"cannot read {key}: not a plain file"
    if how == "a pipe":
        key.unlink()
        os.mkfifo(key)
        return f"cannot read {key}: not a plain file"
    if how == "another key":
        key.write_bytes(authority.issue_cert("other").private_key_pem.bytes())
        return f"the key {key} does not belong to the certificate {certificate}"
    if how == "a password":
        loaded = serialization.load_pem_private_key(key.read_bytes(), None)
        encryption = serialization.BestAvailableEncryption(b"hush")
        pem = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
        key.write_bytes(loaded.private_bytes(*pem, encryption))
        return f"the key {key} is protected by a password"
    {"no PEM": certificate, "an empty key": key}[how].write_bytes(b"")
    return f"{certificate} and {key} are not a certificate chain and its private key"


SPOILT = [
    *("no certificate", "no key", "a folder", "a pipe"),
    *("another key", "a password", "no PEM", "an empty key"),
]


@pytest.mark.parametrize("how", SPOILT)
def test_a_pair_that_does_not_serve_says_why(
    tmp_path: Path, authority: trustme.CA, how: str
) -> None:
    """A message names the file and what is wrong with it, and OpenSSL asks for no password."""
    pair = write_pair(tmp_path, authority)
    reason = spoil(tmp_path, authority, how)
    with pytest.raises(UnusableCertificate) as raised:
        Tls(*pair)
    assert str(raised.value).startswith(reason)


@pytest.mark.parametrize("how", SPOILT)
def test_a_reload_that_fails_changes_nothing(
    tmp_path: Path, authority: trustme.CA, how: str
) -> None:
    """A failed reload leaves the certificate in use, and a later one may succeed."""
    tls = Tls(*write_pair(tmp_path, authority))
    before = tls.current()
    reason = spoil(tmp_path, authority, how)
    with pytest.raises(UnusableCertificate) as raised:
        tls.reload()
    assert str(raised.value).startswith(reason)
    assert tls.current() is before
    if how not in ("a folder", "a pipe"):
        write_pair(tmp_path, authority)
        tls.reload()
        assert tls.current() is not before


# --- connections ---


@pytest.mark.real_tcp
async def test_another_implementation_speaks_through_tls(
    tmp_path: Path, authority: trustme.CA
) -> None:
    """The `websockets` library verifies the certificate and gets its echoes, as private."""
    context = Tls(*write_pair(tmp_path, authority)).current()

    def talk(port: int) -> list[str | bytes]:
        address = f"wss://localhost:{port}/arcp"
        with sync_connect(address, ssl=trusting(authority)) as client:
            assert client.socket.version() == "TLSv1.3"  # type: ignore[attr-defined]
            client.send("hello")
            client.send("x" * 900)
            return [client.recv(timeout=60), client.recv(timeout=60)]

    async with serving(host="127.0.0.1", ssl_context=context) as (runtime, port):
        assert await trio.to_thread.run_sync(talk, port) == ["hello", "x" * 900]
        assert runtime.private == [True]


@pytest.mark.real_tcp
async def test_a_new_certificate_is_for_new_connections(
    tmp_path: Path, authority: trustme.CA
) -> None:
    """After a reload new connections get the new certificate, and open ones go on."""
    tls = Tls(*write_pair(tmp_path, authority))
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            runtime = EchoRuntime(nursery)
            listeners = await listen(["127.0.0.1"], 0)
            assert url(listeners[0], encrypted=True).startswith("wss://127.0.0.1:")
            port = listeners[0].socket.getsockname()[1]
            await nursery.start(
                partial(serve_on, listeners, runtime, over=runtime.over, ssl_context=tls.current)
            )
            async with connect(await encrypted(port, authority), max_bytes=1000) as before:
                await assert_echoes(before, "hello")
                write_pair(tmp_path, authority, "renewed")
                tls.reload()
                with pytest.raises(trio.BrokenResourceError):
                    await encrypted(port, authority)
                stream = await encrypted(port, authority, "renewed")
                async with connect(stream, max_bytes=1000) as after:
                    await assert_echoes(after, "hello")
                await assert_echoes(before, "still here")
            nursery.cancel_scope.cancel()


@pytest.mark.real_tcp
async def test_what_is_not_tls_hurts_nobody(tmp_path: Path, authority: trustme.CA) -> None:
    """Plain HTTP, garbage, an old version and a closed connection are counted as failures."""
    context = Tls(*write_pair(tmp_path, authority)).current()
    async with serving(ssl_context=context) as (runtime, port):
        for sent in (GET, request(), b"\x00" * 100, b"\x16\x03\x01\x00\x05hello", b""):
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all(sent)
                await stream.send_eof()
                await until_closed(stream)
        old = trusting(authority)
        old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        with pytest.raises(trio.BrokenResourceError):
            await trio.SSLStream(stream, old, server_hostname="localhost").do_handshake()
        await stream.aclose()
        secure = await encrypted(port, authority)
        await secure.send_all(GET)
        assert (await read_answer(secure)).status == 200
        await secure.aclose()
        assert set(runtime.turned_away) == {"tls"}
        assert runtime.failures == []


async def test_a_slow_tls_handshake_is_closed_at_the_deadline(
    tmp_path: Path, authority: trustme.CA, autojump_clock: MockClock
) -> None:
    """The TLS handshake counts towards the one deadline that begins with the accept."""
    async with trio.open_nursery() as nursery:
        runtime = EchoRuntime(nursery)
        tls = Tls(*write_pair(tmp_path, authority))
        stream = knock(runtime, ssl_context=tls.current)
        secure = trio.SSLStream(
            stream, trusting(authority), server_hostname="localhost", https_compatible=True
        )
        await trio.sleep(6)
        await secure.do_handshake()
        await secure.send_all(GET[:-1])
        await until_closed(secure)
        mute = knock(runtime, ssl_context=tls.current)
        assert await mute.receive_some() == b""
    assert trio.current_time() == 20
    assert runtime.turned_away == ["handshake_seconds"] * 2


async def test_a_page_here_is_from_https(
    tmp_path: Path, authority: trustme.CA, autojump_clock: MockClock
) -> None:
    """With a certificate for the name, the runtime's own pages are those of https."""
    tls = Tls(*write_pair(tmp_path, authority, "app.example"))
    for origin, status in (("https://app.example", b"101"), ("http://app.example", b"403")):
        async with trio.open_nursery() as nursery:
            runtime = EchoRuntime(nursery)
            secure = trio.SSLStream(
                knock(runtime, ssl_context=tls.current, loopback=True),
                trusting(authority),
                server_hostname="app.example",
                https_compatible=True,
            )
            head = f"Host: app.example\r\nOrigin: {origin}".encode()
            await secure.send_all(request().replace(b"Host: localhost", head))
            assert (await secure.receive_some())[9:12] == status
            await wait_all_tasks_blocked()
            assert runtime.private == ([True] if status == b"101" else [])
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("sent", "reasons"), [(b"\x17\x03\x03\x00\x20" + b"x" * 32, ["tls"]), (b"", [])]
)
async def test_trouble_after_the_tls_handshake_is_counted(
    tmp_path: Path,
    authority: trustme.CA,
    autojump_clock: MockClock,
    sent: bytes,
    reasons: list[str],
) -> None:
    """Data that cannot be decrypted is counted as a TLS failure; a closed connection is not."""
    tls = Tls(*write_pair(tmp_path, authority))
    async with trio.open_nursery() as nursery:
        runtime = EchoRuntime(nursery)
        stream = knock(runtime, ssl_context=tls.current)
        secure = trio.SSLStream(stream, trusting(authority), server_hostname="localhost")
        await secure.do_handshake()
        if sent:
            await stream.send_all(sent)
        await stream.aclose()
    assert runtime.turned_away == reasons
    assert runtime.failures == []


@pytest.mark.real_tcp
async def test_after_a_page_the_connection_ends_at_once(
    tmp_path: Path, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends the connection after a page, for clients that read to the end."""
    monkeypatch.setattr(pages, "DRAIN_SECONDS", 100)
    context = Tls(*write_pair(tmp_path, authority)).current()
    async with serving() as (_, plain), serving(ssl_context=context) as (_, secure):
        streams = await trio.open_tcp_stream("127.0.0.1", plain), await encrypted(secure, authority)
        for stream in streams:
            await stream.send_all(GET)
            await until_closed(stream)
            await stream.aclose()
