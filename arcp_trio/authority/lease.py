"""Leases (§9): what a job may do, what it may spend, and until when.

A lease is read from the request of a client or a delegating agent. What a job is given of it is
decided before its acceptance (`ceiling.py`, `narrowing.py`), and never changes afterwards.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Final, TypeAlias, TypeVar, cast

import attrs

from arcp_trio.authority.budget import CURRENCY, add, case_problem
from arcp_trio.authority.grants import DELEGATE, never_matches, parse_grant
from arcp_trio.authority.patterns import Pattern
from arcp_trio.wire.errors import InvalidRequest, clip
from arcp_trio.wire.rules import SANDBOX, SANDBOX_REQUIRED
from arcp_trio.wire.timestamps import parse_utc

BUDGET: Final = "cost.budget"
MODEL: Final = "model.use"

CAPABILITIES: Final = frozenset(
    {"fs.read", "fs.write", "net.fetch", "tool.call", DELEGATE, BUDGET, MODEL}
)
"""The reserved namespaces of §9.2."""

MAX_PATTERNS: Final = 1000
"""Patterns of a lease, at most: one operation may be compared with all of one capability."""

MAX_SEGMENTS: Final = 8192
"""Segments of all patterns of a lease, at most: they bound the cost of one check."""

MAX_WORK: Final = 100_000
"""Characters of patterns that one target is compared with, at most: ten milliseconds at worst.

A thousand ordinary patterns need less than a tenth of it.
"""

MAX_BYTES: Final = 64 * 1024
"""Bytes of the patterns of a lease, at most: each listing of its job repeats them."""

MAX_PROBLEMS: Final = 8
"""Problems that one error names, at most."""
_EXPIRY_PATH: Final = "$.lease_constraints.expires_at"

_VENDOR_CAPABILITY: Final = re.compile(r"x-vendor(?:\.[A-Za-z0-9_-]+)+")
_MAX_CAPABILITY: Final = 128  # characters

# Within the bounds of budget.py, in which sums and remainders are exact.
_AMOUNT: Final = re.compile(
    rf"(?P<currency>{CURRENCY}):(?P<amount>[0-9]{{1,18}}(?:\.[0-9]{{1,12}})?)"
)
_AMOUNT_WORDS: Final = "currency:amount, such as USD:5.00, of at most 18 digits and 12 decimals"

_T = TypeVar("_T")
_Grants: TypeAlias = dict[str, tuple[Pattern, ...]]
_Problems: TypeAlias = list[str]


def is_capability(name: str) -> bool:
    """Return whether a lease may name this capability: a reserved one, or a vendor's."""
    if name in CAPABILITIES:
        return True
    return len(name) <= _MAX_CAPABILITY and _VENDOR_CAPABILITY.fullmatch(name) is not None


@attrs.frozen(kw_only=True)
class Lease:
    """The authority of one job. A lease without any grant allows nothing.

    A capability with no patterns grants nothing either, but differs from one that is not named: a
    deployment may allow any model to a lease that does not name `model.use` (§9.7).
    """

    grants: Mapping[str, tuple[Pattern, ...]] = attrs.field(factory=_Grants)
    budget: Mapping[str, Decimal] | None = None
    """The amounts at the start, by currency; None: spending is not bounded."""
    expires_at: str | None = None
    """The time of its expiry, as it was given."""
    expires: float | None = None
    """The time of its expiry in Unix seconds."""
    sandbox: bool = False
    """Whether the operating system has to hold the job's agent to the lease."""

    @classmethod
    def read(
        cls,
        request: Mapping[str, Sequence[str]] | None,
        expires_at: str | None = None,
        *,
        now: float = -math.inf,
        sandbox: bool = False,
    ) -> Lease:
        """Read a `lease_request` and an `expires_at`, which must be after `now`.

        Raises:
            InvalidRequest: names all problems.
        """
        problems: _Problems = []
        lists = _read_lists(request, problems)
        amounts = lists.pop(BUDGET, None)
        lease = cls(
            grants={name: _read_patterns(name, items, problems) for name, items in lists.items()},
            budget=None if amounts is None else _read_budget(amounts, problems),
            expires_at=expires_at,
            expires=_read_expiry(expires_at, now, problems),
            sandbox=sandbox,
        )
        if problems:
            raise InvalidRequest(listed(problems))
        return lease

    def names(self, capability: str) -> bool:
        """Return whether the lease names the capability, even if with no patterns."""
        return capability in self.grants

    def allows(self, capability: str, forms: Sequence[str]) -> bool:
        """Return whether each form of a target is matched by a pattern of the capability.

        Only patterns made to be slow (`MAX_WORK`) count as not matching without a look.
        """
        patterns = self.grants.get(capability, ())
        return bool(forms) and all(_matched(patterns, form) for form in forms)

    def idle(self) -> str | None:
        """Say which grants can never allow anything, and why; None if every grant can."""
        idle: list[str] = []
        for capability, patterns in self.grants.items():
            for pattern in patterns:
                reason = never_matches(capability, pattern)
                if reason is not None:
                    idle.append(f"{capability} {clip(repr(pattern.text))} never matches: {reason}")
        return listed(idle) or None

    def wire(self) -> dict[str, list[str]]:
        """Return the `lease` of `job.accepted` (§7.1), without capabilities with no patterns."""
        lease = {
            capability: [pattern.text for pattern in patterns]
            for capability, patterns in self.grants.items()
            if patterns
        }
        if self.budget is not None:
            lease[BUDGET] = [f"{currency}:{left:f}" for currency, left in self.budget.items()]
        return lease

    def constraints(self) -> dict[str, str] | None:
        """Return the `lease_constraints` of `job.accepted`; None without any."""
        found = {} if self.expires_at is None else {"expires_at": self.expires_at}
        if self.sandbox:
            found[SANDBOX] = SANDBOX_REQUIRED
        return found or None


def _matched(patterns: Sequence[Pattern], form: str) -> bool:
    work = 0
    for pattern in patterns:
        if pattern.may_match(form):
            work += pattern.work(form)
            if work > MAX_WORK:
                return False
            if pattern.matches(form):
                return True
    return False


# --- reading ---------------------------------------------------------------------------------
# The schema of the message has checked a client's request; nothing has checked an agent's.


def _read_lists(request: object, problems: _Problems) -> dict[str, Sequence[object]]:
    lists: dict[str, Sequence[object]] = {}
    if request is None:
        return lists
    if not isinstance(request, Mapping):
        problems.append("expected an object @ $.lease_request")
        return lists
    for name, items in cast("Mapping[object, object]", request).items():
        if not isinstance(name, str) or not is_capability(name):
            problems.append(f"expected a capability of §9.2, or x-vendor.<vendor> @ {_path(name)}")
        elif not isinstance(items, list | tuple):
            problems.append(f"expected an array of strings @ {_path(name)}")
        else:
            lists[name] = cast("Sequence[object]", items)
    if sum(len(items) or 1 for items in lists.values()) > MAX_PATTERNS:
        problems.append(f"more than {MAX_PATTERNS} patterns @ $.lease_request")
        return {}
    texts = [item for items in lists.values() for item in items if isinstance(item, str)]
    if sum(text.count("/") + 1 for text in texts) > MAX_SEGMENTS:
        problems.append(f"more than {MAX_SEGMENTS} segments in all @ $.lease_request")
        return {}
    if sum(len(text.encode(errors="surrogatepass")) for text in texts) > MAX_BYTES:
        problems.append(f"more than {MAX_BYTES} bytes of patterns @ $.lease_request")
        return {}
    return lists


def _read_patterns(
    capability: str, items: Sequence[object], problems: _Problems
) -> tuple[Pattern, ...]:
    def read(text: str) -> Pattern:
        return parse_grant(capability, text)

    return tuple(_read_each(capability, items, read, problems))


def _read_budget(items: Sequence[object], problems: _Problems) -> dict[str, Decimal]:
    if not items:
        problems.append(f"expected {_AMOUNT_WORDS} @ {_path(BUDGET)}")
    budget: dict[str, Decimal] = {}

    def read(text: str) -> None:
        match = _AMOUNT.fullmatch(text)
        if match is None:
            raise ValueError(f"expected {_AMOUNT_WORDS}")
        currency, amount = match["currency"], Decimal(match["amount"])
        if (problem := case_problem(currency)) is not None:
            raise ValueError(f"{text}: {problem}")
        budget[currency] = add(budget[currency], amount) if currency in budget else amount

    for _ in _read_each(BUDGET, items, read, problems):
        pass
    return budget


def _read_each(
    capability: str, items: Sequence[object], read: Callable[[str], _T], problems: _Problems
) -> Iterator[_T]:
    for index, item in enumerate(items):
        try:
            yield read(_text(item))
        except ValueError as error:
            problems.append(f"{error} @ {_path(capability)}[{index}]")


def _read_expiry(expires_at: object, now: float, problems: _Problems) -> float | None:
    """Read the time of expiry; a malformed one is refused rather than ignored (§9.5)."""
    if expires_at is None:
        return None
    try:
        expires = parse_utc(_text(expires_at))
    except ValueError:
        problems.append(f"expected an RFC 3339 timestamp ending in Z @ {_EXPIRY_PATH}")
        return None
    if expires <= now:
        problems.append(f"not in the future @ {_EXPIRY_PATH}")
    return expires


def _text(item: object) -> str:
    if isinstance(item, str):
        return item
    raise ValueError("expected a string")


def _path(name: object) -> str:
    return f"$.lease_request[{clip(repr(name))}]"


def listed(problems: list[str]) -> str:
    """Return the first problems in one line."""
    more = ["and more"] if len(problems) > MAX_PROBLEMS else []
    return "; ".join(problems[:MAX_PROBLEMS] + more)
