"""What the help of each command says after its options."""

from __future__ import annotations

from typing import Final

from arcp_trio.cli import defaults
from arcp_trio.cli.client import options as client
from arcp_trio.cli.errors import PROGRAM
from arcp_trio.cli.serve import options as serve

SERVE: Final = f"""\
Jobs, events and sessions are kept in DIR/arcp.db, for one runtime at a time. They outlive the
process: at the next start clients resume their sessions, jobs of durable agents go on, and others
end with an error that says that they may be tried again. If no token is given, one is made for the
principal "local", kept in DIR/token for the next start, and printed on standard error. While it
runs, its address is in DIR/address, and the id of its process in DIR/pid. The other commands find
these files there.
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
after the drain; the second one ends it at once. On a terminal, Ctrl-C asks before jobs are lost,
and a second one is a yes. SIGHUP makes it read tokens and certificates again.
"""

STOP: Final = """\
It says how many jobs end and how many go on at the next start. On a terminal it asks before jobs
end; then only "yes" stops it.

DIR/pid has the id of the process, and the process keeps the file locked: without a lock there is
no such process, and nothing is sent to another one. As at SIGTERM, jobs may go on for the --drain
of that serve. With --memory or --store, serve has no folder, and so no such file.

Exit codes: 0 stopped, 1 nothing to stop, or not meant, 2 usage, 130 Ctrl-C.
"""

REPLAY: Final = """\
Without SESSION_ID, each session is printed on one line: its principal, the last number that it has
used, and how many jobs it watches. With SESSION_ID, the frames of this session are printed as a
resume would repeat them, one JSON object per line; with --memos, what its jobs remember
follows them. Nothing is changed. The runtime of a folder must not be running; nodes that share a
database may be, and a standby of it will do.
"""

CONNECTION: Final = (
    f"{client.URL_VARIABLE} and {client.TOKEN_VARIABLE} in the environment stand in for --url and"
    " --token. Without an address,\nthe one that a running serve keeps in DIR/address is used;"
    " without a token, the one in\nDIR/token, but only for a runtime on this machine. DIR is"
    f" {defaults.DATA} in the current folder, or in\none above it, or else"
    f" $XDG_DATA_HOME/{PROGRAM} (~/.local/share/{PROGRAM}).\n"
)

OUTCOME: Final = """\
The result goes to standard output, everything else to standard error. With --json, standard output
has one object per line: {"seq", "job_id", "kind", "body", "ts"} for each event, and last the
message that ended the job, with "type": "job.result" or "job.error", and its "job_id".

Exit codes: 0 success, 1 the job failed or was refused, 2 usage, 3 cannot connect or authenticate,
4 cancelled, 5 timed out, 130 Ctrl-C.
"""

SUBMIT: Final = f"""\
On a terminal, Ctrl-C asks whether to cancel the job, to leave it running, or to go on watching.
Elsewhere, and at a second Ctrl-C, the job is left running, and its id is printed. A streamed result
is written as it comes. What the job asks is asked there, too; elsewhere it is printed, and
{PROGRAM} answer answers it.

{OUTCOME}
{CONNECTION}"""

WATCH: Final = f"""\
On a terminal, Ctrl-C asks whether to cancel the job, to leave it running, or to go on watching.
Elsewhere, and at a second Ctrl-C, the job is left running. What the job asks is asked there, too;
elsewhere it is printed, and {PROGRAM} answer answers it.

{OUTCOME}
{CONNECTION}"""

LISTING: Final = f"""\
With --json, each line is an object with
{{0}}.

{CONNECTION}"""

CANCEL: Final = """\
With --json, standard output has one object per line: "type": "job.cancelled" once the runtime has
agreed to it and, with --wait, the message that ended the job, each with its "job_id".

Exit codes: 0 success, 1 refused or, with --wait, not ended by a cancel, 2 usage, 3 cannot connect
or authenticate, 130 Ctrl-C.
"""

ANSWER: Final = """\
An approval is answered by yes or no, with --scope job for the rest of the job.
If the question wants a text, as one with options does, VALUE is taken as it is. Otherwise it is
JSON if it reads as JSON, and a text if it does not. `arcp-trio jobs --waiting` lists what is asked.
With --json, standard output has one object with "type": "x-vendor.arcp-trio.answered", "job_id" and
"question_id" once the answer is stored.

Exit codes: 0 success, 1 refused, 2 usage, 3 cannot connect or authenticate, 130 Ctrl-C.
"""

CONSOLE: Final = f"""\
The link has the token after its #, which browsers send to nobody. If no browser can be opened, the
link is printed.

{CONNECTION}"""

TOKEN: Final = f"""\
The token is signed by the runtime and stored nowhere, so it cannot be taken back. It shows JOB_ID,
or all jobs of one's own; with it, everything but listing and following jobs is refused.
With --json, standard output has one object with the "token".

{CONNECTION}"""

PING: Final = f"""\
With --json, each line is an object of milliseconds: "opened_ms" for the session, "answer_ms" for
each ping, and last "best_ms", "mean_ms" and "worst_ms".

{CONNECTION}"""

STORE: Final = """\
init makes the schema "arcp", with all tables, as the role in URL; that role owns it. With --role,
init lets this role read and write in it, and nothing else: nodes connect as this role. If there is
no such role, init makes it, without a password.

check connects as the nodes do and looks at what they need: the version, privileges, how commits are
stored, the clock, and connections that are left. Exit code 1 says that something is wrong.

migrate brings the schema to the version of this program. Nodes of the version before go on.
"""

HOMES: Final = """\
With --json, each line is an object with "agent", "principal", "used_at" and "path".
A home that a job uses is not removed.
"""

NODES: Final = """\
With --json, each line is an object with
"name", "node" (its number, never used again), "state" ("up", "draining" or "gone"), "version",
"since", "sessions" (that are connected) and "jobs" (that have not ended).
"""
