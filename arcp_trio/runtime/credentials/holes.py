"""Frames with holes: stored without their secrets, which are filled in as they are sent (§14)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, Protocol, TypeAlias

from arcp_trio.store.records import HOLES
from arcp_trio.wire.features import Feature
from arcp_trio.wire.json import JsonObject, dumps, list_in, loads_object, object_in

Lookup: TypeAlias = Callable[[str, str], JsonObject | None]
"""Returns a job's credential, given the ids of both; None if the reader may not see it."""

_MARK: Final = bytes([HOLES])

_SUBSCRIBED: Final = "job.subscribed"
_LISTING: Final = frozenset({"job.accepted", _SUBSCRIBED})
"""The types of frames that list credentials; the others have one in the body of an event."""


def with_holes(tail: bytes) -> bytes:
    """Mark the tail of a frame as one with holes."""
    return _MARK + tail


def has_holes(tail: bytes) -> bool:
    """Whether the tail of a frame has holes."""
    return tail[0] == HOLES


def job_of(tail: bytes) -> str:
    """Return the id of the job whose credentials go into the holes of a tail."""
    return str(_fields(tail)["job_id"])


def fill_holes(tail: bytes, find: Lookup, held: Iterable[str] = ()) -> bytes:
    """Return the tail of a frame with holes as one reader may see it.

    A credential without a value is of no use: where credentials are listed, it is left out.

    Args:
        tail: of the frame.
        find: finds credentials.
        held: the ids of those that a job at another node has by now. The answer to a subscription
            lists them, too: this node knows only what the job was accepted with.
    """
    fields = _fields(tail)
    payload, job_id = object_in(fields["payload"]), str(fields["job_id"])
    if fields["type"] in _LISTING:
        ids = [str(object_in(each)["id"]) for each in list_in(payload.pop("credentials"))]
        if fields["type"] == _SUBSCRIBED:
            ids = [*dict.fromkeys([*ids, *held])]
        shown = [find(job_id, credential_id) for credential_id in ids]
        if any(shown):
            payload["credentials"] = [each for each in shown if each is not None]
    else:
        body = object_in(payload["body"])
        credential = find(job_id, str(body["id"]))
        if credential is not None:
            body["value"] = credential["value"]
    return b"," + dumps(fields)[1:]


def _fields(tail: bytes) -> JsonObject:
    return loads_object(b"{" + tail[len(_MARK) + 1 :])


def may_see_values(principal: str, features: Collection[str], owner: str) -> bool:
    """Whether a session may see the values of the credentials of a job of `owner` (§9.8.1).

    Only sessions of the job's own principal may, and only if they negotiated the feature, which is
    offered on private connections only. Other principals that observe the job may not.
    """
    return principal == owner and Feature.PROVISIONED_CREDENTIALS in features


class OtherWallets(Protocol):
    """The credentials of jobs at other nodes, as far as these reveal them."""

    async def reveal(
        self, job_id: str, session_id: str, principal: str
    ) -> Mapping[str, JsonObject]:
        """Return a job's credentials by id, for a session here of this principal.

        Nothing is returned that the session may not see, that the job's node cannot reveal, or that
        does not come in time.
        """
        ...
