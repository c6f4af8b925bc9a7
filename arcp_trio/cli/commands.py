"""The commands: one table for the parser, the help, and the module that runs each command."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Final, cast

import attrs

from arcp_trio.cli import defaults, notes
from arcp_trio.cli.client import options as client
from arcp_trio.cli.errors import PROGRAM
from arcp_trio.cli.options import Argument, Option, arguments_of, options_of
from arcp_trio.cli.replay_options import ReplayOptions
from arcp_trio.cli.serve import options as serve
from arcp_trio.cli.store_options import HomesOptions, NodesOptions, StoreOptions


@attrs.frozen(kw_only=True)
class ConsoleCommand:
    """One command."""

    name: str
    module: str
    """The module with the command's function `run`; it is imported only to run the command."""
    help: str
    description: str
    example: str
    notes: str
    declared: type[attrs.AttrsInstance]
    """The class whose fields declare the command's arguments and options."""
    values: Callable[..., object] = attrs.field(
        default=attrs.Factory(lambda command: command.declared, takes_self=True)
    )
    """What makes the parameter of `run` from the values that are given: most often the class."""
    exclusive: tuple[str, ...] = ()
    """The names of options of which at most one may be given."""

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """What the command line gives by its place."""
        return arguments_of(self.declared)

    @property
    def options(self) -> tuple[Option, ...]:
        """What the command line gives after a flag."""
        return options_of(self.declared)

    def run(self, given: Mapping[str, object]) -> int:
        """Run the command with the values that are given, and return its exit code."""
        run = cast("Callable[[object], int]", importlib.import_module(self.module).run)
        return run(self.values(**given))


COMMANDS: Final = (
    ConsoleCommand(
        name="serve",
        module="arcp_trio.cli.serve.serve",
        help="run a runtime",
        description="Run a runtime until SIGTERM or Ctrl-C.",
        example=f"{PROGRAM} serve --port 8080",
        notes=notes.SERVE,
        declared=serve.CommandLine,
        values=dict,
        exclusive=serve.KEPT_IN,
    ),
    ConsoleCommand(
        name="submit",
        module="arcp_trio.cli.client.submit",
        help="submit a job and show it until it ends",
        description="Submit a job, show its events, and print its result.",
        example=f"""{PROGRAM} submit countdown --input '{{"n": 3}}'""",
        notes=notes.SUBMIT,
        declared=client.SubmitOptions,
    ),
    ConsoleCommand(
        name="watch",
        module="arcp_trio.cli.client.watch",
        help="show a job that was submitted elsewhere until it ends",
        description="Show a job from its first event to its end.",
        example=f"{PROGRAM} watch job_01JABC",
        notes=notes.WATCH,
        declared=client.WatchOptions,
    ),
    ConsoleCommand(
        name="jobs",
        module="arcp_trio.cli.client.jobs",
        help="list jobs",
        description="List the jobs that may be observed, newest first, each above its children.",
        example=f"{PROGRAM} jobs --status running",
        notes=notes.LISTING.format(
            '"job_id", "agent", "status", "created_at", "lease", "parent_job_id", "principal",'
            ' "node",\n"started_at", "finished_at", "error" ("code" and "message"), "budget",'
            ' "spent", "waiting",\n"last_event" and "progress" ("current" and "total"); what the'
            " runtime does not tell is null"
        ),
        declared=client.JobsOptions,
    ),
    ConsoleCommand(
        name="answer",
        module="arcp_trio.cli.client.answer",
        help="answer a question of a job",
        description="Answer what a job of one's own asks, from anywhere; an approver, any job.",
        example=f"{PROGRAM} answer job_01JABC yes",
        notes=f"{notes.ANSWER}\n{notes.CONNECTION}",
        declared=client.AnswerOptions,
    ),
    ConsoleCommand(
        name="cancel",
        module="arcp_trio.cli.client.cancel",
        help="cancel a job",
        description="Cancel a job of one's own, from anywhere; an operator may cancel any job.",
        example=f'{PROGRAM} cancel job_01JABC --reason "wrong input"',
        notes=f"{notes.CANCEL}\n{notes.CONNECTION}",
        declared=client.CancelOptions,
    ),
    ConsoleCommand(
        name="agents",
        module="arcp_trio.cli.client.agents",
        help="list the agents of a runtime",
        description="List the agents of a runtime with their versions, or show one of them.",
        example=f"{PROGRAM} agents --url {defaults.URL}",
        notes=notes.LISTING.format(
            '"name", "versions", "default", "durable" and\n"input_schemas" (what inputs must be,'
            " in JSON Schema, by version)"
        ),
        declared=client.AgentsOptions,
    ),
    ConsoleCommand(
        name="console",
        module="arcp_trio.cli.client.console",
        help="open the page of a runtime in the browser",
        description="Open the console, the page on which one sees jobs, in the browser.",
        example=f"{PROGRAM} console",
        notes=notes.CONSOLE,
        declared=client.ConsoleOptions,
    ),
    ConsoleCommand(
        name="token",
        module="arcp_trio.cli.client.token",
        help="print a short-lived token for a page that shows jobs",
        description="Print a token with which one can look at jobs for a while, and do no more.",
        example=f"{PROGRAM} token job_01JABC --expires-in 10m",
        notes=notes.TOKEN,
        declared=client.TokenOptions,
    ),
    ConsoleCommand(
        name="ping",
        module="arcp_trio.cli.client.ping",
        help="check whether a runtime answers, and how fast",
        description="Open a session and measure how long the runtime takes to answer a ping.",
        example=f"{PROGRAM} ping --count 10",
        notes=notes.PING,
        declared=client.PingOptions,
    ),
    ConsoleCommand(
        name="bench",
        module="arcp_trio.cli.client.bench",
        help="measure for a few seconds how fast a runtime is",
        description="Measure round trips and events per second with the demo agents.",
        example=f"{PROGRAM} bench --json",
        notes=notes.LISTING.format('"figure", "value" and "unit"'),
        declared=client.OutputOptions,
    ),
    ConsoleCommand(
        name="stop",
        module="arcp_trio.cli.stop",
        help="stop the runtime of a folder",
        description="End the serve that uses a folder, in order, and wait until it has ended.",
        example=f"{PROGRAM} stop",
        notes=notes.STOP,
        declared=serve.StopOptions,
    ),
    ConsoleCommand(
        name="replay",
        module="arcp_trio.cli.replay",
        help="print the sessions in the store of a stopped runtime, or the frames of one session",
        description="Print what is in the store of a runtime that is not running, or of nodes.",
        example=f"{PROGRAM} replay --data {defaults.DATA}",
        notes=notes.REPLAY,
        declared=ReplayOptions,
    ),
    ConsoleCommand(
        name="store",
        module="arcp_trio.cli.store",
        help="make, check or migrate a store in PostgreSQL",
        description="Administer a store in PostgreSQL, which several runtimes can share.",
        example=f"{PROGRAM} store init --store postgresql://owner@db/arcp --role arcp",
        notes=notes.STORE,
        declared=StoreOptions,
    ),
    ConsoleCommand(
        name="nodes",
        module="arcp_trio.cli.nodes",
        help="list the runtimes that share a store in PostgreSQL",
        description="List the nodes: the runtimes that share a store in PostgreSQL.",
        example=f"{PROGRAM} nodes --store postgresql://arcp@db/arcp",
        notes=notes.NODES,
        declared=NodesOptions,
    ),
    ConsoleCommand(
        name="homes",
        module="arcp_trio.cli.homes",
        help="list or remove what coding agents keep for each principal",
        description="List the HOMEs of contained agents, or remove those of a principal.",
        example=f"{PROGRAM} homes --remove alice",
        notes=notes.HOMES,
        declared=HomesOptions,
    ),
)
