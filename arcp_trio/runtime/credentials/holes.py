"""Frames with holes: stored without their secrets, which are filled in as they are sent (§14)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from arcp_trio.store.records import HOLES
from arcp_trio.wire.json import JsonObject, JsonValue, dumps, list_in, loads_object, object_in

if TYPE_CHECKING:
    from arcp_trio.runtime.credentials.wallet import Wallet

_MARK: Final = bytes([HOLES])

_LISTING: Final = frozenset({"job.accepted", "job.subscribed"})
"""The types of frames that list credentials; the others have one in the body of an event."""


def with_holes(tail: bytes) -> bytes:
    """Mark the tail of a frame as one with holes."""
    return _MARK + tail


def fill_holes(tail: bytes, wallet_of: Callable[[str], Wallet | None]) -> bytes:
    """Return the tail of a frame with holes as one reader may see it.

    `wallet_of` returns the wallet of a job, or None if the reader may not see what is in it. A
    credential without a value is of no use: where credentials are listed, it is left out.
    """
    fields = loads_object(b"{" + tail[len(_MARK) + 1 :])
    payload = object_in(fields["payload"])
    wallet = wallet_of(str(fields["job_id"]))
    if fields["type"] in _LISTING:
        shown = [_filled(each, wallet) for each in list_in(payload.pop("credentials"))]
        if any(shown):
            payload["credentials"] = [each for each in shown if each is not None]
    else:
        body = object_in(payload["body"])
        credential = _filled(body, wallet)
        if credential is not None:
            body["value"] = credential["value"]
    return b"," + dumps(fields)[1:]


def _filled(stored: JsonValue, wallet: Wallet | None) -> JsonObject | None:
    """Return the stored credential as it is now; None if the wallet does not show it."""
    credential = None if wallet is None else wallet.get(str(object_in(stored)["id"]))
    return None if credential is None else credential.wire()
