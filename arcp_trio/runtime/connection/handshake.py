"""From a connection's first frame to its session (§6.1 to §6.3)."""

from __future__ import annotations

import hmac
import logging
from typing import TYPE_CHECKING

import attrs
import trio

from arcp_trio.runtime.access import address_of
from arcp_trio.runtime.limits import limit_hit
from arcp_trio.runtime.notices import frame, store_trouble
from arcp_trio.runtime.session.outbox import Attach
from arcp_trio.store.errors import StoreError
from arcp_trio.store.writes import RotateToken
from arcp_trio.wire.dialects import named, recognise
from arcp_trio.wire.envelope import Envelope
from arcp_trio.wire.errors import (
    ArcpError,
    InternalError,
    ResumeWindowExpired,
    Unauthenticated,
)
from arcp_trio.wire.features import ALL_FEATURES, SUPPORTED, Feature, negotiate
from arcp_trio.wire.ids import resume_token, token_digest
from arcp_trio.wire.json import Json
from arcp_trio.wire.messages import Auth, Hello, SessionResume, parse
from arcp_trio.wire.timestamps import rfc3339

if TYPE_CHECKING:
    from arcp_trio.runtime.connection.connection import Connection
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.session.session import Session
    from arcp_trio.runtime.session.sessions import Sessions

log = logging.getLogger(__name__)

MOST_SPARE_DIGESTS = 16
"""Tokens of a session that are good besides the newest: as many resumes in a row may go wrong."""


async def open_session(
    core: Core, sessions: Sessions, connection: Connection, first: Envelope
) -> Session:
    """Give the connection the session that its first frame asks for.

    Raises:
        ArcpError: it does not get one.
    """
    try:
        return await _open_session(core, sessions, connection, first)
    except StoreError:
        log.exception("session cannot be opened", extra={"peer": connection.peer})
        raise store_trouble() from None


async def _open_session(
    core: Core, sessions: Sessions, connection: Connection, first: Envelope
) -> Session:
    message = parse(first)
    if core.closing:
        raise InternalError("the runtime is shutting down")
    if core.store.trouble is not None or not core.taken_over.is_set():
        raise store_trouble()
    match message:
        case Hello():
            connection.dialect = recognise(first)
            connection.principal = principal = await _authenticate(core, connection, message.auth)
            features = negotiate(message.features, _offered(sessions, connection))
            if message.resumption is None:
                return await _begin(core, sessions, connection, principal, features)
            return await _resume(
                core, sessions, connection, message.resumption, principal, features
            )
        case SessionResume():
            claimed = connection.principal
            if message.auth is not None:
                claimed = await _authenticate(core, connection, message.auth)
            return await _resume(core, sessions, connection, message, claimed, None)
        case _:
            raise Unauthenticated("the first frame must be a session.hello")


async def _authenticate(core: Core, connection: Connection, auth: Auth | None) -> str:
    if auth is None or auth.scheme not in (None, "bearer") or not (auth.token or "").strip():
        raise Unauthenticated("a bearer token is required")
    assert auth.token is not None
    try:
        principal = await core.authenticate(auth.token)
    except Unauthenticated as error:
        raise _wrong_token(core, connection, error) from None
    except ArcpError:
        raise
    except Exception:
        log.exception("authenticator failed")
        raise InternalError("the token could not be checked") from None
    if not principal:
        raise _wrong_token(core, connection, Unauthenticated("the token is not valid"))
    return principal


def _wrong_token(core: Core, connection: Connection, error: Unauthenticated) -> ArcpError:
    """What is said of it: from an address with too many of them, only that."""
    most = core.limits.failed_auth_per_minute
    if core.wrong_tokens.count(address_of(connection.peer)) > most:
        return limit_hit("failed_auth_per_minute", most)
    return error


def _check_connected(core: Core, sessions: Sessions, principal: str) -> None:
    most = core.limits.sessions_per_principal
    if sessions.connected(principal) >= most:
        raise limit_hit("sessions_per_principal", most)


# -- a new session


async def _begin(
    core: Core,
    sessions: Sessions,
    connection: Connection,
    principal: str,
    features: frozenset[str],
) -> Session:
    _check_connected(core, sessions, principal)
    token = resume_token()
    session, stored = sessions.create(
        principal, features, connection.dialect.name, token_digest(token)
    )
    try:
        connection.join(session, fresh=True)
        await stored.committed()
        session.tell(
            Attach(connection, welcome(core, sessions, connection, session, token), after_seq=0)
        )
        log.info("session opened", extra=session.facts | {"peer": connection.peer})
    finally:
        session.release()
    return session


def _offered(sessions: Sessions, connection: Connection) -> list[str]:
    """What the runtime can do here; secrets do not go where somebody can read along (§14)."""
    credentials = sessions.jobs.revoker.offered and connection.private
    return [
        feature
        for feature in ALL_FEATURES
        if feature in SUPPORTED or (credentials and feature == Feature.PROVISIONED_CREDENTIALS)
    ]


def welcome(
    core: Core, sessions: Sessions, connection: Connection, session: Session, token: str
) -> bytes:
    """A `session.welcome` (§6.2), its session id in the payload too, where some clients look."""
    flat = Feature.AGENT_VERSIONS not in session.features
    capabilities: dict[str, Json] = {
        "encodings": ["json"],
        "features": _offered(sessions, connection),
        "agents": sorted(sessions.jobs.agents.names())
        if flat
        else sessions.jobs.agents.inventory(),
    }
    payload: dict[str, Json] = {
        "runtime": {"name": core.name, "version": core.version},
        "session_id": session.id,
        "resume_token": token,
        "resume_window_sec": core.limits.resume_window_seconds,
        "accepted_at": rfc3339(core.clock.now()),
        "capabilities": capabilities,
    }
    if Feature.HEARTBEAT in session.features:
        payload["heartbeat_interval_sec"] = core.limits.heartbeat_seconds
    return frame("session.welcome", payload)


# -- a session that goes on


def _cannot_resume() -> ResumeWindowExpired:
    """One answer for whatever is wrong, so that nothing can be learnt from it."""
    return ResumeWindowExpired("the session cannot be resumed from there")


async def _resume(
    core: Core,
    sessions: Sessions,
    connection: Connection,
    resume: SessionResume,
    principal: str | None,
    features: frozenset[str] | None,
) -> Session:
    token = token_digest(resume.resume_token)
    session_id = resume.session_id or await core.store.session_of_token(token)
    session = None if session_id is None else await sessions.wake(session_id)
    if session is None:
        raise _cannot_resume()
    try:
        if principal not in (None, session.principal) or not _holds_token(session, token):
            raise _cannot_resume()
        if features is None:
            connection.dialect = named(session.dialect)
        await _check_place(core, session, token, resume.last_event_seq)
        session.evict()  # already here: what it does not read would hold up the command
        attempt = Reattach(core, sessions, connection, token, resume.last_event_seq, features)
        await session.command(attempt)
        await attempt.done.wait()
        if attempt.error is not None:
            raise attempt.error
        return session
    finally:
        session.release()


async def _check_place(core: Core, session: Session, token: bytes, after_seq: int) -> None:
    """Look, and touch nothing: an attempt that fails costs the session nothing."""
    covered = await core.store.covers(session.id, after_seq)
    in_range = session.floor <= after_seq <= session.top
    if session.over or not (covered and in_range and _holds_token(session, token)):
        raise _cannot_resume()


def _still_good(session: Session, token: bytes) -> tuple[bytes, ...]:
    """The tokens that the client may have, besides the one it is about to get, oldest first.

    It has been heard with this one, which does away with those before. Not with those issued since:
    this may be an attempt that it gave up, handled late.
    """
    issued = (*session.spare_digests, session.token_digest)
    since = issued[issued.index(token) + 1 :]
    return (token, *since[-(MOST_SPARE_DIGESTS - 1) :])


def _holds_token(session: Session, token: bytes) -> bool:
    good = (session.token_digest, *session.spare_digests)
    return any(hmac.compare_digest(token, digest) for digest in good)


@attrs.define(eq=False)
class Reattach:
    """A resume, as a command of its session: one at a time, and a failed one changes nothing."""

    core: Core
    sessions: Sessions
    connection: Connection
    token: bytes
    after_seq: int
    features: frozenset[str] | None
    """As negotiated anew; None keeps what the session had."""
    size = 0
    """It takes no room."""
    done: trio.Event = attrs.field(factory=trio.Event)
    error: ArcpError | None = None

    async def carry_out(self, session: Session) -> None:
        """Check, rotate the token, and have the session's frames go to this connection."""
        try:
            await self._attach(session)
        except ArcpError as error:
            self.error = error
        except Exception:
            log.exception("resume failed", extra=session.facts)
            self.error = InternalError("the session could not be resumed")
        finally:
            self.done.set()

    async def _attach(self, session: Session) -> None:
        core, sessions = self.core, self.sessions
        await _check_place(core, session, self.token, self.after_seq)
        if self.connection.over:
            raise _cannot_resume()
        if session.holder is None:
            _check_connected(core, sessions, session.principal)
        token = resume_token()
        session.spare_digests = _still_good(session, self.token)
        session.token_digest = token_digest(token)
        if self.features is not None:
            session.features, session.dialect = self.features, self.connection.dialect.name
        # Negotiated on another connection, perhaps, that was more private than this one.
        session.features = negotiate(session.features, _offered(sessions, self.connection))
        rotation = RotateToken(
            session.id,
            session.token_digest,
            session.spare_digests,
            session.features,
            session.dialect,
        )
        self.connection.join(session)
        await core.store.put(rotation).committed()
        told = welcome(core, sessions, self.connection, session, token)
        session.tell(Attach(self.connection, told, self.after_seq))
        resumed = {"peer": self.connection.peer, "after_seq": self.after_seq}
        log.info("session resumed", extra=session.facts | resumed)
