"""`arcp-trio serve`: a runtime on a port, from its options to its orderly end."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Final, Literal, TextIO, cast

import trio

import arcp_trio
from arcp_trio.cli import logs
from arcp_trio.cli.errors import CommandError
from arcp_trio.cli.log_writer import beside
from arcp_trio.cli.options import ServeOptions
from arcp_trio.cli.serve import task_tree
from arcp_trio.cli.serve.admission import Admission
from arcp_trio.cli.serve.config import Config, settle
from arcp_trio.cli.serve.demo import demo_agents
from arcp_trio.cli.serve.doors import open_doors
from arcp_trio.cli.serve.loading import collect
from arcp_trio.cli.serve.reloading import Reloads, Terminal, read_tokens_again, reload_at
from arcp_trio.cli.serve.stdio import StandardDoor, StandardStreams
from arcp_trio.cli.serve.stopping import LastResort, on_signal
from arcp_trio.cli.storing import cannot_use, close_to_others, store_path
from arcp_trio.runtime.access import Policy
from arcp_trio.store.errors import StoreError
from arcp_trio.store.interface import Store

_END_SECONDS: Final = 4.0
"""From the end of the drain to that of the process; 5 are promised."""
_LEAVE_SECONDS: Final = 2.0
"""For what is left once every client has been told; the drain may have ended early."""


def run(given: Mapping[str, object]) -> int:
    """Serve until a signal; return the exit code."""
    terminal = Terminal()
    _have_descriptors()
    config = settle(given)
    options = config.options
    logs.set_up(options.log_level, options.log_format, beside)
    # Standard output carries the address or the frames and nothing else, whatever an agent prints.
    address_out = sys.stdout
    streams = StandardStreams.take() if options.stdio else None
    with contextlib.redirect_stdout(sys.stderr):
        agents = _agents(options)
        try:
            trio.run(_serve, config, given, agents, terminal, address_out, streams)
        except StoreError as error:
            raise cannot_use(error) from error
    return 0


def _have_descriptors() -> None:
    """Take as many files as the system allows: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # a system may allow less than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _agents(options: ServeOptions) -> arcp_trio.Agents:
    agents = arcp_trio.Agents()
    try:
        for registry in collect(options):
            agents.add(registry)
    except ValueError as error:
        raise CommandError(f"cannot serve these agents together: {error}") from error
    if not options.no_demo_agents:
        agents.add(demo_agents(taken=agents.names()))
    return agents


def _runtime(config: Config, admission: Admission) -> arcp_trio.Runtime:
    return arcp_trio.Runtime(
        auth=admission,
        store=_store(config.options),
        limits=config.limits,
        operators=config.options.operator,
        policy=Policy(observers=config.options.observer),
    )


def _store(options: ServeOptions) -> Store:
    if options.memory:
        return arcp_trio.MemoryStore()
    close_to_others(options.data)
    return arcp_trio.SqliteStore(
        store_path(options.data),
        synchronous=cast('Literal["FULL", "NORMAL", "OFF"]', options.synchronous.upper()),
    )


async def _serve(
    config: Config,
    given: Mapping[str, object],
    agents: arcp_trio.Agents,
    terminal: Terminal,
    address_out: TextIO,
    streams: StandardStreams | None,
) -> None:
    options = config.options
    leave = os._exit if streams is None else streams.leave
    last_resort = LastResort(leave)
    hurry = partial(last_resort.exit_within, options.drain + _END_SECONDS)
    stop = on_signal(hurry, leave)
    task_tree.show_at(signal.SIGUSR1)
    with contextlib.ExitStack() as opened:
        # Before anything is read that could be replaced from then on.
        hangups = opened.enter_context(trio.open_signal_receiver(signal.SIGHUP))
        admission = Admission(options)
        doors = await open_doors(options) if streams is None else StandardDoor(streams, stop.set)
        opened.callback(doors.close)
        # Not before there is something to listen on: what cannot start leaves no folder behind.
        admission.make_token(options)
        again = partial(read_tokens_again, given, config, admission)
        reloads: Reloads = {"tokens": again, **doors.reloads}
        runtime = _runtime(config, admission)
        runtime.add(agents)
        async with runtime:
            async with trio.open_nursery() as nursery:
                await nursery.start(partial(doors.serve, runtime), name="listeners")
                nursery.start_soon(_mind_hangups, hangups, terminal, reloads, stop, name="hangups")
                admission.show()
                if doors.url is not None:
                    print(f"listening on {doors.url}", file=address_out, flush=True)
                await stop.wait()
                hurry()
                # Who comes during the drain is told so, and probes see that it is alive.
                await runtime.shutdown(drain=options.drain)
                nursery.cancel_scope.cancel(reason="a signal asks for the end")
            last_resort.exit_within(_LEAVE_SECONDS)


async def _mind_hangups(
    hangups: AsyncIterator[int], terminal: Terminal, reloads: Reloads, stop: trio.Event
) -> None:
    await reload_at(hangups, terminal, reloads)
    stop.set()
