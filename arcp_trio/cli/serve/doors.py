"""Where `serve` listens, and what may connect there, from its options."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path

import attrs
import trio

from arcp_trio.addresses import UNIX_PREFIX
from arcp_trio.cli.errors import CommandError, reason
from arcp_trio.cli.serve.options import ServeOptions
from arcp_trio.front.console import Console
from arcp_trio.front.listening import CannotListen, close, is_local, is_unix, listen, url
from arcp_trio.front.origins import Origins
from arcp_trio.front.serve import serve_on
from arcp_trio.front.tls import Tls, UnusableCertificate
from arcp_trio.runtime.runtime import Runtime


@attrs.frozen(kw_only=True)
class Doors:
    """The listening sockets of a runtime, and who may connect to them."""

    listeners: list[trio.SocketListener]
    tls: Tls | None
    origins: Origins
    console: Console | None

    @property
    def url(self) -> str:
        """The URL for clients; if there are several sockets, the one of the first."""
        return url(self.listeners[0], encrypted=self.tls is not None)

    @property
    def local_url(self) -> str:
        """The URL for clients on this machine."""
        listener = next(filter(is_local, self.listeners), self.listeners[0])
        found = url(listener, encrypted=self.tls is not None and not is_unix(listener))
        return found.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")

    @property
    def for_this_machine(self) -> bool:
        """Whether only this machine can connect."""
        return all(map(is_local, self.listeners))

    @property
    def reloads(self) -> dict[str, Callable[[], None]]:
        """What can be read again while connections are open, by its name in the log."""
        return {} if self.tls is None else {"certificates": partial(_reload, self.tls)}

    async def serve(  # noqa: ASYNC128 - `serve_on` calls task_status.started
        self,
        runtime: Runtime,
        *,
        task_status: trio.TaskStatus[object] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Accept connections for `runtime` until cancelled, or until the runtime ends."""
        await serve_on(
            self.listeners,
            runtime,
            over=runtime.over,
            ssl_context=None if self.tls is None else self.tls.current,
            origins=self.origins,
            console=self.console,
            task_status=task_status,
        )

    def close(self) -> None:
        """Stop listening; a `serve` that ends does this, too."""
        close(self.listeners)


async def open_doors(options: ServeOptions) -> Doors:
    """Listen as the options say.

    Raises:
        CommandError: it is not possible to listen there, or not safe.
    """
    tls, origins = _tls(options), _origins(options)
    try:
        listeners = await listen(options.host, options.port)
    except CannotListen as error:
        raise _cannot_listen(options, error) from error
    exposed = [each.socket.getsockname()[0] for each in listeners if not is_local(each)]
    if exposed and tls is None and not options.insecure:
        close(listeners)
        raise _exposed(exposed[0])
    console = None if options.no_console else Console.load()
    return Doors(listeners=listeners, tls=tls, origins=origins, console=console)


def _tls(options: ServeOptions) -> Tls | None:
    certificate, key = options.tls_cert, options.tls_key
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        given, missing = ("cert", "key") if key is None else ("key", "cert")
        raise CommandError(f"--tls-{given} is of no use alone; add --tls-{missing}")
    try:
        return Tls(Path(certificate), Path(key))
    except UnusableCertificate as error:
        raise CommandError(f"{error}; see --tls-cert and --tls-key") from error


def _reload(tls: Tls) -> None:
    try:
        tls.reload()
    except UnusableCertificate as error:
        raise CommandError(str(error)) from error


def _origins(options: ServeOptions) -> Origins:
    try:
        return Origins(options.allow_origin)
    except ValueError as error:
        raise CommandError(f"--allow-origin: {error}") from error


def _exposed(address: str) -> CommandError:
    return CommandError(
        f"other machines can reach {address}, and tokens and events would cross the network"
        " unencrypted; add --tls-cert and --tls-key, or --insecure if something else encrypts"
    )


def _cannot_listen(options: ServeOptions, error: CannotListen) -> CommandError:
    host = error.host
    if host.startswith(UNIX_PREFIX):
        where, advice = host, "choose another --host"
        if error.errno == errno.EADDRINUSE:
            advice = "choose another --host, or stop what uses it"
    else:
        where = f"{f'[{host}]' if ':' in host else host}:{options.port}"
        advice = {
            errno.EADDRINUSE: "choose another --port (0 picks a free one), or stop what uses it",
            errno.EACCES: "choose a --port above 1023",
        }.get(error.errno or 0, "choose another --host")
    return CommandError(f"cannot listen on {where}: {reason(error)}; {advice}")
