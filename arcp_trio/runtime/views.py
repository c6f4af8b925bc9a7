"""Short-lived tokens with which one can look at jobs and do nothing else: signed, never stored."""

from __future__ import annotations

import hmac
import logging
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

import attrs

from arcp_trio.wire.errors import InternalError, Unauthenticated
from arcp_trio.wire.json import dumps, loads

PREFIX: Final = "arcp-view."
"""What these tokens begin with; no authenticator is asked about them."""
MOST_SECONDS: Final = 86_400.0
"""How long a token is good for, at most: it cannot be taken back."""
LEAST_KEY_BYTES: Final = 32

SigningKey: TypeAlias = bytes | Callable[[], bytes]
"""The key, or what returns it when it is first needed."""

log = logging.getLogger(__name__)

_SCOPE: Final = "x-vendor.arcp-trio.scope"
"""What stands among the features of a session that is for looking only."""


@attrs.frozen
class Scope:
    """The jobs that may be looked at: one job, or all of a principal's."""

    job_id: str | None = None

    @property
    def feature(self) -> str:
        """The scope as it is stored among the features of its session."""
        return _SCOPE if self.job_id is None else f"{_SCOPE}:{self.job_id}"

    @classmethod
    def among(cls, features: Iterable[str]) -> Scope | None:
        """Return the scope of a session with these features; None if it may do everything."""
        for feature in features:
            name, _, job_id = feature.partition(":")
            if name == _SCOPE:
                return cls(job_id or None)
        return None


@attrs.frozen
class View:
    """What a token lets its bearer see: the jobs of a scope, as a principal sees them, for a time.

    A view of one job is of any job that the principal may observe; one of all jobs has only the
    principal's own.
    """

    principal: str
    scope: Scope
    until: float
    """In seconds since 1970."""

    @classmethod
    def lasting(cls, seconds: float, principal: str, job_id: str | None, *, now: float) -> View:
        """Return a view that begins now.

        Raises:
            ValueError: the time is not above 0, or is too long.
        """
        if not 0 < seconds <= MOST_SECONDS:
            raise ValueError(
                f"a token is good for more than 0 and at most {MOST_SECONDS:g} seconds"
            )
        return cls(principal, Scope(job_id), now + seconds)


class ViewTokens:
    """Signs views as tokens, and reads them. The key is secret: it is all that signing takes."""

    def __init__(self, key: SigningKey | None) -> None:
        """Take the key, of 32 bytes or more; without one, make it.

        Raises:
            ValueError: it is too short.
        """
        key = secrets.token_bytes(LEAST_KEY_BYTES) if key is None else key
        self._source = key if callable(key) else None
        self._known = None if callable(key) else _checked(key)

    def sign(self, view: View) -> str:
        """Return the token of a view.

        Raises:
            InternalError: there is no key.
        """
        said = _text(dumps([view.principal, view.scope.job_id, view.until]))
        return f"{PREFIX}{said}.{self._signature(said)}"

    def read(self, token: str, now: float) -> View | None:
        """Return the view of a token that `sign` has made; None for any other text.

        Raises:
            Unauthenticated: its time is over.
            InternalError: there is no key.
        """
        said, _, signature = token.removeprefix(PREFIX).partition(".")
        good = hmac.compare_digest(self._signature(said).encode(), signature.encode())
        if not (token.startswith(PREFIX) and good):
            return None
        match loads(urlsafe_b64decode(said + "=" * (-len(said) % 4))):
            case [str() as principal, (str() | None) as job_id, (int() | float()) as until]:
                if until <= now:
                    raise Unauthenticated("the token's time is over")
                return View(principal, Scope(job_id), until)
            case _:
                raise AssertionError("only `sign` has the key")

    def _signature(self, said: str) -> str:
        return _text(hmac.digest(self._key(), said.encode(), "sha256"))

    def _key(self) -> bytes:
        if self._known is None:
            assert self._source is not None
            try:
                self._known = _checked(self._source())
            except Exception:  # a fence: the source is the program's
                log.exception("no signing key")
                raise InternalError("the runtime has no key for short-lived tokens") from None
        return self._known


def _checked(key: bytes) -> bytes:
    if len(key) < LEAST_KEY_BYTES:
        raise ValueError(f"the signing key must have {LEAST_KEY_BYTES} bytes or more")
    return key


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")
