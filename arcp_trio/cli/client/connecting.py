"""How a command gets to its runtime: the address, the token, and what is said if that fails."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import attrs

from arcp_trio import Client, ConnectionFailed, ConnectionRefused, WrongPath, connect
from arcp_trio.addresses import UNIX_PREFIX, WEBSOCKET_PATH, addresses_in, is_this_machine
from arcp_trio.cli import defaults
from arcp_trio.cli.client.options import TOKEN_VARIABLE, URL_VARIABLE, ClientOptions
from arcp_trio.cli.client.signals import Interrupts
from arcp_trio.cli.data_folder import address_path, find_folder, kept_address, token_path
from arcp_trio.cli.errors import PROGRAM, CommandError, ExitCode, reason
from arcp_trio.client.dialing import Dialer, dialer
from arcp_trio.client.errors import TlsFailed
from arcp_trio.plainfile import open_plain
from arcp_trio.transport import HandshakeFailed
from arcp_trio.wire.errors import ArcpError, Unauthenticated

PATIENCE_SECONDS: Final = 10.0
"""How long a command that asks one thing waits for a connection that is lost."""
_MOST_TOKEN_BYTES: Final = 4096
_NOT_READY: Final = (
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)
"""What a proxy answers for a runtime that does not answer it."""


@attrs.frozen(kw_only=True)
class Destination:
    """The runtime to connect to, and the token to show it."""

    url: str
    """Its address, or several with commas."""
    token: str | None = attrs.field(repr=False)
    token_from: str
    """Where the token was found, in words; empty if there is no token."""
    dialer: Dialer
    ended: Path | None = None
    """The address that a `serve` has left in its folder, because it was killed."""

    @property
    def shown_url(self) -> str:
        """The address, or the addresses, without the parts that may be secret."""
        return ", ".join(map(_shown, addresses_in(self.url)))

    def failure(self, error: ConnectionFailed | ArcpError) -> CommandError:
        """Return the failure that says why there is no session, and what to do about it."""
        if isinstance(error, Unauthenticated):
            text = self._unauthenticated()
        elif isinstance(error, ArcpError):
            text = f"{self.shown_url} opens no session: {error.code}: {error.message}"
        elif isinstance(error.__cause__, socket.gaierror | PermissionError):
            text = f"cannot connect to {self.shown_url}: {reason(error.__cause__)}; is --url right?"
        elif isinstance(error, ConnectionRefused):
            ended = "" if self.ended is None else f", and the one in {self.ended} has ended"
            text = (
                f"no runtime listens at {self.shown_url}{ended}; start one with {PROGRAM} serve,"
                f" or say where one is with --url or {URL_VARIABLE}"
            )
        else:
            text = f"cannot connect to {self.shown_url}: {error}; {_advice(error)}"
        return CommandError(text, exit_code=ExitCode.UNREACHABLE)

    def _unauthenticated(self) -> str:
        if self.token is None:
            return (
                f"{self.shown_url} wants a token; give one with --token or {TOKEN_VARIABLE}, or run"
                " the command in the folder in which serve runs on this machine, or below it"
            )
        # As in the options of `serve`, where the token follows its principal.
        named = "=" in self.token.rstrip("=")
        advice = "give what is after the = alone" if named else "give another one"
        return (
            f"{self.shown_url} does not accept the token from {self.token_from};"
            f" {advice} with --token or {TOKEN_VARIABLE}"
        )


def _shown(url: str) -> str:
    if url.startswith(UNIX_PREFIX):
        return url
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _advice(error: ConnectionFailed) -> str:
    if isinstance(error, TlsFailed):
        return "is --url right? --ca names the authorities to trust"
    if isinstance(error, WrongPath):
        return f"look at the path in --url, which is most often {WEBSOCKET_PATH}"
    if isinstance(error.__cause__, HandshakeFailed) and error.__cause__.status in _NOT_READY:
        return "if that is a proxy, its runtimes are not ready: try again"
    return "is it a runtime, and is --url right?"


@asynccontextmanager
async def connected(
    options: ClientOptions, interrupts: Interrupts, *, patience: float | None = PATIENCE_SECONDS
) -> AsyncGenerator[Client, None]:
    """Open a session for the block, and close it even when a signal ends the block.

    Args:
        patience: how many seconds to wait for a connection that is lost; with None, as long as the
            session can be resumed.

    Raises:
        CommandError: there is no session.
    """
    runtime = find_runtime(options, os.environ)
    async with AsyncExitStack() as stack:
        try:
            opening = connect(runtime.dialer, token=runtime.token, reconnect_seconds=patience)
            client = await stack.enter_async_context(opening)
        except (ConnectionFailed, ArcpError) as error:
            raise runtime.failure(error) from error
        with interrupts.leaving():
            yield client


def find_runtime(options: ClientOptions, environment: Mapping[str, str]) -> Destination:
    """Return the runtime that the options, the environment or the defaults name.

    Raises:
        CommandError: the address makes no sense, or the authorities to trust cannot be read.
    """
    ended = None
    folder = find_folder(options.data, environment)
    given = ",".join(options.url) if options.url else environment.get(URL_VARIABLE) or None
    url = kept_address(folder) if given is None else given
    if url is None:
        url = defaults.URL
        ended = address_path(folder) if address_path(folder).exists() else None
    token, token_from = _find_token(options, environment, url, folder)
    try:
        dial = dialer(url, _trust(options.ca))
    except ValueError as error:
        name = "--url" if options.url or given is None else URL_VARIABLE
        raise CommandError(f"{name} is {error}; write it like {defaults.URL}") from error
    return Destination(url=url, token=token, token_from=token_from, dialer=dial, ended=ended)


def _trust(path: str | None) -> ssl.SSLContext | None:
    if path is None:
        return None
    try:
        return ssl.create_default_context(cafile=path)
    except ssl.SSLError as error:
        raise CommandError(f"--ca {path} holds no certificate in PEM form") from error
    except OSError as error:
        raise CommandError(f"cannot read --ca {path}: {reason(error)}") from error


def _find_token(
    options: ClientOptions, environment: Mapping[str, str], url: str, folder: Path
) -> tuple[str | None, str]:
    """Return the token, if there is one, and where it was found."""
    if options.token is not None:
        return options.token, "--token"
    if given := environment.get(TOKEN_VARIABLE):
        return given, TOKEN_VARIABLE
    # The token that `serve` keeps is a secret of this machine.
    path = token_path(folder)
    if all(map(is_on_this_machine, addresses_in(url))) and (token := read_token(path)):
        return token, str(path)
    return None, ""


def is_on_this_machine(url: str) -> bool:
    """Return whether what is sent to this address stays on this machine."""
    if url.startswith(UNIX_PREFIX):
        return True
    try:
        return is_this_machine(urlsplit(url).hostname or "")
    except ValueError:
        return False


def read_token(path: Path) -> str | None:
    """Return the token that `serve` keeps in a file, or None if there is no token in it."""
    try:
        with open_plain(path) as file:
            text = file.read(_MOST_TOKEN_BYTES).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return text or None
