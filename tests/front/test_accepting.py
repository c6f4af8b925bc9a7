"""The accept loop: errors that pass, errors that last, and its end."""

from __future__ import annotations

import errno
import logging
import os
import resource
import socket
from collections.abc import Generator
from contextlib import contextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import Runtime, StaticTokens
from arcp_trio.front.listening import CannotListen
from arcp_trio.front.serve import COMPLAINT_SECONDS, serve
from tests.front.echo import EchoRuntime, assert_echoes, client_of, serving
from tests.transport.peers import request

ACCEPT_FAILED = r"^ws://127\.0\.0\.[12]:\d+/arcp: no longer accepts connections: "


@pytest.mark.real_tcp
async def test_running_out_of_file_descriptors_is_survived(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A lack of file descriptors is logged, and accepting goes on once there are some."""
    warned = trio.Event()

    class Watch(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            assert "cannot accept" in record.getMessage()
            warned.set()

    watch = Watch()
    logging.getLogger("arcp_trio.front.serve").addHandler(watch)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        async with serving() as (_runtime, port):
            with socket.socket() as sock:
                free = os.dup(0)
                os.close(free)
                resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
                sock.connect(("127.0.0.1", port))  # as far as the backlog
                await warned.wait()
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                sock.sendall(request())
                sock.settimeout(0)
                await trio.lowlevel.wait_readable(sock)
                assert sock.recv(100).startswith(b"HTTP/1.1 101 ")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        logging.getLogger("arcp_trio.front.serve").removeHandler(watch)


@pytest.mark.real_tcp
async def test_a_lasting_lack_of_file_descriptors_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    """A lasting lack of file descriptors is logged once in ten seconds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with serving() as (_runtime, port):
        with socket.socket() as sock:
            free = os.dup(0)
            os.close(free)
            resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
            try:
                sock.connect(("127.0.0.1", port))
                await trio.sleep(2.5 * COMPLAINT_SECONDS)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    told = [r for r in caplog.records if r.getMessage() == "cannot accept connections"]
    assert len(told) == 3


@pytest.mark.real_tcp
@pytest.mark.parametrize(
    "number",
    [
        *(errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM),
        *(errno.ECONNABORTED, errno.EPROTO, errno.ENETDOWN, errno.EHOSTUNREACH, errno.EPERM),
    ],
    ids=errno.errorcode.get,
)
async def test_errors_of_accept_that_pass_are_survived(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lack of memory or descriptors, and the error of one connection, end no listener."""
    failures = [OSError(number, os.strerror(number))] * 2
    with fails_to_accept(failures, monkeypatch):
        async with serving() as (_runtime, port), client_of(port) as client:
            await assert_echoes(client, "after all")
            assert failures == []


@pytest.mark.real_tcp
@pytest.mark.parametrize(
    "number", [errno.EBADF, errno.ENOTSOCK, errno.EINVAL, errno.EFAULT], ids=errno.errorcode.get
)
async def test_an_error_of_accept_that_lasts_ends_serve(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`serve` raises it with the address that failed, and closes its other listeners."""
    opened: list[trio.SocketListener] = []
    hosts = ["127.0.0.1", "127.0.0.2"]
    failures = [OSError(number, os.strerror(number))]
    with trio.fail_after(10), fails_to_accept(failures, monkeypatch):
        async with trio.open_nursery() as nursery:

            async def fail(  # noqa: ASYNC128 - passes it on
                task_status: trio.TaskStatus[list[trio.SocketListener]],
            ) -> None:
                with pytest.raises(CannotListen, match=ACCEPT_FAILED) as raised:
                    await serve(EchoRuntime(nursery), hosts, 0, task_status=task_status)
                assert raised.value.errno in (number, errno.EBADF)
                assert [listener.socket.fileno() for listener in opened] == [-1, -1]

            opened += await nursery.start(fail)


@pytest.mark.real_tcp
@pytest.mark.parametrize("how", ["shut down", "closed"])
async def test_a_listener_that_is_taken_away_ends_serve(how: str) -> None:
    """`serve` raises an error when a listener was closed or shut down by other code."""
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:

            async def fail(  # noqa: ASYNC128 - passes it on
                task_status: trio.TaskStatus[list[trio.SocketListener]],
            ) -> None:
                with pytest.raises(CannotListen, match=ACCEPT_FAILED):
                    await serve(EchoRuntime(nursery), "127.0.0.1", 0, task_status=task_status)

            (listener,) = await nursery.start(fail)
            await wait_all_tasks_blocked()
            if how == "closed":
                await listener.aclose()
            else:
                listener.socket.shutdown(socket.SHUT_RDWR)


@contextmanager
def fails_to_accept(failures: list[OSError], monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Have the next calls of the system's accept raise these errors, one each."""
    with trio.socket.socket() as example:
        kind = type(example)
    really_accept = kind.accept

    async def accept(sock: trio.socket.SocketType) -> object:
        if failures:
            raise failures.pop()
        return await really_accept(sock)

    with monkeypatch.context() as patch:
        patch.setattr(kind, "accept", accept)
        yield


@pytest.mark.real_tcp
async def test_serving_ends_with_its_runtime() -> None:
    """The listeners close when the runtime is over, even if `serve` would go on."""
    runtime = Runtime(auth=StaticTokens({}))
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery, runtime:
            listeners = await nursery.start(serve, runtime, "127.0.0.1", 0)
            address = listeners[0].socket.getsockname()
            await (await trio.open_tcp_stream(*address)).aclose()
        with pytest.raises(OSError, match="connect"):
            await trio.open_tcp_stream(*address)


@pytest.mark.real_tcp
async def test_a_connection_that_the_runtime_does_not_take_is_closed() -> None:
    """A runtime that takes no connection ends `serve`, and the accepted connection is closed."""
    with trio.fail_after(60):
        async with trio.open_nursery() as closed:
            runtime = EchoRuntime(closed)
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(refused_by_the_runtime, runtime)
            address = listeners[0].socket.getsockname()
            async with await trio.open_tcp_stream(*address) as stream:
                assert await stream.receive_some() == b""
        with pytest.raises(OSError, match="connect"):
            await trio.open_tcp_stream(*address)


async def refused_by_the_runtime(  # noqa: ASYNC128 - passes it on
    runtime: EchoRuntime, *, task_status: trio.TaskStatus[list[trio.SocketListener]]
) -> None:
    """Serve, and expect that the runtime takes no connection."""
    with pytest.raises(RuntimeError, match="closed to new arrivals"):
        await serve(runtime, "127.0.0.1", 0, task_status=task_status)
