"""The commands: one table for the parser, the help, and which module runs what."""

from __future__ import annotations

from typing import Final

import attrs

from arcp_trio.cli.client import options as of
from arcp_trio.cli.options import REPLAY, SERVE, TEXT, Option

PROGRAM: Final = "arcp-trio"


@attrs.frozen(kw_only=True)
class Argument:
    """Something that is told by its place."""

    name: str
    metavar: str
    help: str
    optional: bool = False


@attrs.frozen(kw_only=True)
class Command:
    """One command. Its module, imported only to run it, has a function `run`."""

    name: str
    help: str
    description: str
    example: str
    notes: str = ""
    arguments: tuple[Argument, ...] = ()
    options: tuple[Option, ...]
    exclusive: frozenset[str] = frozenset()
    """Options of which only one may be given."""

    module: str


_SERVE_NOTES: Final = """\
Jobs, events and sessions are kept in DIR/arcp.db, for one runtime at a time: they survive the
process, and a client resumes its session at the next one. A job that was running then ends with
a retryable error. Without any token given, one is made for the principal "local", kept in
DIR/token for the next start, and printed on stderr.
ARCP_TOKENS="p=t,p2=t2" in the environment gives tokens too.

A configuration file has the same options, _ for -, and the bounds of arcp_trio.Limits:

  [serve]
  port = 8080
  agents = ["my_agents"]
  [limits]
  jobs_per_principal = 20

An option on the command line replaces the one of the file. Modules of agents are looked up
from the current directory first. SIGTERM or Ctrl-C ends in order, within five seconds of the
drain; the second one at once. SIGHUP has tokens and certificates read again.
"""

_REPLAY_NOTES: Final = """\
Without SESSION_ID: one line for each session, with its principal, the last number it has used and
how many jobs it watches. With it: the session's frames, one JSON object per line, as a resume
would repeat them. Nothing is changed; the runtime must not be running.
"""

_CONNECTION_NOTES: Final = f"""\
{of.URL_VARIABLE} and {of.TOKEN_VARIABLE} in the environment stand in for --url and --token. Without
a token, the one that serve keeps in DIR/token is used, but only for a runtime on this machine.
"""

_OUTCOME_NOTES: Final = """\
The result goes to standard output, everything else to standard error. With --json, standard output
has one object per line: {"seq", "job_id", "kind", "body", "ts"} for each event, and at last the
message that ended the job, "type": "job.result" or "job.error", with its "job_id".

Exit codes: 0 success, 1 the job failed or was refused, 2 usage, 3 cannot connect or authenticate,
4 cancelled, 5 timed out, 130 Ctrl-C.
"""

_SUBMIT_NOTES: Final = f"""\
Ctrl-C asks, on a terminal, whether to cancel the job or to leave it running. Otherwise, and at the
second Ctrl-C, it runs on, and its id is printed.

{_OUTCOME_NOTES}
{_CONNECTION_NOTES}"""

_LISTING_NOTES: Final = f"""\
With --json each line is an object, with
{{0}}.

{_CONNECTION_NOTES}"""

_JOB_ID: Final = Argument(name="job_id", metavar="JOB_ID", help="as submit printed it")

COMMANDS: Final = (
    Command(
        name="serve",
        module="arcp_trio.cli.serve.serve",
        help="run a runtime",
        description="Run a runtime, until SIGTERM or Ctrl-C.",
        example=f"{PROGRAM} serve --port 8080",
        notes=_SERVE_NOTES,
        options=(
            Option("config", TEXT, "FILE.toml", "read options and bounds from a file"),
            *SERVE,
        ),
        exclusive=frozenset({"data", "memory"}),
    ),
    Command(
        name="submit",
        module="arcp_trio.cli.client.submit",
        help="submit a job and show it to its end",
        description="Submit a job, show what it does, and print its result.",
        example=f"""{PROGRAM} submit countdown --input '{{"n": 3}}'""",
        notes=_SUBMIT_NOTES,
        arguments=(
            Argument(name="agent", metavar="AGENT[@VERSION]", help="which agent is to do it"),
        ),
        options=(*of.SUBMIT, *of.CONNECTION),
    ),
    Command(
        name="watch",
        module="arcp_trio.cli.client.watch",
        help="show a job that was submitted elsewhere, to its end",
        description="Show a job from its first event to its end. Ctrl-C leaves it running.",
        example=f"{PROGRAM} watch job_01JABC",
        notes=f"{_OUTCOME_NOTES}\n{_CONNECTION_NOTES}",
        arguments=(_JOB_ID,),
        options=(*of.WATCH, *of.CONNECTION),
    ),
    Command(
        name="jobs",
        module="arcp_trio.cli.client.jobs",
        help="list jobs",
        description="List the jobs that may be observed, newest first.",
        example=f"{PROGRAM} jobs --status running",
        notes=_LISTING_NOTES.format(
            '"job_id", "agent", "status", "created_at", "lease" and "parent_job_id"'
        ),
        options=(*of.JOBS, *of.CONNECTION),
    ),
    Command(
        name="cancel",
        module="arcp_trio.cli.client.cancel",
        help="cancel a job",
        description="Cancel a job whose submitter has left, or anybody's as an operator.",
        example=f'{PROGRAM} cancel job_01JABC --reason "wrong input"',
        notes=_CONNECTION_NOTES,
        arguments=(_JOB_ID,),
        options=(*of.CANCEL, *of.CONNECTION),
    ),
    Command(
        name="agents",
        module="arcp_trio.cli.client.agents",
        help="list the agents of a runtime",
        description="List the agents of a runtime, with their versions.",
        example=f"{PROGRAM} agents --url ws://127.0.0.1:7777/arcp",
        notes=_LISTING_NOTES.format('"name", "versions" and "default"'),
        options=(*of.AGENTS, *of.CONNECTION),
    ),
    Command(
        name="ping",
        module="arcp_trio.cli.client.ping",
        help="see whether a runtime answers, and how fast",
        description="Open a session and measure how long the runtime takes to answer a ping.",
        example=f"{PROGRAM} ping --count 10",
        notes=_CONNECTION_NOTES,
        options=(*of.PING, *of.CONNECTION),
    ),
    Command(
        name="bench",
        module="arcp_trio.cli.client.bench",
        help="measure, for a few seconds, what a runtime takes",
        description="Measure round trips and events per second, with the demo agents.",
        example=f"{PROGRAM} bench --json",
        notes=_LISTING_NOTES.format('"figure", "value" and "unit"'),
        options=(*of.BENCH, *of.CONNECTION),
    ),
    Command(
        name="replay",
        module="arcp_trio.cli.replay",
        help="print the sessions, or the frames of one, that a runtime has left in its store",
        description="Print what is in the store of a runtime that is not running.",
        example=f"{PROGRAM} replay --data .arcp",
        notes=_REPLAY_NOTES,
        arguments=(
            Argument(
                name="session_id",
                metavar="SESSION_ID",
                help="whose frames to print",
                optional=True,
            ),
        ),
        options=REPLAY,
    ),
)
