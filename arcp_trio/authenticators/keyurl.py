"""A key set at a URL, whose owner may rotate the keys at any time."""

from __future__ import annotations

import logging
import math
import re
import ssl
import time
from collections.abc import Callable, Collection
from typing import Final
from urllib.parse import SplitResult, urlsplit

import trio

from arcp_trio.addresses import is_this_machine
from arcp_trio.authenticators.fetching import get
from arcp_trio.authenticators.keys import MOST_BYTES, Key, KeySet, parse_key_set
from arcp_trio.wire.errors import InternalError

FETCH_SECONDS: Final = 5.0
"""The longest that a fetch may take; a connection's opening handshake has 10 s, and waits."""
AGAIN_SECONDS: Final = 10.0
"""The least time between two fetches: anybody can send tokens with unknown key ids."""
FRESH_SECONDS: Final = 300.0
"""How long a fetched set is used, and so a key that was removed from it."""

_PLAIN: Final = re.compile("[!-~]+")

log = logging.getLogger(__name__)


class KeyUrl:
    """Fetches the set when a token needs it, and again when it is old or lacks the token's key.

    Only one fetch runs at a time. A fetch that fails leaves the keys as they are.
    """

    def __init__(
        self, url: str, algorithms: Collection[str], *, now: Callable[[], float] = time.monotonic
    ) -> None:
        """Check the URL; the first fetch waits for the first token, as the issuer may start later.

        Raises:
            ValueError: a response from the URL could be forged, or the URL contains a secret.
        """
        self._name = url
        self._url = _checked(url)
        self._algorithms = algorithms
        self._now = now
        # Made once, because loading the certificates is slow.
        self._tls = ssl.create_default_context() if self._url.scheme == "https" else None
        self._keys: KeySet | None = None
        self._asked_at = -math.inf
        self._answered = False
        self._failing = False
        self._asking = trio.Lock()

    async def find(self, algorithm: str, key_id: str | None) -> Key | None:
        """Return the key that a token names."""
        key = self._known(algorithm, key_id)
        if key is not None and self._asking.locked():
            return key  # another task is refreshing the set, for which a known key need not wait
        if self._asking.locked() or self._is_due(key):
            async with self._asking:
                if self._is_due(self._known(algorithm, key_id)):
                    await self._ask()
            key = self._known(algorithm, key_id)
        if self._keys is None or (key is None and not self._answered):
            raise InternalError("the token cannot be checked at the moment")
        return key

    def _known(self, algorithm: str, key_id: str | None) -> Key | None:
        return None if self._keys is None else self._keys.find(algorithm, key_id)

    def _is_due(self, key: Key | None) -> bool:
        satisfied = key is not None and self._answered
        return self._now() - self._asked_at >= (FRESH_SECONDS if satisfied else AGAIN_SECONDS)

    async def _ask(self) -> None:
        # Record the attempt first: a cancelled caller must not defeat the rate limit.
        self._asked_at, self._answered = self._now(), False
        try:
            self._keys = parse_key_set(await self._fetch(), self._algorithms)
        except ValueError as error:
            if not self._failing:
                facts = {"url": self._name, "error": str(error)}
                log.error("keys not fetched", extra=facts)  # noqa: TRY400
            self._failing = True
        else:
            if self._failing:
                log.info("keys fetched again", extra={"url": self._name})
            self._failing = False
        self._answered = True

    async def _fetch(self) -> bytes:
        with trio.move_on_after(FETCH_SECONDS):
            return await get(self._url, self._tls, most_bytes=MOST_BYTES)
        raise ValueError(f"no complete answer within {FETCH_SECONDS:g} s")


def _checked(url: str) -> SplitResult:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError("expected an https URL")
    if "@" in parts.netloc or parts.fragment or not _PLAIN.fullmatch(url):
        raise ValueError("expected a URL without user and fragment, in printable ASCII")
    if parts.scheme == "http" and not is_this_machine(parts.hostname):
        raise ValueError("expected https: without it, the keys could be replaced on the way")
    return parts
