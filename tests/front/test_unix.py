"""Listening on Unix sockets, and on several things at once."""

from __future__ import annotations

import errno
import os
import socket
import stat
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import trio

from arcp_trio.front import listening
from arcp_trio.front.listening import CannotListen, close, is_local, listen, url
from arcp_trio.front.serve import serve
from arcp_trio.transport import connect
from tests.front.echo import EchoRuntime, assert_echoes, client_of, serving

pytestmark = pytest.mark.real_tcp


async def echoes_at(path: Path) -> None:
    """Hold that an echo is served there."""
    async with connect(await trio.open_unix_socket(path), max_bytes=1000) as client:
        await assert_echoes(client, "hello")


def leave_stale(path: Path) -> None:
    """Leave what a process leaves that was killed."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
        sock.listen()


def start_another(path: Path) -> str:
    """Listen there as another server does; return why that is not possible."""
    with ThreadPoolExecutor() as threads, pytest.raises(CannotListen) as raised:
        threads.submit(trio.run, listen, [f"unix:{path}"], 0).result()
    return str(raised.value)


def left_in(folder: Path) -> list[Path]:
    """What there is in a folder."""
    return list(folder.iterdir())


async def test_a_unix_socket_is_for_its_owner_and_goes_with_the_listener(tmp_path: Path) -> None:
    """Clients on it are served privately; the file is for nobody else, and gone at the end."""
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
    """A socket on which nobody listens is in nobody's way."""
    path = tmp_path / "arcp.sock"
    leave_stale(path)
    async with serving(host=f"unix:{path}"):
        await echoes_at(path)
    assert not path.exists()


async def test_somebody_else_s_socket_stays(tmp_path: Path) -> None:
    """Who listens already goes on, and the second one is told."""
    path = tmp_path / "arcp.sock"
    async with serving(host=f"unix:{path}"):
        with pytest.raises(CannotListen, match="use") as raised:
            await listen([f"unix:{path}"], 0)
        assert raised.value.errno == errno.EADDRINUSE
        await echoes_at(path)
    assert not path.exists()


async def test_a_socket_with_a_full_backlog_is_somebody_s(tmp_path: Path) -> None:
    """Who is too busy to accept is listening all the same."""
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
    """A mistyped path costs no file, not even one that a link points to."""
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
async def test_a_path_that_cannot_be_says_why(tmp_path: Path, path: str, complaint: str) -> None:
    """With the host that was asked for."""
    host = f"unix:{tmp_path / path}" if path else "unix:"
    with pytest.raises(CannotListen, match=complaint) as raised:
        await listen([host], 0)
    assert raised.value.host == host


async def test_a_successor_s_socket_is_not_removed(tmp_path: Path) -> None:
    """Whoever has taken the path meanwhile keeps it."""
    path = tmp_path / "arcp.sock"
    before = await listen([f"unix:{path}"], 0)
    path.unlink()
    after = await listen([f"unix:{path}"], 0)
    close(before)
    assert path.is_socket()
    close(after)
    close(after)
    assert not path.exists()


async def test_of_many_that_start_at_once_one_listens(tmp_path: Path) -> None:
    """The others are told, and none takes the path away from the one, nor at their end."""
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


async def test_who_is_about_to_listen_is_not_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path is had already, nobody answers yet, and still nobody else takes it."""
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
    """The file goes with the listener, wherever the process has moved to meanwhile."""
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
    """If one address cannot be had, the others are given back."""
    path = tmp_path / "arcp.sock"
    with pytest.raises(CannotListen):
        await listen([f"unix:{path}", "192.0.2.1"], 0)
    assert not path.exists()
    async with trio.open_nursery() as nursery:
        with pytest.raises(CannotListen):
            await nursery.start(partial(serve, EchoRuntime(nursery), ["127.0.0.1", "no such"], 0))


async def test_a_listener_has_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one that clients can be given, wherever they run."""
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
