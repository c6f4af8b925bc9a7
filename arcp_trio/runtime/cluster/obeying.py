"""Obeying other nodes: what they ask of the jobs and the sessions of this one is done, and told."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

import trio
from msgspec.structs import replace

from arcp_trio.runtime.job.command_rows import RELEASE, encode_answer, read_command
from arcp_trio.runtime.job.commands import (
    AnswerTo,
    EndJob,
    Obeyed,
    Reveal,
    answer_question,
    end_job,
    no_question,
)
from arcp_trio.runtime.notices import store_trouble
from arcp_trio.store.errors import Fenced, StoreError
from arcp_trio.store.outage import Outage
from arcp_trio.store.shared_writes import AnswerNode
from arcp_trio.store.writes import CancelJob
from arcp_trio.wire.errors import ArcpError, InternalError, JobNotFound

if TYPE_CHECKING:
    from arcp_trio.runtime.cluster.revealing import Revealer
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.commands import JobCommand
    from arcp_trio.runtime.job.job import Job
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.store.interface import Store
    from arcp_trio.store.queue import Group
    from arcp_trio.store.records import JobRow, Recovered
    from arcp_trio.store.shared import Commands, OpenCommand

log = logging.getLogger(__name__)


class Obeyer:
    """Obeys what other nodes ask, in the order of the asking, each command once.

    A command is answered in the group of writes in which it is obeyed. So a node that takes over
    from a dead one finds those that were not obeyed, and only those.
    """

    def __init__(
        self,
        core: Core,
        commands: Commands,
        jobs: Jobs,
        release: Callable[[str, int], Awaitable[None]],
        revealer: Revealer | None,
        nursery: trio.Nursery,
    ) -> None:
        """Obey for the jobs alive here.

        Args:
            core: what all parts of the runtime share.
            commands: has what other nodes ask.
            jobs: those alive here.
            release: lets go of a session that has moved so often, or raises an `ArcpError`.
            revealer: seals credentials; None if this node cannot.
            nursery: for what has to wait for something.
        """
        self._core = core
        self._commands = commands
        self._jobs = jobs
        self._release = release
        self._revealer = revealer
        self._nursery = nursery
        self._begun: dict[int, Group | None] = {}
        """Commands that are being obeyed, with the groups of their answers, until these are stored.
        """

    async def obey_all(self) -> None:
        """Obey every open command; those that have to wait for something are only begun.

        Raises:
            StoreError: the commands cannot be read now.
        """
        for id_, answer in list(self._begun.items()):
            if answer is not None and answer.stored.is_set():
                del self._begun[id_]
        known = set(self._begun)
        while found := await self._commands.open_commands(known):
            known.update(command.id for command in found)
            for command in found:
                await self._begin(command)

    async def _begin(self, command: OpenCommand) -> None:
        if command.kind == RELEASE:
            self._start(command, partial(self._let_go, command))
            return
        asked = read_command(command.body)
        if asked is None:
            self._answer(command, InternalError("the node of the job does not know this command"))
            return
        job = self._jobs.live.get(asked.job_id)
        if job is None:
            row = await self._core.store.job(asked.job_id)
            if row is None or row.finished_at is not None:
                self._answer(command, _too_late(asked, row))
            # A job that this node has just taken over is about to be alive here, or to have ended.
        elif isinstance(asked, EndJob):
            # In one step: its answer is stored with what it does, and before the job's terminal.
            self._answer(command, end_job(job, asked))
        elif isinstance(asked, Reveal):
            self._start(command, partial(self._reveal, job, asked, command.asker))
        else:
            self._start(command, partial(answer_question, job, asked))

    def _start(self, command: OpenCommand, obey: Callable[[], Awaitable[Obeyed]]) -> None:
        self._begun[command.id] = None
        self._nursery.start_soon(self._obey, command, obey, name=f"{command.kind} {command.about}")

    async def _obey(self, command: OpenCommand, obey: Callable[[], Awaitable[Obeyed]]) -> None:
        answer: Obeyed | ArcpError
        try:
            answer = await obey()
        except ArcpError as error:
            answer = error
        except Fenced:
            return  # the node that goes on with the job obeys
        except StoreError as error:
            facts = _facts(command) | {"error": str(error)}
            log.warning("command of another node failed", extra=facts)
            answer = store_trouble(self._core.store)
        except Exception:
            log.exception("command of another node failed", extra=_facts(command))
            answer = InternalError("the request could not be processed")
        self._answer(command, answer)

    async def _let_go(self, command: OpenCommand) -> Obeyed:
        await self._release(command.about, int(command.body))
        return Obeyed()

    async def _reveal(self, job: Job, asked: Reveal, asker: int) -> Obeyed:
        return Obeyed() if self._revealer is None else await self._revealer.seal(job, asked, asker)

    def _answer(self, command: OpenCommand, answer: Obeyed | ArcpError) -> None:
        log.info("obeyed another node", extra=_facts(command))
        self._begun[command.id] = self._core.store.put(
            AnswerNode(command.id, encode_answer(answer))
        )


async def with_cancels(store: Store, commands: Commands, found: Recovered) -> Recovered:
    """Return jobs that this node has taken over, once it has obeyed those who want them to end.

    Their node was asked, and did not live to obey; or there was no node. A question is answered
    once its job is alive again. While the commands cannot be read, this waits: no other node would
    go on with the jobs.
    """
    rows = {row.job_id: row for row in found.unfinished}
    known: set[int] = set()

    async def obey() -> None:
        while some := await commands.open_commands(known):
            known.update(asked.id for asked in some)
            for asked in some:
                _note_cancel(store, asked, rows)

    await Outage(log, "jobs that were taken over wait for the database").outlast(obey)
    return replace(found, unfinished=[*rows.values()])


def _note_cancel(store: Store, asked: OpenCommand, rows: dict[str, JobRow]) -> None:
    """Obey a command that wants a job among `rows` to end, if it is one."""
    row = rows.get(asked.about)
    command = None if row is None else read_command(asked.body)
    if row is None or not isinstance(command, EndJob):
        return
    if row.cancelled is None:
        cancel = CancelJob(row.job_id, command.reason or "", command.stopped_by)
        store.put(cancel)
        rows[row.job_id] = replace(row, cancelled=cancel.reason, stopped_by=cancel.stopped_by)
    obeyed = Obeyed(again=row.cancelled is not None)
    store.put(AnswerNode(asked.id, encode_answer(obeyed)))


def _too_late(asked: JobCommand, row: JobRow | None) -> Obeyed | ArcpError:
    """Return the answer for a job that has ended."""
    if isinstance(asked, AnswerTo):
        return no_question()
    return JobNotFound("there is no such job") if row is None else Obeyed(ended=row.status)


def _facts(command: OpenCommand) -> dict[str, object]:
    return {"command": command.kind, "about": command.about}
