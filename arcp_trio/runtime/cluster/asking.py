"""Asking other nodes: a command is a row in the store, and so is its answer.

Only the node of a job decides how the job ends, and only the node of a session lets go of it. The
one that is asked answers together with what it did.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import attrs
import trio

from arcp_trio.runtime.job.command_rows import RELEASE, body_of, kind_of, read_answer
from arcp_trio.store.shared_writes import AskAgain, AskNode, DropAnswers
from arcp_trio.wire.errors import InternalError

if TYPE_CHECKING:
    from arcp_trio.runtime.job.commands import JobCommand, Obeyed, Reveal
    from arcp_trio.runtime.session.other_nodes import Told
    from arcp_trio.store.interface import Store
    from arcp_trio.store.shared import Commands
    from arcp_trio.wire.errors import ArcpError

log = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 1.0
"""Pause before a node is asked again."""


@attrs.frozen(eq=False)
class _Asked:
    told: Told
    answered: trio.Event = attrs.field(factory=trio.Event)


class Asker:
    """Asks other nodes, and hands on their answers, each in one step."""

    def __init__(
        self,
        store: Store,
        commands: Commands,
        command_seconds: float,
        timed: Callable[[float], None],
    ) -> None:
        """Ask other nodes of a store.

        Args:
            store: where commands are put.
            commands: has their answers.
            command_seconds: how long to wait for what clients want of jobs.
            timed: called with the seconds that an answer has taken.
        """
        self._store = store
        self._commands = commands
        self._seconds = command_seconds
        self._timed = timed
        self._number = 0
        self._asked: dict[int, _Asked] = {}
        """What has no answer yet, by number."""

    async def ask(self, command: JobCommand, told: Told) -> None:
        """Ask the node of a job; return once `told` has the answer, or the reason for none.

        A command without an answer is not taken back: it may still be obeyed.
        """
        seconds, asked = self._seconds, _Asked(told)
        with trio.move_on_after(seconds):
            await self._exchange(kind_of(command), command.job_id, body_of(command), asked)
        if not asked.answered.is_set():  # an answer may come at the very end of the time
            facts = {"job_id": command.job_id, "command": kind_of(command), "seconds": seconds}
            log.warning("node of a job does not answer", extra=facts)
            told(InternalError("the node that runs the job does not answer: try again later"))

    async def ask_to_release(self, session_id: str, moves: int) -> bool:
        """Ask the node that has a session awake to let go of it; return whether it has.

        It lets go of what has moved so often; if the session has moved on, and come back even, the
        command has come too late, and does nothing. There is no answer from a node that is dead, or
        that stands still.
        """
        released: list[bool] = []

        def told(answer: Obeyed | ArcpError) -> None:
            released.append(not isinstance(answer, Exception))

        await self._exchange(RELEASE, session_id, b"%d" % moves, _Asked(told), taken_back=True)
        return released[0]

    async def ask_to_reveal(self, command: Reveal) -> Obeyed | ArcpError:
        """Ask the node of a job for its credentials, and return its answer, which may never come.

        A command that is given up is taken back.
        """
        answers: list[Obeyed | ArcpError] = []
        asked = _Asked(answers.append)
        kind, body = kind_of(command), body_of(command)
        await self._exchange(kind, command.job_id, body, asked, taken_back=True)
        return answers[0]

    async def _exchange(
        self, kind: str, about: str, body: bytes, asked: _Asked, *, taken_back: bool = False
    ) -> None:
        self._number += 1
        number = self._number
        self._asked[number] = asked
        try:
            began = trio.current_time()
            self._store.put(AskNode(number, kind, about, body))
            while not asked.answered.is_set():
                with trio.move_on_after(AGAIN_SECONDS):
                    await asked.answered.wait()
                if not asked.answered.is_set():
                    self._store.put(AskAgain(number))  # another node may have the job by now
            self._timed(trio.current_time() - began)
        finally:
            self._asked.pop(number, None)
            if taken_back and not asked.answered.is_set():
                self._store.put(DropAnswers([number]))

    async def hear(self) -> None:
        """Hand on every answer that is stored.

        Raises:
            StoreError: the answers cannot be read now.
        """
        if not self._asked:
            return
        answers = await self._commands.answers()
        for number in sorted(answers):
            asked = self._asked.pop(number, None)
            if asked is not None:  # else its asker waits no longer
                asked.told(read_answer(answers[number]))
                asked.answered.set()
        if answers:
            self._store.put(DropAnswers(list(answers)))
