"""How a client command gets to its runtime: the address, the token, and what to say if not."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import attrs

from arcp_trio.addresses import UNIX_PREFIX, is_this_machine
from arcp_trio.cli.client.options import DEFAULT_URL, TOKEN_VARIABLE, URL_VARIABLE, ClientOptions
from arcp_trio.cli.client.runner import Interrupts
from arcp_trio.cli.commands import PROGRAM
from arcp_trio.cli.errors import UNREACHABLE, CommandError, reason
from arcp_trio.client import Client, ConnectionFailed, ConnectionRefused, WrongPath, connect
from arcp_trio.client.dialing import Dialer, dialer
from arcp_trio.client.errors import TlsFailed
from arcp_trio.plainfile import open_plain
from arcp_trio.wire.errors import ArcpError, Unauthenticated

PATIENCE_SECONDS: Final = 10.0
"""For what is asked and answered at once."""
_MOST_TOKEN_BYTES: Final = 4096


@attrs.frozen(kw_only=True)
class Reach:
    """Where the runtime is, and who asks."""

    url: str
    token: str | None = attrs.field(repr=False)
    token_from: str
    """Where the token was found, in words; empty if there is none."""
    dialer: Dialer

    @property
    def shown_url(self) -> str:
        """The address, without what may be a secret in it."""
        if self.url.startswith(UNIX_PREFIX):
            return self.url
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def failure(self, error: ConnectionFailed | ArcpError) -> CommandError:
        """Say why there is no session, and what to do about it."""
        if isinstance(error, Unauthenticated):
            text = self._unauthenticated()
        elif isinstance(error, ArcpError):
            text = f"{self.shown_url} opens no session: {error.code}: {error.message}"
        elif isinstance(error.__cause__, socket.gaierror | PermissionError):
            text = f"cannot connect to {self.shown_url}: {reason(error.__cause__)}; is --url right?"
        elif isinstance(error, ConnectionRefused):
            text = (
                f"nobody answers at {self.shown_url}; start a runtime with {PROGRAM} serve, or say"
                f" where one is with --url or {URL_VARIABLE}"
            )
        else:
            text = f"cannot connect to {self.shown_url}: {error}; {self._advice(error)}"
        return CommandError(text, exit_code=UNREACHABLE)

    def _unauthenticated(self) -> str:
        if self.token is None:
            return (
                f"{self.shown_url} wants a token; give one with --token or {TOKEN_VARIABLE}, or run"
                " this in the folder where serve runs on this machine"
            )
        return (
            f"{self.shown_url} does not take the token of {self.token_from};"
            f" give another one with --token or {TOKEN_VARIABLE}"
        )

    def _advice(self, error: ConnectionFailed) -> str:
        if isinstance(error, TlsFailed):
            return "is --url right? --ca names whom to trust"
        if isinstance(error, WrongPath):
            return "look at the path in --url, which is most often /arcp"
        return "is it a runtime, and is --url right?"


def reach(options: ClientOptions, environment: Mapping[str, str]) -> Reach:
    """Settle where to connect to, and as whom."""
    url = options.url or environment.get(URL_VARIABLE) or DEFAULT_URL
    token, token_from = _token(options, environment, url)
    try:
        dial = dialer(url, _trust(options.ca))
    except ValueError as error:
        raise CommandError(f"--url is {error}; write it like {DEFAULT_URL}") from error
    return Reach(url=url, token=token, token_from=token_from, dialer=dial)


def _trust(path: str | None) -> ssl.SSLContext | None:
    if path is None:
        return None
    try:
        return ssl.create_default_context(cafile=path)
    except ssl.SSLError as error:
        raise CommandError(f"--ca {path} holds no certificate in PEM form") from error
    except OSError as error:
        raise CommandError(f"cannot read --ca {path}: {reason(error)}") from error


def _token(
    options: ClientOptions, environment: Mapping[str, str], url: str
) -> tuple[str | None, str]:
    if options.token is not None:
        return options.token, "--token"
    if given := environment.get(TOKEN_VARIABLE):
        return given, TOKEN_VARIABLE
    # The token of a runtime here is nobody else's business.
    if is_on_this_machine(url) and (kept := kept_token(Path(options.data) / "token")):
        return kept, str(Path(options.data) / "token")
    return None, ""


def is_on_this_machine(url: str) -> bool:
    """Whether what is sent there stays here."""
    if url.startswith(UNIX_PREFIX):
        return True
    try:
        return is_this_machine(urlsplit(url).hostname or "")
    except ValueError:
        return False


def kept_token(path: Path) -> str | None:
    """Read the token that `serve` keeps; None if there is nothing of the kind."""
    try:
        with open_plain(path) as file:
            text = file.read(_MOST_TOKEN_BYTES).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return text or None


@asynccontextmanager
async def connected(
    options: ClientOptions, interrupts: Interrupts, *, patience: float | None = PATIENCE_SECONDS
) -> AsyncGenerator[Client, None]:
    """Have a session for the block, and close it also if a signal ends the block.

    A connection that is lost is waited for with this patience, or, with None, as long as the
    session can be resumed.

    Raises:
        CommandError: there is no session.
    """
    found = reach(options, os.environ)
    async with AsyncExitStack() as stack:
        try:
            opening = connect(found.dialer, token=found.token, reconnect_seconds=patience)
            client = await stack.enter_async_context(opening)
        except (ConnectionFailed, ArcpError) as error:
            raise found.failure(error) from error
        with interrupts.leaving():
            yield client
