"""Authentication, and what each principal may observe (§6.1, §6.6, §7.6)."""

from __future__ import annotations

import hmac
import ipaddress
import logging
import math
from collections.abc import Awaitable, Callable, Generator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Final, Protocol, Self, runtime_checkable

import attrs
import trio

from arcp_trio.authority.ceiling import Ceiling
from arcp_trio.authority.lease import Lease
from arcp_trio.runtime.clock import Clock
from arcp_trio.runtime.wake import Wake
from arcp_trio.wire.errors import ArcpError, InternalError, Unauthenticated
from arcp_trio.wire.ids import is_sha256, token_digest

Authenticator = Callable[[str], Awaitable[str | None]]
"""Takes a bearer token and returns its principal, or None for a token that is not valid.

A `Principal` also says until when the token is valid. An authenticator that has a method
`still_good` (see `Rechecks`) is asked again about those it has let in.
"""

MINUTE_SECONDS: Final = 60.0

MOST_ADDRESSES: Final = 10_000
"""Addresses whose wrong tokens are counted; past it, the one counted longest is forgotten."""

log = logging.getLogger(__name__)


class Principal(str):
    """The name of a principal, and what its authenticator knows of the token that it presented."""

    __slots__ = ("expires_at", "facts", "fingerprint", "name")

    name: str
    """The name alone."""
    expires_at: float
    """In seconds since 1970: when the token stops being valid."""
    fingerprint: str
    """What the authenticator knows the token by. It is stored with the session, so no secret."""
    facts: str
    """The facts about the token, as `remembered` takes them."""

    def __new__(cls, name: str, *, expires_at: float = math.inf, fingerprint: str = "") -> Self:
        """Take a name, and the facts about its token."""
        principal = super().__new__(cls, name)
        principal.name = name
        principal.expires_at = expires_at
        principal.fingerprint = fingerprint
        principal.facts = f"{expires_at!r} {fingerprint}"
        return principal

    @classmethod
    def remembered(cls, name: str, facts: str) -> Self:
        """Return the principal with this name and these `facts`."""
        expires_at, _, fingerprint = facts.partition(" ")
        return cls(name, expires_at=float(expires_at or math.inf), fingerprint=fingerprint)


@runtime_checkable
class Rechecks(Protocol):
    """An authenticator that can say later whether a token is still good, without the token."""

    async def still_good(self, principal: Principal) -> bool:
        """Return whether the token that stood for `principal` would be accepted now.

        `principal` is what the authenticator has returned, with the same facts, perhaps at another
        node or before a restart. Its time is not over.
        """
        ...


class Authentication:
    """The authenticator of a runtime, asked about new tokens and about those of its sessions."""

    def __init__(self, authenticator: Authenticator, clock: Clock) -> None:
        self._authenticator = authenticator
        later: object = authenticator
        self._rechecks = later if isinstance(later, Rechecks) else None
        self._clock = clock
        self.changed = Wake()
        """Set when the authenticator may no longer accept what it has accepted."""

    async def principal_of(self, token: str) -> Principal | None:
        """Return the principal of a token, or None for a token that is not valid.

        Raises:
            ArcpError: the authenticator's own, or an InternalError if it failed.
        """
        with _fence():
            name = await self._authenticator(token)
        if not name:
            return None
        return name if isinstance(name, Principal) else Principal(name)

    async def is_good(self, principal: Principal) -> bool | None:
        """Return whether the token of a principal is still good; None if nobody can say.

        Raises:
            ArcpError: the authenticator cannot say at the moment.
        """
        if principal.expires_at <= self._clock.now():
            return False
        if self._rechecks is None:
            return None
        with _fence():
            return await self._rechecks.still_good(principal)

    async def require_good(self, principal: Principal, *, presented: bool) -> None:
        """Refuse a principal whose token is no longer good.

        Args:
            principal: of a session.
            presented: its token was accepted a moment ago.

        Raises:
            ArcpError: it is not, or the authenticator cannot say at the moment.
        """
        good = await self.is_good(principal)
        if good is None and not presented:
            raise Unauthenticated("a bearer token is required to resume this session")
        if good is False:
            raise no_longer_good()


def no_longer_good() -> Unauthenticated:
    """Return the error for a client whose token was good once."""
    return Unauthenticated("the token is no longer good: present another one")


@contextmanager
def _fence() -> Generator[None]:
    """Raise an InternalError for whatever an authenticator raises but an ArcpError."""
    try:
        yield
    except ArcpError:
        raise
    except Exception:
        log.exception("authenticator failed")
        raise InternalError("the token could not be checked") from None


class StaticTokens:
    """A fixed set of tokens: `StaticTokens({"a token": "alice"})`, each with its principal.

    They are kept as hashes and compared in constant time.
    """

    def __init__(
        self,
        principals: Mapping[str, str] = MappingProxyType({}),
        *,
        hashed: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Say which token stands for which principal.

        Args:
            principals: the principal of each token.
            hashed: the principal of each token that is given by its SHA-256, in hexadecimal. A
                hash hides only what nobody can guess: such tokens must come from a generator.
        """
        if any(not text.strip() for text in (*principals, *principals.values(), *hashed.values())):
            raise ValueError("tokens and principals must not be blank")
        if not all(map(is_sha256, hashed)):
            raise ValueError("a hashed token must be the 64 hexadecimal digits of its SHA-256")
        digests = [
            *((bytes.fromhex(digest), principal) for digest, principal in hashed.items()),
            *((token_digest(token), principal) for token, principal in principals.items()),
        ]
        self._principals = [
            (digest, Principal(name, fingerprint=digest[:16].hex())) for digest, name in digests
        ]

    async def __call__(self, token: str) -> Principal | None:
        """Compare `token` with every known token, so that the time taken reveals nothing."""
        return self._find(token_digest(token))

    async def still_good(self, principal: Principal) -> bool:
        """Return whether the token is one of these, and stands for the same principal."""
        mark = principal.fingerprint
        return any(each == principal and each.fingerprint == mark for _, each in self._principals)

    def _find(self, presented: bytes) -> Principal | None:
        found: Principal | None = None
        for digest, principal in self._principals:
            if hmac.compare_digest(digest, presented):
                found = principal
        return found


@attrs.frozen(kw_only=True)
class Policy:
    """What a deployment decides where the specification leaves it open.

    A subclass may decide otherwise what jobs may do (`lease_for`), and who observes whose jobs.
    Observing and cancelling are separate rights: an observer cannot cancel, and an operator of the
    runtime, who may cancel any job, cannot observe it. Name a principal as both to give it both.
    """

    any_model: bool = False
    """A lease without `model.use` allows every model, rather than none (§9.7)."""
    observers: AbstractSet[str] = frozenset()
    """Principals that may list and subscribe to everybody's jobs (§7.6)."""
    approvers: AbstractSet[str] = frozenset()
    """Principals that may answer the questions of everybody's jobs; they observe them, too."""
    developers: AbstractSet[str] = frozenset()
    """Principals that are told the type and the text of an exception that ends a job of theirs. It
    may hold secrets; without this, it stays in the log (§12)."""
    allow_stop: bool = True
    """Any session of a job's principal may stop it, and an operator any job. Without this, a job
    ends by `job.cancel` only, which §7.6 reserves for the session that submitted it."""
    ceilings: Mapping[str, Ceiling] = MappingProxyType({})
    """The most that each principal may lease; `*` is every principal that is not named."""
    reserved_paths: AbstractSet[str] = frozenset()
    """Absolute paths that no lease opens, with all that is below them, beside those that are never
    opened: `/proc`, `/sys`, `/dev` and the files of the store."""

    def lease_for(self, principal: str, agent: str, requested: Lease) -> Lease:  # noqa: ARG002
        """Return the lease that a job is given; it may be a smaller one.

        It is asked before each acceptance, of submitted and of delegated jobs, without a
        checkpoint. What is requested is within the principal's ceiling, or the parent's lease; a
        delegated job's lease stays within its parent's, whatever is returned.

        Args:
            principal: the principal that submits the job, or its parent.
            agent: the agent, as `name@version`.
            requested: what the job would have.

        Raises:
            PermissionDenied: there is to be no such job; the client reads the message.
        """
        return requested

    def ceiling(self, principal: str) -> Ceiling | None:
        """Return the ceiling of a principal: its own, or else that of `*`."""
        return self.ceilings.get(principal) or self.ceilings.get("*")

    def observes_all(self, observer: str) -> bool:
        """Whether a principal's listings search everybody's jobs; `may_observe` judges each one."""
        return observer in self.observers or observer in self.approvers

    def may_observe(self, observer: str, owner: str) -> bool:
        """Whether a principal may know of another's jobs and follow them; never cancel them."""
        return observer == owner or self.observes_all(observer)

    def may_answer(self, principal: str, owner: str) -> bool:
        """Whether a principal may answer what another's jobs ask, if it may observe them."""
        return principal == owner or principal in self.approvers


class WrongTokens:
    """Counts wrong tokens by address; an address's minute begins with its first one."""

    def __init__(self) -> None:
        self._counted: dict[str, tuple[float, int]] = {}
        """The end of each address's minute and its count, oldest minute first."""

    def count(self, address: str) -> int:
        """Count one more, and return how many there were in this minute."""
        now = trio.current_time()
        ends, before = self._counted.get(address, (now, 0))
        if ends <= now:
            self._counted.pop(address, None)  # re-inserted last: the oldest minute stays first
            ends, before = now + MINUTE_SECONDS, 0
            if len(self._counted) >= MOST_ADDRESSES:
                del self._counted[next(iter(self._counted))]
        self._counted[address] = ends, before + 1
        return before + 1

    def forget(self) -> None:
        """Drop the addresses whose minute is over."""
        now = trio.current_time()
        for address, (ends, _) in list(self._counted.items()):
            if ends > now:
                break
            del self._counted[address]


def address_of(peer: str) -> str:
    """Return what wrong tokens are counted by: a peer's address, or the /64 of an IPv6 address.

    An IPv6 customer has 2**64 addresses. Peers without an address share one entry.
    """
    host = peer.rpartition(":")[0]
    if host.startswith("["):
        with suppress(ValueError):
            network = ipaddress.IPv6Network((host.strip("[]").partition("%")[0], 64), strict=False)
            return str(network)
    return host or peer
