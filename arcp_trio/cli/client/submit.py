"""`arcp-trio submit`: a job, from its request to its end."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from functools import partial
from pathlib import Path
from typing import Final

from arcp_trio.authority.lease import CAPABILITIES, is_capability
from arcp_trio.cli.client.connecting import connected
from arcp_trio.cli.client.display import view
from arcp_trio.cli.client.follow import follow
from arcp_trio.cli.client.options import SubmitOptions
from arcp_trio.cli.client.output import STDOUT, json_line
from arcp_trio.cli.client.runner import Interrupts, run_client
from arcp_trio.cli.client.screen import Screen
from arcp_trio.cli.commands import PROGRAM
from arcp_trio.cli.errors import CommandError, reason
from arcp_trio.cli.text import safe_line
from arcp_trio.client import ConnectionFailed, JobHandle
from arcp_trio.wire import json
from arcp_trio.wire.errors import InvalidRequest, ResumeWindowExpired
from arcp_trio.wire.json import Json
from arcp_trio.wire.lease_request import lease_request

_QUESTION: Final = "(c)ancel the job, or (d)etach and let it run? [d] "


def run(given: Mapping[str, object]) -> int:
    """Submit, show and return the exit code."""
    options = SubmitOptions(**given)  # type: ignore[arg-type]  # the parser held each to its kind
    submission = _Submission(options)
    try:
        return run_client(options, submission.run)
    finally:
        # Not before the session is closed: until then no other one may cancel the job.
        submission.tell_id()


class _Submission:
    def __init__(self, options: SubmitOptions) -> None:
        self._options = options
        self._lease = lease(options.lease)
        self._budget = budget(options.budget)
        try:
            lease_request(self._lease, self._budget)
        except ValueError as error:
            raise CommandError(f"--budget and --lease: {error}; give it once") from error
        self._input = read_input(options.input)
        self._job: JobHandle | None = None

    async def run(self, interrupts: Interrupts) -> int:
        """Submit, and show it unless asked not to."""
        async with connected(self._options, interrupts, patience=None) as client:
            self._job = job = await client.submit(
                self._options.agent,
                self._input,
                lease=self._lease,
                budget=self._budget,
                expires_in=self._options.expires_in,
                idempotency_key=self._options.key,
                max_runtime=self._options.max_runtime,
            )
            if self._options.detach:
                return 0
            shown = view(as_json=self._options.json)
            if shown.screen.can_ask:
                interrupts.ask = partial(_ask, job, shown.screen)
            return await follow(client, job, shown)

    def tell_id(self) -> None:
        """Say which job is left running, if one is, to whoever still reads."""
        job, detached = self._job, self._options.detach
        if job is None or (job.terminal is not None and not detached):
            return
        if not detached:
            _tell_how_to_watch(job.id)
        as_json = json_line({"type": "detached", "job_id": job.id})
        try:
            os.write(STDOUT, (as_json if self._options.json else f"{job.id}\n").encode())
        except OSError:
            if detached:  # it has been said nowhere
                _tell_how_to_watch(job.id)


def _tell_how_to_watch(job_id: str) -> None:
    with suppress(OSError):
        notice = f"the job goes on; {PROGRAM} watch {job_id} shows it"
        print(safe_line(notice), file=sys.stderr, flush=True)


async def _ask(job: JobHandle, screen: Screen) -> bool:
    """Whether to leave the job alone; the other answer is to cancel it."""
    answer = await screen.ask(_QUESTION)
    if answer.lower() not in ("c", "cancel"):
        return True
    # The job, or the session, has ended meanwhile: who shows the job shows that, too.
    with suppress(InvalidRequest, ConnectionFailed, ResumeWindowExpired):
        await job.cancel("Ctrl-C")
    return False


def read_input(given: str | None) -> Json:
    """Read the agent's input: JSON, a file of it, or standard input."""
    if given is None:
        return None
    where, text = "--input", given
    if given == "-":
        where, text = "standard input", _decoded(sys.stdin.buffer.read(), "standard input")
    elif given.startswith("@"):
        where = given[1:]
        if not where:
            raise CommandError("--input @ names no file; write @FILE")
        try:
            text = _decoded(Path(where).read_bytes(), where)
        except OSError as error:
            raise CommandError(f"cannot read the input {where}: {reason(error)}") from error
    try:
        return json.loads(text)
    except InvalidRequest as error:
        is_word = text is given and text[0].isalpha()
        hint = """; text needs quotes of its own: --input '"text"'""" if is_word else ""
        raise CommandError(f"{where} cannot be sent: {error.message}{hint}") from error


def _decoded(data: bytes, where: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CommandError(f"{where} is not UTF-8 text") from error


def lease(given: list[str]) -> dict[str, list[str]]:
    """Read `CAP=PATTERN`, several of one capability together."""
    grants: dict[str, list[str]] = {}
    for text in given:
        capability, equals, pattern = text.partition("=")
        if not (capability and equals and pattern):
            raise CommandError(f"--lease {text} is not CAP=PATTERN, such as tool.call=search.*")
        if not is_capability(capability):
            known = ", ".join(sorted(CAPABILITIES))
            raise CommandError(
                f"--lease {text}: {capability} is no capability; there are {known}, and "
                "those of vendors, x-vendor.NAME"
            )
        grants.setdefault(capability, []).append(pattern)
    return grants


def budget(given: list[str]) -> dict[str, str]:
    """Read `CUR:AMOUNT`, each currency once."""
    amounts: dict[str, str] = {}
    for text in given:
        currency, _, amount = text.partition(":")
        if not (currency and _is_amount(amount)):
            raise CommandError(f"--budget {text} is not CURRENCY:AMOUNT, such as USD:5")
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
