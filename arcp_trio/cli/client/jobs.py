"""`arcp-trio jobs`: the jobs that may be observed."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from decimal import Decimal

from arcp_trio import Client, JobInfo, Question
from arcp_trio.cli.client.columns import write_list
from arcp_trio.cli.client.connecting import connected
from arcp_trio.cli.client.job_rows import job_rows
from arcp_trio.cli.client.options import NEWEST, JobsOptions
from arcp_trio.cli.client.output import Output, json_line, stderr, stdout
from arcp_trio.cli.client.question_rows import question_rows
from arcp_trio.cli.client.runner import run_client
from arcp_trio.cli.client.signals import Interrupts
from arcp_trio.cli.errors import ExitCode
from arcp_trio.wire.json import JsonObject
from arcp_trio.wire.payloads import to_json


def run(options: JobsOptions) -> int:
    """List the jobs, and return the exit code."""
    return run_client(_list, options)


async def _list(options: JobsOptions, interrupts: Interrupts) -> int:
    async with connected(options, interrupts) as client:
        await _write(client, options, stdout())
    return ExitCode.SUCCESS


async def _write(client: Client, options: JobsOptions, out: Output) -> None:
    shown: list[JobInfo] = []
    listed = 0
    async for info in _found(client, options):
        if listed == NEWEST and not options.all:
            await stderr().write(f"there are more than these {NEWEST}; --all lists them\n")
            break
        listed += 1
        if options.json:
            await out.write(json_line(_as_json(info)))
        else:
            shown.append(info)
    if not listed:
        such = "such " if options.status or options.agent or options.waiting else ""
        await stderr().write(f"there are no {such}jobs\n")
    elif not options.json:
        await write_list(_rows(shown, options, out), out)


async def _found(client: Client, options: JobsOptions) -> AsyncIterator[JobInfo]:
    """Yield the jobs that the options ask for, newest first."""
    status = options.status or (["running"] if options.waiting else None)
    async for info in client.jobs(status=status, agent=options.agent):
        if info.waiting or not options.waiting:
            yield info


def _rows(jobs: Sequence[JobInfo], options: JobsOptions, out: Output) -> list[Sequence[str]]:
    if options.waiting:
        return question_rows(jobs)
    return job_rows(jobs, time.time(), out.columns if out.is_terminal else None)


def _as_json(info: JobInfo) -> JsonObject:
    return {
        "job_id": info.id,
        "agent": info.agent,
        "status": info.status,
        "created_at": info.created_at,
        "lease": dict(info.lease),
        "parent_job_id": info.parent_id,
        "principal": info.principal,
        "node": info.node,
        "started_at": info.started_at,
        "finished_at": info.finished_at,
        "error": None
        if info.error_code is None
        else {"code": info.error_code, "message": info.error},
        "budget": _amounts(info.budget),
        "spent": _amounts(info.spent),
        "waiting": list(map(_question, info.waiting)),
        "last_event": info.last_event,
        "progress": _progress(info),
    }


def _progress(info: JobInfo) -> JsonObject | None:
    if info.progress is None:
        return None
    current, total = info.progress
    return {"current": current, "total": total}


def _question(question: Question) -> JsonObject:
    """Return a question as the runtime lists it; what was not given is null."""
    return {
        "question_id": question.question_id,
        "prompt": question.prompt,
        "options": None if question.options is None else list(question.options),
        "schema": None if question.schema is None else dict(question.schema),
        "to": question.to,
        "expires_at": question.expires_at,
        "kind": question.kind,
        "capability": question.capability,
        "targets": list(question.targets) or None,
        "tool": question.tool,
        "args": question.args,
        "shown": to_json(question.shown) or None,
        "for_job": question.for_job,
        "truncated": question.truncated,
    }


def _amounts(amounts: Mapping[str, Decimal] | None) -> JsonObject | None:
    """Return amounts as decimal strings, which are exact in every program."""
    if amounts is None:
        return None
    return {currency: f"{amount:f}" for currency, amount in amounts.items()}
