"""Opening listening sockets: on Unix sockets, names, and several addresses at once."""

from __future__ import annotations

import errno
import os
import socket
import stat
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from arcp_trio.addresses import is_loopback
from arcp_trio.front import listening
from arcp_trio.front.listening import CannotListen, close, is_local, listen, url
from arcp_trio.front.serve import serve
from arcp_trio.transport import connect
from tests.front.echo import EchoRuntime, assert_echoes, client_of, serving

pytestmark = pytest.mark.real_tcp


async def echoes_at(path: Path) -> None:
    """Assert that an echo is served at a path."""
    async with connect(await trio.open_unix_socket(path), max_bytes=1000) as client:
        await assert_echoes(client, "hello")


def leave_stale(path: Path) -> None:
    """Leave a socket as a killed process does."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
        sock.listen()


def start_another(path: Path) -> str:
    """Listen on a path as another server does, and return the error."""
    with ThreadPoolExecutor() as threads, pytest.raises(CannotListen) as raised:
        threads.submit(trio.run, listen, [f"unix:{path}"], 0).result()
    return str(raised.value)


def left_in(folder: Path) -> list[Path]:
    """Return the entries of a folder."""
    return list(folder.iterdir())


async def test_a_unix_socket_is_for_its_owner_and_goes_with_the_listener(tmp_path: Path) -> None:
    """A Unix socket is private, for its owner only, and removed at the end."""
    path = tmp_path / "arcp.sock"
    umask = os.umask(0)
    try:
        async with serving(host=f"unix:{path}") as (runtime, _):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            await echoes_at(path)
            assert runtime.private == [True]
    finally:
        os.umask(umask)
    assert not path.exists()


async def test_what_a_killed_process_left_is_replaced(tmp_path: Path) -> None:
    """The socket of a process that was killed is replaced."""
    path = tmp_path / "arcp.sock"
    leave_stale(path)
    async with serving(host=f"unix:{path}"):
        await echoes_at(path)
    assert not path.exists()


async def test_another_server_s_socket_stays(tmp_path: Path) -> None:
    """The socket of another server is not taken away, and the second one gets an error."""
    path = tmp_path / "arcp.sock"
    async with serving(host=f"unix:{path}"):
        with pytest.raises(CannotListen, match="use") as raised:
            await listen([f"unix:{path}"], 0)
        assert raised.value.errno == errno.EADDRINUSE
        await echoes_at(path)
    assert not path.exists()


async def test_a_socket_with_a_full_backlog_is_in_use(tmp_path: Path) -> None:
    """A socket whose backlog is full belongs to a server, too."""
    path = tmp_path / "arcp.sock"
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as client:
        busy.bind(str(path))
        busy.listen(0)
        client.connect(str(path))
        with pytest.raises(CannotListen, match="use"):
            await listen([f"unix:{path}"], 0)
    assert path.is_socket()


@pytest.mark.parametrize("kind", ["file", "folder", "link to nowhere", "link to a file"])
async def test_what_is_not_a_socket_is_left_alone(tmp_path: Path, kind: str) -> None:
    """A path that exists and is not a socket is left alone, and so is a link to it."""
    path = tmp_path / "precious"
    target = tmp_path / "target"
    if kind == "file":
        path.write_text("precious", encoding="utf-8")
    elif kind == "folder":
        path.mkdir()
    else:
        if kind == "link to a file":
            target.write_text("precious", encoding="utf-8")
        path.symlink_to(target)
    with pytest.raises(CannotListen, match="not a socket"):
        await listen([f"unix:{path}"], 0)
    assert path.is_symlink() or path.exists()
    assert kind != "link to a file" or target.read_text(encoding="utf-8") == "precious"


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("no/such/folder/arcp.sock", "No such file"),
        ("x" * 200, "too long"),
        ("a\x00b", "not an address"),
        ("", "not a socket"),
    ],
)
async def test_an_unusable_path_says_why(tmp_path: Path, path: str, complaint: str) -> None:
    """A path that cannot be listened on raises an error with the reason and the host."""
    host = f"unix:{tmp_path / path}" if path else "unix:"
    with pytest.raises(CannotListen, match=complaint) as raised:
        await listen([host], 0)
    assert raised.value.host == host


async def test_a_successor_s_socket_is_not_removed(tmp_path: Path) -> None:
    """A server that closes does not remove the socket of its successor."""
    path = tmp_path / "arcp.sock"
    before = await listen([f"unix:{path}"], 0)
    path.unlink()
    after = await listen([f"unix:{path}"], 0)
    close(before)
    assert path.is_socket()
    close(after)
    close(after)
    assert not path.exists()


async def test_of_many_that_start_at_once_one_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of eight servers that start at once, one listens and the others get an error."""
    monkeypatch.setattr(listening, "LOCK_SECONDS", 60)
    path = tmp_path / "arcp.sock"
    leave_stale(path)
    opened: list[trio.SocketListener] = []
    refused: list[int | None] = []

    def start() -> None:
        try:
            opened.extend(trio.run(listen, [f"unix:{path}"], 0))
        except CannotListen as error:
            refused.append(error.errno)

    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(trio.to_thread.run_sync, start)
    assert len(opened) == 1
    assert refused == [errno.EADDRINUSE] * 7
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    close(opened)
    assert left_in(tmp_path) == []


async def test_a_socket_about_to_listen_is_not_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket that is bound and does not listen yet is not taken for a stale one."""
    path = tmp_path / "arcp.sock"
    monkeypatch.setattr(listening, "LOCK_SECONDS", 0)
    really_listen = socket.socket.listen
    others: list[str] = []

    def listen_late(unix: socket.socket, backlog: int) -> None:
        if not others:
            others.append(start_another(path))
        really_listen(unix, backlog)

    monkeypatch.setattr(socket.socket, "listen", listen_late, raising=False)
    listeners = await listen([f"unix:{path}"], 0)
    assert others == [f"unix:{path}: its folder is locked"]
    assert path.is_socket()
    close(listeners)
    assert not path.exists()


async def test_a_path_means_the_folder_of_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path means the folder of the start, also when the file is removed."""
    monkeypatch.chdir(tmp_path)
    listeners = await listen(["unix:arcp.sock"], 0)
    assert (tmp_path / "arcp.sock").is_socket()
    monkeypatch.chdir("/")
    assert url(listeners[0], encrypted=False) == f"unix:{tmp_path / 'arcp.sock'}"
    close(listeners)
    assert left_in(tmp_path) == []


async def test_several_addresses_are_served_at_once(tmp_path: Path) -> None:
    """A port and a Unix socket lead to the same runtime."""
    path = tmp_path / "arcp.sock"
    async with serving(host=["127.0.0.1", f"unix:{path}", "127.0.0.2"]) as (_, port):
        await echoes_at(path)
        async with client_of(port) as client:
            await assert_echoes(client, "hello")
        await (await trio.open_tcp_stream("127.0.0.2", port)).aclose()


async def test_all_or_nothing_is_listened_on(tmp_path: Path) -> None:
    """If one address cannot be listened on, the others are closed."""
    path = tmp_path / "arcp.sock"
    with pytest.raises(CannotListen):
        await listen([f"unix:{path}", "192.0.2.1"], 0)
    assert not path.exists()
    async with trio.open_nursery() as nursery:
        with pytest.raises(CannotListen):
            await nursery.start(partial(serve, EchoRuntime(nursery), ["127.0.0.1", "no such"], 0))


async def test_a_port_in_use_is_named() -> None:
    """What a program reads has the address and the port."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CannotListen) as caught:
            await listen(["127.0.0.1"], port)
    assert str(caught.value) == f"127.0.0.1 port {port}: Address already in use"


async def test_a_listener_has_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The URL of a listener is complete, whatever folder the client runs in."""
    monkeypatch.chdir(tmp_path)
    listeners = await listen(["127.0.0.1", "unix:arcp.sock"], 0)
    try:
        tcp, unix = listeners
        port = tcp.socket.getsockname()[1]
        assert url(tcp, encrypted=False) == f"ws://127.0.0.1:{port}/arcp"
        assert url(tcp, encrypted=True) == f"wss://127.0.0.1:{port}/arcp"
        assert url(unix, encrypted=True) == f"unix:{tmp_path / 'arcp.sock'}"
        assert is_local(tcp)
        assert is_local(unix)
    finally:
        close(listeners)


class TwoAddresses(trio.abc.HostnameResolver):
    """Resolves a name to two addresses; a rival takes the first port on the second one."""

    def __init__(self, second: str = "127.0.0.2") -> None:
        self.rival: socket.socket | None = None
        self._second = second

    async def getaddrinfo(
        self,
        host: bytes | None,
        port: bytes | str | int | None,
        family: int = 0,
        type: int = 0,  # noqa: A002 - as Trio has it
        proto: int = 0,
        flags: int = 0,
    ) -> list[Any]:
        """Return two addresses, on the loopback interface by default."""
        assert isinstance(port, int)
        if port and self.rival is None:
            self.rival = socket.create_server(("127.0.0.2", port))
        places = [("127.0.0.1", port), (self._second, port)]
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", place) for place in places]

    async def getnameinfo(
        self, sockaddr: tuple[str, int] | tuple[str, int, int, int], flags: int
    ) -> tuple[str, str]:
        """Fail: no test uses this."""
        raise NotImplementedError


@pytest.mark.real_tcp
async def test_a_free_port_is_the_same_on_every_address() -> None:
    """With port 0, all addresses of a name get the same port."""
    resolver = TwoAddresses()
    trio.socket.set_custom_hostname_resolver(resolver)
    with trio.fail_after(60):
        listeners = await listen(["localhost"], 0)
        one, other = [listener.socket.getsockname() for listener in listeners]
        assert (one[0], other[0]) == ("127.0.0.1", "127.0.0.2")
        assert one[1] == other[1] != 0
        for listener in listeners:
            await listener.aclose()
    assert resolver.rival is not None
    with resolver.rival as rival:
        assert rival.getsockname()[1] != one[1]


@pytest.mark.real_tcp
async def test_an_address_that_this_machine_does_not_have_is_passed_over() -> None:
    """`listen` skips addresses of a name that this machine does not have, if it has another."""
    trio.socket.set_custom_hostname_resolver(TwoAddresses("192.0.2.1"))
    (listener,) = await listen(["localhost"], 0)
    assert listener.socket.getsockname()[0] == "127.0.0.1"
    await listener.aclose()
    with pytest.raises(CannotListen, match=r"192\.0\.2\.1: "):
        await listen(["192.0.2.1"], 0)


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("192.0.2.1", False),
        ("::ffff:192.0.2.1", False),
        ("fe80::1%eth0", False),
        ("::", False),
    ],
)
def test_a_peer_on_this_machine_is_known_by_its_address(host: str, *, here: bool) -> None:
    """Only loopback addresses are on this machine, also when mapped into IPv6."""
    assert is_loopback(host) is here
