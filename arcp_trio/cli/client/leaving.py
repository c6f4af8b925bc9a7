"""How a person leaves a job that is shown: the question at Ctrl-C, and what is said at the end."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import trio

from arcp_trio import BrokenResult, Client, ConnectionFailed, JobHandle, ObservedJob
from arcp_trio.cli.client.screen import Screen
from arcp_trio.cli.client.signals import Interrupts
from arcp_trio.cli.errors import PROGRAM
from arcp_trio.cli.text import safe_line
from arcp_trio.wire.errors import ArcpError, InvalidRequest, ResumeWindowExpired

CANCEL_REASON: Final = "Ctrl-C"
_QUESTION: Final = "(c)ancel the job, (l)eave it running, or (g)o on watching? "
_SHORT_QUESTION: Final = "(c)ancel, (l)eave, (g)o on watching? "
_LOST: Final = "the connection is lost, so the job's state is not known"


class Leaving:
    """Asks at Ctrl-C whether to cancel a job or leave it, and at the end says what is known."""

    def __init__(
        self,
        client: Client,
        job: JobHandle | ObservedJob,
        screen: Screen,
        interrupts: Interrupts,
        cancel: Callable[[], Awaitable[None]],
    ) -> None:
        self._client = client
        self._job = job
        self._screen = screen
        self._interrupts = interrupts
        self._cancel = cancel
        self._cancelling = False
        self._connected = True
        if screen.can_ask:
            interrupts.ask = self._ask

    def note_connection(self) -> None:
        """Note whether there is a connection, before the session is closed."""
        self._connected = self._client.connected

    def tell(self) -> None:
        """Print what is known of a job that has not ended here."""
        state = "the job is being cancelled" if self._cancelling else "the job goes on"
        print_how_to_watch(self._job.id, state if self._connected else _LOST)

    async def _ask(self) -> bool:
        """Return whether to leave the job; if not, cancel it or go on watching."""
        answer = ""  # if the job ends before there is an answer
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._withdraw_at_end, nursery.cancel_scope, name="end of the job")
            answer = await self._answer()
            nursery.cancel_scope.cancel()
        if answer == "cancel":
            await self._try_to_cancel()
        elif not answer:
            self._interrupts.ask = self._ask
        return answer == "leave"

    async def _withdraw_at_end(self, asking: trio.CancelScope) -> None:
        with suppress(ArcpError, BrokenResult, ConnectionFailed):
            await self._job.result()
        asking.cancel()

    async def _answer(self) -> str:
        while True:
            lost = not self._client.connected
            if lost:
                await self._screen.add([_LOST])
            wide = len(_QUESTION) < self._screen.columns and not lost
            question = _QUESTION if wide else _SHORT_QUESTION
            typed = await self._screen.ask(question, self._reply)
            if typed is None:  # the keyboard is gone
                return "leave"
            if meant := _meant(typed):
                return meant
            await self._screen.add(["please type c, l or g"])

    def _reply(self, typed: str) -> str:
        if _meant(typed) != "go on":
            return ""
        self._interrupts.ask = self._ask  # before it is said
        return "going on; Ctrl-C asks again"

    async def _try_to_cancel(self) -> None:
        when = "" if self._client.connected else " once the connection is back"
        notice = f"the job is to be cancelled{when}; Ctrl-C leaves without waiting"
        await self._screen.add([notice])
        try:
            await self._cancel()
            self._cancelling = True
        except (InvalidRequest, ConnectionFailed, ResumeWindowExpired):
            pass  # the job or the session has ended meanwhile, and the display shows that
        except ArcpError as error:
            refusal = safe_line(f"the job is not cancelled: {error.code}: {error.message}")
            await self._screen.add([refusal])
            self._interrupts.ask = self._ask


def _meant(typed: str) -> str:
    """Return the answer that was typed, whole or as its first letter, or no text."""
    answers = ("cancel", "leave", "go on")
    return next((each for each in answers if typed.lower() in (each, each[0])), "")


def print_unknown() -> None:
    """Print on standard error that a job may have been submitted, and how to find out."""
    with suppress(OSError):
        doubt = "it is not known whether the job was submitted"
        print(f"{doubt}; {PROGRAM} jobs shows it if it was", file=sys.stderr, flush=True)


def print_how_to_watch(job_id: str, state: str = "the job goes on") -> None:
    """Print on standard error in which state a job is left, and how to see more of it."""
    with suppress(OSError):
        notice = f"{state}; {PROGRAM} watch {job_id} shows it"
        print(safe_line(notice), file=sys.stderr, flush=True)
