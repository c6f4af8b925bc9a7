"""The commands: one table for the parser, the help, and the module that runs each command."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Final, cast

import attrs

from arcp_trio.cli import defaults
from arcp_trio.cli.client import options as client
from arcp_trio.cli.errors import PROGRAM
from arcp_trio.cli.options import Argument, Option, arguments_of, options_of
from arcp_trio.cli.replay_options import ReplayOptions
from arcp_trio.cli.serve import options as serve
from arcp_trio.cli.store_options import NodesOptions, StoreOptions


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


_SERVE_NOTES: Final = f"""\
Jobs, events and sessions are kept in DIR/arcp.db, for one runtime at a time. They outlive the
process: at the next start clients resume their sessions, jobs of durable agents go on, and others
end with an error that says that they may be tried again. If no token is given, one is made for the
principal "local", kept in DIR/token for the next start, and printed on standard error. While it
runs, its address is in DIR/address. The client commands find both there.
{serve.TOKENS_VARIABLE}="p=t,p2=t2" in the environment gives tokens, too.

With --store, jobs, events and sessions are in a PostgreSQL that `{PROGRAM} store init` has
prepared. Several runtimes share it, and clients go from one to the other. No token is kept.
{defaults.STORE_VARIABLE} in the environment stands in for --store: no list of processes shows a
password there. Exit code 6 says that the others have taken this runtime for dead, and go on.

A configuration file has the same options, with _ for -, and the limits of arcp_trio.Limits:

  [serve]
  port = 8080
  agents = ["my_agents"]
  [limits]
  jobs_per_principal = 20

An option on the command line replaces the one in the file. Modules of agents are looked up in the
current folder first. The first SIGTERM or Ctrl-C ends the runtime in order, within five seconds
after the drain; the second one ends it at once. SIGHUP makes it read tokens and certificates again.
"""

_REPLAY_NOTES: Final = """\
Without SESSION_ID, each session is printed on one line: its principal, the last number that it has
used, and how many jobs it watches. With SESSION_ID, the frames of this session are printed as a
resume would repeat them, one JSON object per line; with --memos, what its jobs remember
follows them. Nothing is changed. The runtime of a folder must not be running; nodes that share a
database may be, and a standby of it will do.
"""

_CONNECTION_NOTES: Final = (
    f"{client.URL_VARIABLE} and {client.TOKEN_VARIABLE} in the environment stand in for --url and"
    " --token. Without an address,\nthe one that a running serve keeps in DIR/address is used;"
    " without a token, the one in\nDIR/token, but only for a runtime on this machine.\n"
)

_OUTCOME_NOTES: Final = """\
The result goes to standard output, everything else to standard error. With --json, standard output
has one object per line: {"seq", "job_id", "kind", "body", "ts"} for each event, and last the
message that ended the job, with "type": "job.result" or "job.error", and its "job_id".

Exit codes: 0 success, 1 the job failed or was refused, 2 usage, 3 cannot connect or authenticate,
4 cancelled, 5 timed out, 130 Ctrl-C.
"""

_SUBMIT_NOTES: Final = f"""\
On a terminal, Ctrl-C asks whether to cancel the job, to leave it running, or to go on watching.
Elsewhere, and at a second Ctrl-C, the job is left running, and its id is printed. A streamed result
is written as it comes. What the job asks is asked there, too; elsewhere it is printed, and
{PROGRAM} answer answers it.

{_OUTCOME_NOTES}
{_CONNECTION_NOTES}"""

_WATCH_NOTES: Final = f"""\
On a terminal, Ctrl-C asks whether to cancel the job, to leave it running, or to go on watching.
Elsewhere, and at a second Ctrl-C, the job is left running. What the job asks is asked there, too;
elsewhere it is printed, and {PROGRAM} answer answers it.

{_OUTCOME_NOTES}
{_CONNECTION_NOTES}"""

_LISTING_NOTES: Final = f"""\
With --json, each line is an object with
{{0}}.

{_CONNECTION_NOTES}"""

_CANCEL_NOTES: Final = """\
With --json, standard output has one object per line: "type": "job.cancelled" once the runtime has
agreed to it and, with --wait, the message that ended the job, each with its "job_id".

Exit codes: 0 success, 1 refused or, with --wait, not ended by a cancel, 2 usage, 3 cannot connect
or authenticate, 130 Ctrl-C.
"""

_ANSWER_NOTES: Final = """\
An approval is answered by allow or deny, with --scope job for the rest of the job.
If the question wants a text, as one with options does, VALUE is taken as it is. Otherwise it is
JSON if it reads as JSON, and a text if it does not. `arcp-trio jobs --waiting` lists what is asked.
With --json, standard output has one object with "type": "x-vendor.arcp-trio.answered", "job_id" and
"question_id" once the answer is stored.

Exit codes: 0 success, 1 refused, 2 usage, 3 cannot connect or authenticate, 130 Ctrl-C.
"""

_CONSOLE_NOTES: Final = f"""\
The link has the token after its #, which browsers send to nobody. If no browser can be opened, the
link is printed.

{_CONNECTION_NOTES}"""

_TOKEN_NOTES: Final = f"""\
The token is signed by the runtime and stored nowhere, so it cannot be taken back. It shows JOB_ID,
or all jobs of one's own; with it, everything but listing and following jobs is refused.
With --json, standard output has one object with the "token".

{_CONNECTION_NOTES}"""

_PING_NOTES: Final = f"""\
With --json, each line is an object of milliseconds: "opened_ms" for the session, "answer_ms" for
each ping, and last "best_ms", "mean_ms" and "worst_ms".

{_CONNECTION_NOTES}"""

_STORE_NOTES: Final = """\
init makes the schema "arcp", with all tables, as the role in URL; that role owns it. With --role,
this role may read and write in it, and nothing else: nodes connect as that one. It is made if need
be, without a password.

check connects as the nodes do and looks at what they need: the version, privileges, how commits are
stored, the clock, and connections that are left. Exit code 1 says that something is wrong.

migrate brings the schema to the version of this program. Nodes of the version before go on.
"""

_NODES_NOTES: Final = """\
With --json, each line is an object with
"name", "node" (its number, never used again), "state" ("up", "draining" or "gone"), "version",
"since", "sessions" (that are connected) and "jobs" (that have not ended).
"""

COMMANDS: Final = (
    ConsoleCommand(
        name="serve",
        module="arcp_trio.cli.serve.serve",
        help="run a runtime",
        description="Run a runtime until SIGTERM or Ctrl-C.",
        example=f"{PROGRAM} serve --port 8080",
        notes=_SERVE_NOTES,
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
        notes=_SUBMIT_NOTES,
        declared=client.SubmitOptions,
    ),
    ConsoleCommand(
        name="watch",
        module="arcp_trio.cli.client.watch",
        help="show a job that was submitted elsewhere until it ends",
        description="Show a job from its first event to its end.",
        example=f"{PROGRAM} watch job_01JABC",
        notes=_WATCH_NOTES,
        declared=client.WatchOptions,
    ),
    ConsoleCommand(
        name="jobs",
        module="arcp_trio.cli.client.jobs",
        help="list jobs",
        description="List the jobs that may be observed, newest first, each above its children.",
        example=f"{PROGRAM} jobs --status running",
        notes=_LISTING_NOTES.format(
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
        notes=f"{_ANSWER_NOTES}\n{_CONNECTION_NOTES}",
        declared=client.AnswerOptions,
    ),
    ConsoleCommand(
        name="cancel",
        module="arcp_trio.cli.client.cancel",
        help="cancel a job",
        description="Cancel a job of one's own, from anywhere; an operator may cancel any job.",
        example=f'{PROGRAM} cancel job_01JABC --reason "wrong input"',
        notes=f"{_CANCEL_NOTES}\n{_CONNECTION_NOTES}",
        declared=client.CancelOptions,
    ),
    ConsoleCommand(
        name="agents",
        module="arcp_trio.cli.client.agents",
        help="list the agents of a runtime",
        description="List the agents of a runtime with their versions, or show one of them.",
        example=f"{PROGRAM} agents --url {defaults.URL}",
        notes=_LISTING_NOTES.format(
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
        notes=_CONSOLE_NOTES,
        declared=client.ConsoleOptions,
    ),
    ConsoleCommand(
        name="token",
        module="arcp_trio.cli.client.token",
        help="print a short-lived token for a page that shows jobs",
        description="Print a token with which one can look at jobs for a while, and do no more.",
        example=f"{PROGRAM} token job_01JABC --expires-in 10m",
        notes=_TOKEN_NOTES,
        declared=client.TokenOptions,
    ),
    ConsoleCommand(
        name="ping",
        module="arcp_trio.cli.client.ping",
        help="check whether a runtime answers, and how fast",
        description="Open a session and measure how long the runtime takes to answer a ping.",
        example=f"{PROGRAM} ping --count 10",
        notes=_PING_NOTES,
        declared=client.PingOptions,
    ),
    ConsoleCommand(
        name="bench",
        module="arcp_trio.cli.client.bench",
        help="measure for a few seconds how fast a runtime is",
        description="Measure round trips and events per second with the demo agents.",
        example=f"{PROGRAM} bench --json",
        notes=_LISTING_NOTES.format('"figure", "value" and "unit"'),
        declared=client.OutputOptions,
    ),
    ConsoleCommand(
        name="replay",
        module="arcp_trio.cli.replay",
        help="print the sessions in the store of a stopped runtime, or the frames of one session",
        description="Print what is in the store of a runtime that is not running, or of nodes.",
        example=f"{PROGRAM} replay --data {defaults.DATA}",
        notes=_REPLAY_NOTES,
        declared=ReplayOptions,
    ),
    ConsoleCommand(
        name="store",
        module="arcp_trio.cli.store",
        help="make, check or migrate a store in PostgreSQL",
        description="Administer a store in PostgreSQL, which several runtimes can share.",
        example=f"{PROGRAM} store init --store postgresql://owner@db/arcp --role arcp",
        notes=_STORE_NOTES,
        declared=StoreOptions,
    ),
    ConsoleCommand(
        name="nodes",
        module="arcp_trio.cli.nodes",
        help="list the runtimes that share a store in PostgreSQL",
        description="List the nodes: the runtimes that share a store in PostgreSQL.",
        example=f"{PROGRAM} nodes --store postgresql://arcp@db/arcp",
        notes=_NODES_NOTES,
        declared=NodesOptions,
    ),
)
