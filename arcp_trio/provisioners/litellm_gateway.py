"""Requests to a LiteLLM gateway, whose secrets are in no error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

import trio

from arcp_trio.extras import how_to_install
from arcp_trio.wire.errors import InvalidRequest, clip
from arcp_trio.wire.json import JsonLike, JsonObject, dumps, loads, object_in

try:
    import httpx2
except ImportError as error:
    raise ImportError(
        f"the LiteLLM provisioner needs httpx2: {how_to_install('litellm')}", name="httpx2"
    ) from error

_ANY_KEY: Final = re.compile(r"\bsk-[^\s'\"]+")
_MAX_REASON: Final = 300


class LiteLlmError(Exception):
    """A request to the gateway failed, and may succeed when it is repeated."""


class Gateway:
    """The management API of one gateway, used with its master key."""

    def __init__(self, base_url: str, master_key: str, timeout_seconds: float) -> None:
        self.base_url = checked_url(base_url)
        self._master_key = _checked_key(master_key)
        self._timeout_seconds = timeout_seconds
        self._tls = httpx2.create_ssl_context()  # made once, because loading certificates is slow

    async def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, JsonLike] | None = None,
    ) -> httpx2.Response:
        """Send one request, on a new connection, as a job needs only a few."""
        reason = f"no answer within {self._timeout_seconds:g} s"
        with trio.move_on_after(self._timeout_seconds):
            try:
                async with httpx2.AsyncClient(verify=self._tls, timeout=None) as client:
                    return await client.request(
                        method,
                        self.base_url + path,
                        params=params,
                        content=None if body is None else dumps(body),
                        headers={"Content-Type": "application/json"},
                        auth=self._authorize,
                    )
            except httpx2.RequestError as error:
                reason = self._scrubbed(f"{type(error).__name__}: {_root(error)}")
        # Raised here, and not chained: httpx2's exceptions contain the request with the key.
        raise LiteLlmError(f"{path}: {reason}")

    def _authorize(self, request: httpx2.Request) -> httpx2.Request:
        request.headers["Authorization"] = f"Bearer {self._master_key}"
        return request

    def refusal(self, path: str, response: httpx2.Response) -> LiteLlmError:
        """Return the error for an answer that reports a failure."""
        reason = self._scrubbed(str(problem_in(response.content).get("message", "no reason given")))
        return LiteLlmError(f"{path}: {response.status_code}: {reason}")

    def _scrubbed(self, text: str) -> str:
        return clip(_ANY_KEY.sub("sk-…", text.replace(self._master_key, "sk-…")), _MAX_REASON)


def _root(error: BaseException) -> BaseException:
    """Return the first exception of a chain, such as one about a certificate."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return error


def is_unknown_key(response: httpx2.Response) -> bool:
    """Return whether a 404 is the gateway's own, about a key, and not that of a wrong URL."""
    return response.status_code == HTTPStatus.NOT_FOUND and bool(problem_in(response.content))


def problem_in(content: bytes) -> JsonObject:
    """Return the gateway's description of an error, with its type and message, if it gave one."""
    return object_in(json_object(content).get("error"))


def json_object(content: bytes) -> JsonObject:
    """Return the object that an answer is, or an empty one."""
    try:
        return object_in(loads(content))
    except InvalidRequest:
        return {}


def checked_url(url: str) -> str:
    """Return a URL, without the slashes at its end.

    Raises:
        ValueError: it is not one that may be shown.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.port == 0:
        raise ValueError("expected an http or https URL")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError("expected a URL without user, query and fragment: it is shown and logged")
    return url.rstrip("/")


def _checked_key(key: str) -> str:
    # An error of the HTTP library would quote a key that cannot be put into a header.
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ValueError("expected a master key of printable ASCII characters without spaces")
    return key
