"""`arcp-trio answer`: answers a question of a job, from anywhere."""

from __future__ import annotations

from arcp_trio import Client, Question
from arcp_trio.cli.client.asking import typed_answer
from arcp_trio.cli.client.connecting import connected
from arcp_trio.cli.client.options import AnswerOptions
from arcp_trio.cli.client.output import json_line, stderr, stdout
from arcp_trio.cli.client.runner import run_client
from arcp_trio.cli.client.signals import Interrupts
from arcp_trio.cli.errors import PROGRAM, CommandError, ExitCode
from arcp_trio.cli.ids import meant_id, whole_job_id
from arcp_trio.cli.text import safe_line


def run(options: AnswerOptions) -> int:
    """Answer the question, and return the exit code."""
    return run_client(_answer, options)


async def _answer(options: AnswerOptions, interrupts: Interrupts) -> int:
    async with connected(options, interrupts) as client:
        job_id = await whole_job_id(client, options.job_id)
        question = await _find(client, job_id, options.question_id)
        await question.answer(typed_answer(question, options.value), scope=options.scope)
        if options.json:
            ids = {"job_id": question.job_id, "question_id": question.question_id}
            await stdout().write(json_line({"type": "x-vendor.arcp-trio.answered", **ids}))
        else:
            await stderr().write(f"answered: {safe_line(question.prompt)}\n")
    return ExitCode.SUCCESS


async def _find(client: Client, job_id: str, question_id: str | None) -> Question:
    """Return the question that is meant: the only one of the job, or the one with this id.

    Raises:
        CommandError: there is no such question, or several.
    """
    questions = await _waiting(client, job_id)
    if question_id is not None:
        question_id = meant_id(question_id, [each.question_id for each in questions])
    found = [each for each in questions if question_id in (None, each.question_id)]
    if len(found) == 1:
        return found[0]
    if found:
        told = ", ".join(f"{each.question_id} ({each.prompt})" for each in found)
        text = f"{job_id} asks several questions; name one of them: {told}"
    else:
        which = "question" if question_id is None else f"question {question_id}"
        text = f"{job_id} has no open {which}; {PROGRAM} jobs --waiting lists those that there are"
    raise CommandError(safe_line(text), exit_code=ExitCode.FAILED)


async def _waiting(client: Client, job_id: str) -> list[Question]:
    async for info in client.jobs(status=["running"]):
        if info.id == job_id:
            return list(info.waiting)
    return []
