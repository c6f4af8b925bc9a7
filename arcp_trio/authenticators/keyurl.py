"""A set of keys at a URL, where their owner rotates them at will."""

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
"""For the whole answer. A handshake waits for it, and has 10 s itself."""
AGAIN_SECONDS: Final = 10.0
"""Between two fetches at least, whatever keys tokens name: anybody can make up a name."""
FRESH_SECONDS: Final = 300.0
"""How long a key that was taken out of the set may still be good."""

_PLAIN: Final = re.compile("[!-~]+")

log = logging.getLogger(__name__)


class KeyUrl:
    """Fetches the set when it is needed, and again when it is old or a token names a new key.

    One fetch at a time, made by whoever needs it first. One that fails takes no key away.
    """

    def __init__(
        self, url: str, algorithms: Collection[str], *, now: Callable[[], float] = time.monotonic
    ) -> None:
        """Nothing is fetched before the first token: the other side may not be up yet.

        Raises:
            ValueError: what is fetched from there could be forged, or the URL tells a secret.
        """
        self._name = url
        self._url = _checked(url)
        self._algorithms = algorithms
        self._now = now
        # Slow to make, so not made for each request.
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
            return key  # somebody is refreshing the set; what is known does not wait for that
        if self._asking.locked() or self._is_due(key):
            async with self._asking:
                if self._is_due(self._known(algorithm, key_id)):
                    await self._ask()
            key = self._known(algorithm, key_id)
        if self._keys is None or (key is None and not self._answered):
            raise InternalError("the token cannot be checked just now")
        return key

    def _known(self, algorithm: str, key_id: str | None) -> Key | None:
        return None if self._keys is None else self._keys.find(algorithm, key_id)

    def _is_due(self, key: Key | None) -> bool:
        satisfied = key is not None and self._answered
        return self._now() - self._asked_at >= (FRESH_SECONDS if satisfied else AGAIN_SECONDS)

    async def _ask(self) -> None:
        # It counts from here on: whoever asks may be cut off, and that as often as somebody likes.
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
        raise ValueError(f"no whole answer within {FETCH_SECONDS:g} s")


def _checked(url: str) -> SplitResult:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError("expected an https URL")
    if "@" in parts.netloc or parts.fragment or not _PLAIN.fullmatch(url):
        raise ValueError("expected a URL without user and fragment, in plain characters")
    if parts.scheme == "http" and not is_this_machine(parts.hostname):
        raise ValueError("expected https: on the way, anybody could put their own keys in")
    return parts
