"""Submits that bring one idempotency key at once: the first decides what it stands for (§7.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import trio

from arcp_trio.wire.errors import InternalError

if TYPE_CHECKING:
    from arcp_trio.runtime.ledger import Pool
    from arcp_trio.runtime.session.attachment import Attachment
    from arcp_trio.store.queue import Group
    from arcp_trio.store.records import KeyRow


class ConnectionOver(Exception):  # noqa: N818 - a fact about the client
    """The connection that brought a submit has ended before the submit's turn came."""


@attrs.define(eq=False)
class Claim:
    """One submit's place among those with its key."""

    owner: tuple[str, str]
    """The principal and the key."""
    known: KeyRow | None = None
    """What the key stands for, if the submit before this one has decided it."""
    refusal: InternalError | None = None
    """Why the submit may not even wait: too many do."""
    _turn: trio.Event = attrs.field(factory=trio.Event)

    @property
    def waits(self) -> bool:
        """Whether another submit decides first."""
        return not self._turn.is_set()

    def let_go_on(self, known: KeyRow | None) -> None:
        """Let the submit go on, with what was decided, or to decide itself."""
        self.known = known
        self._turn.set()

    async def turn(self, attachment: Attachment) -> None:
        """Wait until the submit may go on.

        Raises:
            ConnectionOver: its connection has ended, so that its answer could reach nobody.
            InternalError: too many submits wait.
        """
        if self.refusal is not None:
            raise self.refusal
        with attachment.while_it_lasts() as scope:
            await self._turn.wait()
        if scope.cancelled_caught:
            raise ConnectionOver


class Claims:
    """The claims on keys, in the order in which they came.

    The first decides. If there is a job then, all that wait are told of it at once; if the first is
    refused, the next one decides. What comes before the job is stored is told of it, too.
    """

    def __init__(self, waiting: Pool) -> None:
        self._waiting = waiting
        self._claims: dict[tuple[str, str], dict[Claim, None]] = {}
        self._unstored: dict[tuple[str, str], tuple[KeyRow, Group]] = {}
        """Keys that may not be in the store yet, in the order in which they are stored."""

    def __len__(self) -> int:
        return len(self._claims)

    def claim(self, principal: str, key: str) -> Claim:
        """Take the next place among the submits with a key."""
        claim = Claim((principal, key))
        for owner, (_, group) in list(self._unstored.items()):
            if not group.stored.is_set():
                break
            del self._unstored[owner]
        if claim.owner in self._unstored:
            claim.let_go_on(self._unstored[claim.owner][0])
            return claim
        others = self._claims.setdefault(claim.owner, {})
        if others:
            try:
                self._waiting.refuse_if_full(principal)
            except InternalError as refusal:
                claim.refusal = refusal
                return claim
            self._waiting.share(principal).take(1)
        else:
            claim.let_go_on(None)
        others[claim] = None
        return claim

    def leave(self, claim: Claim, known: KeyRow | None = None, group: Group | None = None) -> None:
        """Give a place up, with what the key was found or made to stand for, if anything.

        If the key stands for a new job, `group` stores both.
        """
        if known is not None and group is not None:
            self._unstored[claim.owner] = known, group
        others = self._claims.get(claim.owner, {})
        if claim not in others:
            return  # told of the decision, with all others that waited
        del others[claim]
        if claim.waits:
            self._stop_waiting(claim)
        else:
            for other in list(others) if known else list(others)[:1]:
                other.let_go_on(known)
                self._stop_waiting(other)
                if known:
                    del others[other]
        if not others:
            del self._claims[claim.owner]

    def _stop_waiting(self, claim: Claim) -> None:
        self._waiting.share(claim.owner[0]).give(1)
