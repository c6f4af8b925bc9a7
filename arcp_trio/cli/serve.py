"""`arcp-trio serve`: a runtime on a port, from its options to its orderly end."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Literal, TextIO, cast

import trio

import arcp_trio
from arcp_trio.cli.agents import collect
from arcp_trio.cli.config import Config, settle
from arcp_trio.cli.demo import demo_agents
from arcp_trio.cli.errors import CommandError, reason
from arcp_trio.cli.options import ServeOptions
from arcp_trio.cli.stopping import LastResort, on_signal
from arcp_trio.cli.storing import cannot_use, store_path
from arcp_trio.cli.tokens import LOCAL, Tokens, gather
from arcp_trio.store.errors import StoreError
from arcp_trio.store.interface import Store

_END_SECONDS: Final = 4.5
"""From the end of the drain to that of the process; 5 are promised."""
_LEAVE_SECONDS: Final = 2.0
"""For what is left once every client has been told; the drain may have ended early."""

_log = logging.getLogger(__name__)


def run(given: Mapping[str, object]) -> int:
    """Serve until a signal; return the exit code."""
    config = settle(given)
    options = config.options
    logging.basicConfig(
        stream=sys.stderr,
        level=options.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    # Standard output carries the address and nothing else, whatever an agent prints.
    address_out = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        runtime, tokens = _assemble(config)
        announce = partial(_announce, tokens, address_out)
        try:
            failure = trio.run(_serve, runtime, options, announce)
        except StoreError as error:
            raise cannot_use(error) from error
    if failure is not None:
        raise failure
    return 0


def _assemble(config: Config) -> tuple[arcp_trio.Runtime, Tokens]:
    registries = collect(config.options)
    tokens = gather(config.options, os.environ)
    runtime = arcp_trio.Runtime(
        auth=arcp_trio.StaticTokens(tokens.principals),
        store=_store(config.options),
        limits=config.limits,
        operators=config.options.operator,
    )
    try:
        for registry in registries:
            runtime.add(registry)
    except ValueError as error:
        raise CommandError(f"cannot serve these agents together: {error}") from error
    if not config.options.no_demo_agents:
        runtime.add(demo_agents(taken=runtime.agents.names()))
    return runtime, tokens


def _store(options: ServeOptions) -> Store:
    if options.memory:
        return arcp_trio.MemoryStore()
    return arcp_trio.SqliteStore(
        store_path(options.data),
        synchronous=cast('Literal["FULL", "NORMAL", "OFF"]', options.synchronous.upper()),
    )


async def _serve(
    runtime: arcp_trio.Runtime,
    options: ServeOptions,
    announce: Callable[[trio.SocketListener], None],
) -> CommandError | None:
    """Serve until a signal, or return why it cannot: raised, it would come wrapped in groups."""
    last_resort = LastResort()
    stop = on_signal(lambda: last_resort.exit_within(options.drain + _END_SECONDS))
    async with runtime:
        failure = await _listen(runtime, options, announce, stop)
        if failure is None:
            _log.info("stopping; jobs may go on for %g s", options.drain)
            await runtime.shutdown(drain=options.drain)
            last_resort.exit_within(_LEAVE_SECONDS)
    return failure


async def _listen(
    runtime: arcp_trio.Runtime,
    options: ServeOptions,
    announce: Callable[[trio.SocketListener], None],
    stop: trio.Event,
) -> CommandError | None:
    failure: CommandError | None = None
    async with trio.open_nursery() as nursery:
        try:
            listeners: list[trio.SocketListener] = await nursery.start(
                partial(arcp_trio.serve, runtime, options.host, options.port), name="listener"
            )
        except (OSError, ValueError) as error:
            failure = _cannot_listen(options, error)
        else:
            announce(listeners[0])
            await stop.wait()
            # No more connections; the open ones belong to the runtime and see the drain.
            nursery.cancel_scope.cancel()
    return failure


def _announce(tokens: Tokens, address_out: TextIO, listener: trio.SocketListener) -> None:
    if tokens.made is not None:
        print(f"token for {LOCAL}: {tokens.made}", file=sys.stderr, flush=True)
    host, port = listener.socket.getsockname()[:2]
    print(f"listening on ws://{_in_url(host)}:{port}/arcp", file=address_out, flush=True)


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _cannot_listen(options: ServeOptions, error: OSError | ValueError) -> CommandError:
    if not isinstance(error, OSError):  # a text that cannot be a name at all
        return CommandError(f"{options.host!r} is not an address or a name; choose another --host")
    advice = {
        errno.EADDRINUSE: "choose another --port (0 picks a free one), or stop what has it",
        errno.EACCES: "choose a --port above 1023",
    }.get(error.errno or 0, "choose another --host")
    where = f"{_in_url(options.host)}:{options.port}"
    return CommandError(f"cannot listen on {where}: {reason(error)}; {advice}")
