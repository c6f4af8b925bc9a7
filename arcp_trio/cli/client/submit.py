"""`arcp-trio submit`: a job, from its submission to its end."""

from __future__ import annotations

import os
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from functools import partial
from pathlib import Path

import trio

from arcp_trio import Client, JobHandle
from arcp_trio.authority.approvals import ASK, ASKABLE
from arcp_trio.authority.budget import case_problem
from arcp_trio.authority.lease import CAPABILITIES, is_capability
from arcp_trio.authority.patterns import FILES
from arcp_trio.cli.client.connecting import connected
from arcp_trio.cli.client.display import make_display
from arcp_trio.cli.client.follow import follow
from arcp_trio.cli.client.job_input import input_of
from arcp_trio.cli.client.leaving import CANCEL_REASON, Leaving, print_how_to_watch, print_unknown
from arcp_trio.cli.client.options import SubmitOptions
from arcp_trio.cli.client.output import STDOUT, json_line
from arcp_trio.cli.client.runner import refused, run_client
from arcp_trio.cli.client.signals import Interrupts
from arcp_trio.cli.errors import CommandError, ExitCode, did_you_mean
from arcp_trio.cli.ids import whole_job_id
from arcp_trio.wire.errors import AgentNotAvailable
from arcp_trio.wire.json import is_object
from arcp_trio.wire.lease_request import lease_request
from arcp_trio.wire.rules import SANDBOX


def run(options: SubmitOptions) -> int:
    """Submit the job, show it, and return the exit code."""
    submission = _JobToSubmit(options)
    try:
        return run_client(submission.run, options)
    finally:
        # After the session is closed: until then no other session may cancel the job.
        submission.print_what_is_left(options)


class _JobToSubmit:
    """The job that one command submits."""

    def __init__(self, options: SubmitOptions) -> None:
        """Read the parts of the submission.

        Raises:
            CommandError: a part is malformed, or cannot be read.
        """
        self._lease = parse_lease([*options.lease, *lease_items(options.ask)])
        self._budget = parse_budget(options.budget)
        try:
            lease_request(self._lease, self._budget)
        except ValueError as error:
            raise CommandError(f"--budget and --lease: {error}; give it once") from error
        self._input = input_of(options)
        self._asked = False
        """Whether a signal came while the runtime was asked for the job, and had not answered."""
        self._job: JobHandle | None = None
        self._leaving: Leaving | None = None

    async def run(self, options: SubmitOptions, interrupts: Interrupts) -> int:
        """Submit the job, and show it unless --detach is given."""
        async with connected(options, interrupts, patience=None) as client:
            if options.session is not None and is_object(self._input):
                self._input["session"] = await whole_job_id(client, options.session)
            self._job = job = await self._submit(client, options)
            if options.contained and SANDBOX not in job.lease_constraints:
                await job.cancel(CANCEL_REASON)
                raise CommandError("--contained: this runtime does not know sandboxes")
            if options.detach:
                return ExitCode.SUCCESS
            display = make_display(as_json=options.json)
            cancel = partial(job.cancel, CANCEL_REASON)
            self._leaving = Leaving(client, job, display.screen, interrupts, cancel)
            try:
                return await follow(client, job, display)
            finally:
                self._leaving.note_connection()

    async def _submit(self, client: Client, options: SubmitOptions) -> JobHandle:
        try:
            return await client.submit(
                options.agent,
                self._input,
                lease=self._lease,
                budget=self._budget,
                expires_in=options.expires_in,
                idempotency_key=options.key,
                max_runtime=options.max_runtime,
                contained=options.contained,
            )
        except trio.Cancelled:
            self._asked = True
            raise
        except AgentNotAvailable as error:
            known = [agent.name for agent in client.agents]
            aside = did_you_mean(options.agent.partition("@")[0], known)
            if not aside:
                raise
            raise refused(error, aside) from error

    def print_what_is_left(self, options: SubmitOptions) -> None:
        """Print the id of the job if it is left running, or that there may be a job."""
        job = self._job
        if self._asked:
            print_unknown()
        if job is None or (job.terminal is not None and not options.detach):
            return
        if self._leaving is not None:
            self._leaving.tell()
        as_json = json_line({"type": "detached", "job_id": job.id})
        try:
            os.write(STDOUT, (as_json if options.json else f"{job.id}\n").encode())
        except OSError:
            if options.detach:  # the id was printed nowhere
                print_how_to_watch(job.id)


# -- the parts of a submission


def parse_lease(given: Sequence[str]) -> dict[str, list[str]]:
    """Return the patterns of each capability from items `CAP=PATTERN`.

    Raises:
        CommandError: an item is malformed, or its capability does not exist.
    """
    grants: dict[str, list[str]] = {}
    for text in given:
        capability, equals, pattern = text.partition("=")
        if not (capability and equals and pattern):
            raise CommandError(f"--lease {text} is not CAP=PATTERN, such as tool.call=search.*")
        if not is_capability(capability):
            known = ", ".join(sorted(CAPABILITIES))
            raise CommandError(
                f"--lease {text}: there is no capability {capability}; there are {known}, and "
                "those of vendors, x-vendor.NAME"
            )
        grants.setdefault(capability, []).append(pattern)
    return grants


def lease_items(asks: Sequence[str]) -> list[str]:
    """Return the items of a lease for what may be asked for.

    Raises:
        CommandError: an item is malformed or never matches, or nobody can be asked for its
            capability.
    """
    for text in asks:
        capability, equals, pattern = text.partition("=")
        if not (capability in ASKABLE and equals and pattern):
            raise CommandError(
                f"--ask {text} is not CAP=PATTERN, such as fs.write=/srv/**; CAP is one of"
                f" {', '.join(ASKABLE)}"
            )
        if capability in FILES and not (pattern == "**" or pattern.startswith(("/", "**/"))):
            raise CommandError(
                f"--ask {text}: paths are absolute, such as {capability}={Path.cwd() / pattern}"
            )
    return [f"{ASK}{text}" for text in asks]


def parse_budget(given: Sequence[str]) -> dict[str, str]:
    """Return the amount in each currency from items `CUR:AMOUNT`.

    Raises:
        CommandError: an item is malformed, or its currency has an amount already.
    """
    amounts: dict[str, str] = {}
    for text in given:
        currency, _, amount = text.partition(":")
        if not (currency and _is_amount(amount)):
            raise CommandError(f"--budget {text} is not CURRENCY:AMOUNT, such as USD:5")
        if (problem := case_problem(currency)) is not None:
            raise CommandError(f"--budget {text}: {problem}")
        if currency in amounts:
            raise CommandError(f"--budget names {currency} twice")
        amounts[currency] = amount
    return amounts


def _is_amount(text: str) -> bool:
    try:
        amount = Decimal(text)
    except InvalidOperation:
        return False
    return amount.is_finite() and amount >= 0
