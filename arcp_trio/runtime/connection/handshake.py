"""From a connection's first frame to its session (§6.1 to §6.3)."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Final

import attrs
import trio

from arcp_trio.runtime.access import Principal, address_of
from arcp_trio.runtime.limits import limit_hit
from arcp_trio.runtime.notices import store_trouble
from arcp_trio.runtime.one_time_codes import CODE_PREFIX
from arcp_trio.runtime.session.attachment import Attachment
from arcp_trio.runtime.session.resuming import Resume, ResumeCheck, cannot_resume
from arcp_trio.runtime.session.unsent import Unsent
from arcp_trio.runtime.views import PREFIX
from arcp_trio.store.errors import Fenced, StoreError
from arcp_trio.transport.base import HasPings, Transport
from arcp_trio.wire.dialects import Dialect, named, recognise
from arcp_trio.wire.envelope import Envelope
from arcp_trio.wire.errors import ArcpError, InternalError, Unauthenticated
from arcp_trio.wire.features import negotiate
from arcp_trio.wire.ids import resume_token, token_digest
from arcp_trio.wire.messages import (
    Auth,
    Hello,
    Message,
    SessionResume,
    parse,
)

if TYPE_CHECKING:
    from arcp_trio.runtime.connection.welcomes import Welcomes
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.farewell import Closing
    from arcp_trio.runtime.session.session import Session
    from arcp_trio.runtime.session.sessions import Sessions
    from arcp_trio.runtime.views import View
    from arcp_trio.store.interface import Replay

FREE_MISTAKES: Final = 5
"""Wrong tokens of an address in a minute that are answered at once."""
PAUSE_SECONDS: Final = 0.1
"""How much later each further one is answered than the one before."""
LONGEST_PAUSE: Final = 2.0
"""Seconds; a right token is always answered at once."""

log = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class Opened:
    """A session that is attached to a connection, and what is sent first."""

    session: Session
    attachment: Attachment
    welcome: bytes
    replay: Replay | None
    """None if the session is new: it has nothing to repeat, and may be exchanged for another."""
    after_seq: int
    """The number that the replay follows."""
    ends: float = math.inf
    """On Trio's clock: when the client's token is no longer good."""


class Handshake:
    """Finds the session that a connection's client asks for; used again for an exchange."""

    def __init__(
        self,
        core: Core,
        sessions: Sessions,
        welcomes: Welcomes,
        transport: Transport,
        closing: Closing,
    ) -> None:
        self.principal: Principal | None = None
        """The principal of the last hello on this connection."""
        self._view: View | None = None
        """What that hello's token lets see, if it is a short-lived one."""
        self._exchanged: str | None = None
        """The token for which that hello exchanged a one-time code: its welcome tells it."""
        self._core = core
        self._sessions = sessions
        self._welcomes = welcomes
        self._transport = transport
        self._closing = closing

    async def open(self, first: Envelope) -> Opened:
        """Attach the session that a frame asks for.

        Raises:
            ArcpError: there is no session for it.
        """
        with self._sessions.openings.opening():
            try:
                return await self._open(first)
            except StoreError as error:
                facts = {"peer": self._transport.peer, "error": str(error)}
                log.warning("session cannot be opened", extra=facts)
                raise store_trouble(self._core.store) from None
            except Fenced:
                words = "this node is gone, and another one goes on: try again"
                raise InternalError(words) from None
        raise store_trouble(self._core.store)

    async def _open(self, first: Envelope) -> Opened:
        message, core = parse(first), self._core
        if core.closing:
            raise InternalError("the runtime is shutting down")
        if not (core.taken_over.is_set() and self._can_store(message)):
            raise store_trouble(core.store)
        match message:
            case Hello():
                dialect = recognise(first)
                auth = await self._exchange(message.auth)
                self.principal = principal = await self._authenticate(auth)
                features = negotiate(message.features, self._offered)
                if self._view is not None:
                    features |= {self._view.scope.feature}
                if message.resumption is None:
                    return await self._create(principal, features, dialect)
                return await self._resume(message.resumption, principal, features, dialect)
            case SessionResume():
                claimed = self.principal
                if message.auth is not None:
                    claimed = await self._authenticate(message.auth)
                return await self._resume(message, claimed, None, None)
            case _:
                raise Unauthenticated("the first frame must be a session.hello")

    def _can_store(self, message: Message | None) -> bool:
        """Whether the store does for what a frame asks for.

        On a full disk a new session is stored later: until then its client can list jobs.
        """
        store = self._core.store
        if store.trouble is None:
            return True
        is_new = isinstance(message, Hello) and message.resumption is None
        return is_new and store.disk_full and store.shared is None and not store.crowded

    # -- who it is

    async def _authenticate(self, auth: Auth | None) -> Principal:
        if auth is None or auth.scheme not in (None, "bearer") or not (auth.token or "").strip():
            raise Unauthenticated("a bearer token is required")
        assert auth.token is not None
        self._view = None
        if auth.token.startswith(PREFIX):
            return await self._read_view(auth.token)
        try:
            principal = await self._core.authentication.principal_of(auth.token)
        except Unauthenticated as error:
            raise await self._wrong_token(error) from None
        if principal is None:
            raise await self._wrong_token(Unauthenticated("the token is not valid"))
        return principal

    async def _read_view(self, token: str) -> Principal:
        self._view = self._core.view_tokens.read(token, self._core.clock.now())
        if self._view is None:
            raise await self._wrong_token(Unauthenticated("the token is not valid"))
        return Principal(self._view.principal, expires_at=self._view.until)

    async def _wrong_token(self, error: Unauthenticated) -> ArcpError:
        """Count a wrong token, and return its error, the later the more its address has sent.

        Past the limit of its address the limit's error is returned instead.
        """
        most = self._core.limits.failed_auth_per_minute
        count = self._core.wrong_tokens.count(address_of(self._transport.peer))
        await trio.sleep(min(LONGEST_PAUSE, PAUSE_SECONDS * max(0, count - FREE_MISTAKES)))
        if count > most:
            return limit_hit("failed_auth_per_minute", most, what_helps="try again in a minute")
        return error

    async def _exchange(self, auth: Auth | None) -> Auth | None:
        """Return the credentials of a hello, with its token in the place of a one-time code."""
        self._exchanged = None
        code = "" if auth is None else (auth.token or "")
        if not code.startswith(CODE_PREFIX):
            return auth
        self._exchanged = self._core.codes.exchange(code)
        if self._exchanged is None:
            words = (
                "the code is not good: it is good once, for a minute, at the node that made it;"
                " run `arcp-trio console` again, or sign in with a token"
            )
            raise await self._wrong_token(Unauthenticated(words))
        return Auth(scheme="bearer", token=self._exchanged)

    # -- a new session

    async def _create(
        self, principal: Principal, features: frozenset[str], dialect: Dialect
    ) -> Opened:
        sessions = self._sessions
        sessions.refuse_if_full(principal)
        token, attachment = resume_token(), self._attachment(principal, dialect)
        session, stored = sessions.create(principal, features, dialect.name, token_digest(token))
        try:
            sessions.join(session, attachment)
            # On a full disk nothing can be done in it, so that it may be stored later; not so if
            # other nodes have to know it.
            await (stored.tried() if self._core.store.shared is None else stored.committed())
            session.begin(attachment)
            log.debug("session opened", extra=session.facts | {"peer": self._transport.peer})
            return Opened(
                session=session,
                attachment=attachment,
                welcome=self._welcome(session, token),
                replay=None,
                after_seq=0,
                ends=self._ends(session),
            )
        except BaseException:
            sessions.leave(session, attachment)
            raise
        finally:
            session.release()

    # -- a session that goes on

    async def _resume(
        self,
        resume: SessionResume,
        principal: Principal | None,
        features: frozenset[str] | None,
        dialect: Dialect | None,
    ) -> Opened:
        # A frame that comes before the new token is sent does not show that the client has it.
        if isinstance(self._transport, HasPings):
            self._transport.read_on()
        digest = token_digest(resume.resume_token)
        # Clients that give no bearer token have one turn together until their session is known.
        reads = self._core.store.for_principal(principal or "", urgent=True)
        session_id = resume.session_id or await reads.session_of_token(digest)
        if session_id is None:
            raise cannot_resume()
        # Before anything is done to the session: a resume that is refused disturbs nobody.
        scope = None if self._view is None else self._view.scope
        check = ResumeCheck(
            store=self._core.store,
            authentication=self._core.authentication,
            principal=principal,
            scope=scope,
            digest=digest,
            after_seq=resume.last_event_seq,
        )
        session = await self._sessions.wake(session_id, check)
        if session is None:
            raise cannot_resume()
        try:
            attachment = self._attachment(
                session.principal, dialect or named(session.record.dialect)
            )
            try:
                attempt = Resume(
                    sessions=self._sessions,
                    check=check,
                    attachment=attachment,
                    peer=self._transport.peer,
                    digest=digest,
                    after_seq=resume.last_event_seq,
                    features=features,
                    offered=self._offered,
                )
                return await self._reattach(session, attempt)
            except BaseException:
                self._sessions.leave(session, attachment)
                raise
        finally:
            session.release()

    async def _reattach(self, session: Session, attempt: Resume) -> Opened:
        # At once: a connection whose client does not read would hold up the command below.
        session.evict()
        await session.command(attempt)
        await attempt.done.wait()
        if attempt.error is not None:
            raise attempt.error
        return Opened(
            session=session,
            attachment=attempt.attachment,
            replay=await attempt.attachment.begun(),
            welcome=self._welcome(session, attempt.token),
            after_seq=attempt.after_seq,
            ends=self._ends(session),
        )

    def _ends(self, session: Session) -> float:
        return trio.current_time() + session.record.client.expires_at - self._core.clock.now()

    @property
    def _offered(self) -> list[str]:
        if self._view is not None:
            return self._welcomes.offered_to_look(self._view.scope)
        return self._welcomes.offered(private=self._transport.private)

    def _welcome(self, session: Session, token: str) -> bytes:
        private, exchanged = self._transport.private, self._exchanged
        return self._welcomes.tail(session, token, private=private, exchanged=exchanged)

    def _attachment(self, principal: str, dialect: Dialect) -> Attachment:
        unsent = Unsent(self._core.limits, self._core.ledger.unsent.share(principal))
        return Attachment(self._closing, unsent, dialect)
