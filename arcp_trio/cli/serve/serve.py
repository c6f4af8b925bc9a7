"""`arcp-trio serve`: a runtime, from its options to its orderly end."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final, TextIO, cast

import trio

from arcp_trio.addresses import UNIX_PREFIX
from arcp_trio.cli import logs
from arcp_trio.cli.data_folder import address_path, kept, pid_path, unusable_store
from arcp_trio.cli.database_url import secret_files
from arcp_trio.cli.errors import CommandError, ExitCode
from arcp_trio.cli.log_writer import log_writer
from arcp_trio.cli.serve import task_tree
from arcp_trio.cli.serve.admission import Admission
from arcp_trio.cli.serve.config import Config, settle
from arcp_trio.cli.serve.doors import open_doors
from arcp_trio.cli.serve.greeting import greet
from arcp_trio.cli.serve.loading import load_agents
from arcp_trio.cli.serve.options import ServeOptions
from arcp_trio.cli.serve.reloading import Reloads, Terminal, read_tokens_again, reload_at
from arcp_trio.cli.serve.stdio import StandardDoor, StandardStreams
from arcp_trio.cli.serve.stopping import LastResort, Stopping
from arcp_trio.cli.serve.storing import make_store
from arcp_trio.cli.serve.tokens import LOCAL, kept_key
from arcp_trio.runtime.access import Policy
from arcp_trio.runtime.job.agents import Agents
from arcp_trio.runtime.runtime import Runtime
from arcp_trio.runtime.workers.confinement import make_undumpable
from arcp_trio.runtime.workers.settings import Workers
from arcp_trio.store.errors import Fenced, StoreError
from arcp_trio.store.interface import Store

_END_SECONDS: Final = 4.0
"""The time from the end of the drain to that of the process; the help promises 5."""
_FENCED_SECONDS: Final = 4.5
"""The time to the end of a node that is gone; the documents promise 5."""
_LEAVE_SECONDS: Final = 2.0
"""The time for what is left after every client has been told; the drain may have ended early."""

SWITCH_SECONDS: Final = 0.0001
"""How long the loop may keep Python's lock from the store's thread.

The thread takes it for each statement: with Python's 5 ms, a busy loop makes a commit of ten
statements take 50 ms. Handing it over takes some microseconds.
"""


def run(given: Mapping[str, object]) -> int:
    """Serve until a signal, and return the exit code."""
    terminal = Terminal()
    _raise_descriptor_limit()
    sys.setswitchinterval(SWITCH_SECONDS)
    config = settle(given)
    options = config.options
    logs.set_up(options.log_level, options.log_format or _log_format(), log_writer)
    # Standard output has the address or the frames and nothing else, whatever an agent prints.
    address_out = sys.stdout
    streams = StandardStreams.take() if options.stdio else None
    with contextlib.redirect_stdout(sys.stderr):
        agents = load_agents(options)
        # Programs and workers must not read this process's memory and environment.
        make_undumpable()
        _leave_alone_what_is_loaded()
        try:
            trio.run(_serve, config, given, agents, terminal, address_out, streams)
        except StoreError as error:
            raise unusable_store(error, in_folder=options.store is None) from error
        except Fenced as error:
            raise CommandError(str(error), exit_code=ExitCode.FENCED) from error
    return ExitCode.SUCCESS


def _leave_alone_what_is_loaded() -> None:
    """Have the garbage collector look only at what is made from now on.

    To look at all modules holds the loop for tens of milliseconds each time.
    """
    gc.collect()
    gc.freeze()


def _log_format() -> str:
    return "short" if sys.stderr.isatty() else "text"


def _raise_descriptor_limit() -> None:
    """Allow the process as many descriptors as it may have: each connection needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # a system may allow less than `hard`
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(
    config: Config,
    given: Mapping[str, object],
    agents: Agents,
    terminal: Terminal,
    address_out: TextIO,
    streams: StandardStreams | None,
) -> None:
    options = config.options
    leave = os._exit if streams is None else streams.leave
    last_resort = LastResort(leave)
    hurry = partial(last_resort.exit_within, options.drain + _END_SECONDS)
    stopping = Stopping(hurry, leave)
    task_tree.show_at(signal.SIGUSR1)
    with contextlib.ExitStack() as opened:
        # Before any file is read: a SIGHUP from here on means that a file has changed since.
        hangups = opened.enter_context(trio.open_signal_receiver(signal.SIGHUP))
        admission = Admission(options)
        doors = (
            await open_doors(options) if streams is None else StandardDoor(streams, stopping.stop)
        )
        opened.callback(doors.close)
        # Before a token is missed: a mistake in the address of the store comes first.
        store = make_store(options, given)
        # After the doors are open: a `serve` that cannot listen leaves no folder and no token.
        admission.complete(options)
        if store.shared is not None:
            logs.name_node(store.shared.name)
        alone = doors.for_this_machine and admission.made is not None
        runtime = _runtime(config, given, admission, store, {LOCAL} if alone else set())
        runtime.when_fenced(partial(last_resort.exit_within, _FENCED_SECONDS, ExitCode.FENCED))
        runtime.before_loss(stopping.may_lose)
        last_resort.runtime = runtime
        runtime.add(agents)
        again = partial(read_tokens_again, given, config, admission, runtime)
        reloads: Reloads = {"tokens": again, **doors.reloads}
        async with runtime:
            async with trio.open_nursery() as nursery:
                await nursery.start(partial(doors.serve, runtime), name="listeners")
                nursery.start_soon(
                    _mind_hangups, hangups, terminal, reloads, stopping, name="hangups"
                )
                if options.folder is not None:
                    opened.enter_context(kept(pid_path(options.folder), str(os.getpid())))
                    if doors.local_url is not None:
                        opened.enter_context(kept(address_path(options.folder), doors.local_url))
                if doors.url is not None:
                    print(f"listening on {doors.url}", file=address_out, flush=True)
                admission.show()
                if doors.local_url is not None:
                    greet(options, doors.local_url, admission.made, agents.names())
                await stopping.wait(runtime, options.drain)
                # Whatever there is now stays until the process ends. To search it for garbage would
                # take half of the time in which thousands of clients are to be told.
                gc.freeze()
                # The listeners stay open meanwhile: clients that connect are told of the drain,
                # and probes see that the process is alive.
                await runtime.shutdown(drain=options.drain)
                nursery.cancel_scope.cancel(reason="a signal asks for the end")
            last_resort.exit_within(_LEAVE_SECONDS)
        abandoned = runtime.abandoned_threads
    if abandoned:
        last_resort.leave_now()


def _runtime(
    config: Config,
    given: Mapping[str, object],
    admission: Admission,
    store: Store,
    developers: AbstractSet[str],
) -> Runtime:
    options = config.options
    return Runtime(
        auth=admission,
        store=store,
        limits=config.limits,
        operators=options.operator,
        policy=Policy(
            observers=options.observer,
            approvers=options.approver,
            developers=developers,
            allow_stop=not options.no_stop,
            ceilings=config.ceilings,
            reserved_paths=_reserved_paths(options, given),
        ),
        workers=_workers(options),
        # Made when it is first needed: most runtimes make no short-lived tokens.
        signing_key=None if options.folder is None else partial(kept_key, options.folder),
    )


def _reserved_paths(options: ServeOptions, given: Mapping[str, object]) -> frozenset[str]:
    """Return what no lease opens: where secrets are, and by which clients come in."""
    keys = options.jwt_keys
    named = [
        options.folder,
        cast("str | None", given.get("config")),
        options.token_file,
        options.tls_key,
        None if keys is None or "://" in keys else keys,
        *(host.removeprefix(UNIX_PREFIX) for host in options.host if host.startswith(UNIX_PREFIX)),
        *([] if options.store is None else secret_files(options.store)),
    ]
    return frozenset(path for path in named if path is not None)


def _workers(options: ServeOptions) -> Workers:
    try:
        if options.workers is None:
            return Workers(user=options.worker_user)
        return Workers(count=options.workers, user=options.worker_user)
    except ValueError as error:
        raise CommandError(f"--worker-user: {error}") from error


async def _mind_hangups(
    hangups: AsyncIterator[int], terminal: Terminal, reloads: Reloads, stopping: Stopping
) -> None:
    await reload_at(hangups, terminal, reloads)
    stopping.stop()
