"""Authentication, and what each principal may observe (§6.1, §6.6, §7.6)."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from types import MappingProxyType
from typing import Final

import attrs
import trio

from arcp_trio.authority.ceiling import Ceiling
from arcp_trio.authority.lease import Lease
from arcp_trio.wire.ids import is_sha256, token_digest

Authenticator = Callable[[str], Awaitable[str | None]]
"""Takes a bearer token and returns its principal, or None for a token that is not valid."""

MINUTE_SECONDS: Final = 60.0

MOST_ADDRESSES: Final = 10_000
"""Addresses whose wrong tokens are counted; past it, the one counted longest is forgotten."""


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
        self._principals = [
            *((bytes.fromhex(digest), principal) for digest, principal in hashed.items()),
            *((token_digest(token), principal) for token, principal in principals.items()),
        ]

    async def __call__(self, token: str) -> str | None:
        """Compare `token` with every known token, so that the time taken reveals nothing."""
        presented = token_digest(token)
        found: str | None = None
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
