"""Attaching a session to another connection, at the number its client has reached (§6.3)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs
import trio

from arcp_trio.runtime.notices import store_trouble
from arcp_trio.runtime.session.observing import unseen
from arcp_trio.runtime.session.outbox import Attach
from arcp_trio.runtime.views import Scope
from arcp_trio.store.errors import StoreError
from arcp_trio.wire.errors import ArcpError, InternalError, ResumeWindowExpired
from arcp_trio.wire.features import negotiate
from arcp_trio.wire.ids import resume_token, token_digest

if TYPE_CHECKING:
    from arcp_trio.runtime.access import Authentication, Principal
    from arcp_trio.runtime.session.attachment import Attachment
    from arcp_trio.runtime.session.record import Record
    from arcp_trio.runtime.session.session import Session
    from arcp_trio.runtime.session.sessions import Sessions
    from arcp_trio.store.interface import Store

log = logging.getLogger(__name__)


def cannot_resume() -> ResumeWindowExpired:
    """Return the one answer to every bad resume, so that nothing can be learnt from it."""
    return ResumeWindowExpired("the session cannot be resumed from there")


def _resumed_elsewhere() -> InternalError:
    return InternalError("the session was resumed elsewhere at the same time: try again")


@attrs.define(eq=False, kw_only=True)
class ResumeCheck:
    """Checks that a token resumes a session at a number; the check itself changes nothing."""

    store: Store
    """Has the session's log."""
    authentication: Authentication
    principal: Principal | None
    """The bearer token's; None if the resume token alone says whose session it is."""
    scope: Scope | None
    """What the client's token is limited to; the session's has to be the same."""
    digest: bytes
    """The digest of the resume token."""
    after_seq: int
    """The number that the client has reached."""
    _covered: bool = attrs.field(default=False, init=False)
    """Whether the log was found to be complete from there on.

    From then on only the floor or the end of a retention can change that, and who sends the frames
    notices both.
    """

    async def __call__(self, record: Record) -> None:
        """Check it by the record of the session.

        Raises:
            ResumeWindowExpired: it does not.
            ArcpError: the session's client is not who it was, as its token is no longer good.
        """
        self._look_at(record)
        if not self._covered and self.after_seq < record.top:  # else there is nothing to replay
            reads = self.store.for_principal(record.principal, urgent=True)
            self._covered = await reads.covers(record.id, self.after_seq)
            self._look_at(record)
            if not self._covered:
                raise cannot_resume()
        if self.scope is None:  # else the short-lived token was read a moment ago
            client, presented = self.principal or record.client, self.principal is not None
            await self.authentication.require_good(client, presented=presented)

    def _look_at(self, record: Record) -> None:
        mine = self.principal in (None, record.principal) and record.holds(self.digest)
        in_range = record.floor <= self.after_seq <= record.top
        if not (mine and in_range and self.scope == Scope.among(record.features)):
            raise cannot_resume()


@attrs.define(eq=False, kw_only=True)
class Resume:
    """A resume as a command of its session: one at a time; one that fails rotates no token."""

    sessions: Sessions
    check: ResumeCheck
    """Whether the client may resume the session from where it is."""
    attachment: Attachment
    peer: str
    digest: bytes
    """The digest of the token that the client presents."""
    after_seq: int
    features: frozenset[str] | None
    """As negotiated anew; None keeps what the session had."""
    offered: Sequence[str]
    """What the runtime offers on this connection, which may be less private than the last one."""
    size = 0
    """In bytes: a resume takes no room in the inbox."""
    token: str = ""
    """The new token, once the session is to be attached."""
    error: ArcpError | None = attrs.field(
        factory=lambda: InternalError("the session could not be resumed")
    )
    done: trio.Event = attrs.field(factory=trio.Event)

    async def carry_out(self, session: Session) -> None:
        """Check, rotate the token, and have the session's frames go to this connection."""
        try:
            await self._attach(session)
        except ArcpError as error:
            self.error = error
        except StoreError as error:
            log.warning("resume failed", extra=session.facts | {"error": str(error)})
            self.error = store_trouble(self.check.store)
        except Exception:
            log.exception("resume failed", extra=session.facts)
        else:
            self.error = None
        finally:
            self.done.set()

    async def _attach(self, session: Session) -> None:
        attachment, record = self.attachment, session.record
        await self.check(record)
        reads = self.check.store.for_principal(session.principal, urgent=True)
        gone = await unseen(session, reads, self.sessions.jobs)
        if attachment.over or session.lost is not None:
            raise cannot_resume()
        if session.elsewhere:
            raise _resumed_elsewhere()
        if session.holder is None:
            self.sessions.refuse_if_full(session.principal)
        token = resume_token()
        features = record.features if self.features is None else self.features
        rotated = record.rotate(
            used=self.digest,
            fresh=token_digest(token),
            features=negotiate(features, self.offered),
            dialect=None if self.features is None else attachment.dialect.name,
            client=self.check.principal or record.client,
        )
        self.sessions.join(session, attachment)
        await rotated.committed()
        if session.id in rotated.refused:
            raise _resumed_elsewhere()
        self.token = token
        session.tell(Attach(attachment, self.after_seq, gone))
        resumed = {"peer": self.peer, "after_seq": self.after_seq}
        log.debug("session resumed", extra=session.facts | resumed)
