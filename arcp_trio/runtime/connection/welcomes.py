"""What a client is told when its session is open (§6.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from arcp_trio.wire import envelope
from arcp_trio.wire.features import (
    ALL_FEATURES,
    CLIENT_FEATURES,
    SUPPORTED,
    Feature,
    knows_ours,
)
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.json import JsonObject, dumps
from arcp_trio.wire.messages import PeerInfo, RuntimeCapabilities, Welcome, WelcomeExtras
from arcp_trio.wire.payloads import to_json
from arcp_trio.wire.rules import VENDOR
from arcp_trio.wire.timestamps import rfc3339

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.session.session import Session
    from arcp_trio.runtime.views import Scope

PRINCIPAL: Final = f"{VENDOR}.principal"
"""The field that says as whom the client is known."""
EXCHANGED: Final = f"{VENDOR}.token"
"""The field with the token for which the client exchanged a one-time code."""
SCHEMA_BYTES: Final = 32 * 1024
"""The most that all schemas in a welcome take: some clients read no line above 64 KiB."""
_MOST_KEPT: Final = 64
"""Parts that are kept; there are more sets of features than any clients have."""


class Welcomes:
    """Makes welcomes, and keeps the part that clients with the same features share."""

    def __init__(self, core: Core, jobs: Jobs) -> None:
        self._core = core
        self._jobs = jobs
        self._shared: dict[tuple[frozenset[str], bool], bytes] = {}
        """By features, and by whether the connection is private."""
        self._told: tuple[int, list[str]] = (0, [])
        """How many agents these tell of, and which nodes."""

    def offered(self, *, private: bool) -> list[str]:
        """Return what the runtime offers: no secrets where others can read along (§14)."""
        offered = {*SUPPORTED, Feature.QUESTIONS, Feature.TOKENS}
        if self._jobs.revoker.offered and private:
            offered.add(Feature.PROVISIONED_CREDENTIALS)
        if self._core.policy.allow_stop:
            offered.add(Feature.STOP)
        return [feature for feature in CLIENT_FEATURES if feature in offered]

    def offered_to_look(self, scope: Scope) -> list[str]:
        """Return what the runtime offers in a session for looking only: neither acts nor secrets.

        The scope is among it, so that the session has it, as long as it lasts.
        """
        return [*SUPPORTED, Feature.QUESTIONS, scope.feature]

    def tail(self, session: Session, token: str, *, private: bool, exchanged: str | None) -> bytes:
        """Return the tail of a `session.welcome`.

        The session id stands in its payload too, where some clients look for it.
        """
        own = {
            "session_id": session.id,
            "resume_token": token,
            "accepted_at": rfc3339(self._core.clock.now()),
        }
        if knows_ours(session.features):
            own[PRINCIPAL] = session.principal
        if exchanged is not None:
            own[EXCHANGED] = exchanged
        shared = self._shared_by(session.features, private=private)
        payload = b"%b,%b" % (dumps(own)[:-1], shared[1:])  # two objects become one
        return envelope.tail(Welcome.type, payload, id=new_id())

    def _shared_by(self, features: frozenset[str], *, private: bool) -> bytes:
        told = (self._jobs.agents.count, sorted(self._core.node_names.values()))
        if self._told != told or len(self._shared) >= _MOST_KEPT:
            self._told = told
            self._shared.clear()
        found = self._shared.get((features, private))
        if found is None:
            found = self._shared[features, private] = self._encoded(features, private=private)
        return found

    def _encoded(self, features: frozenset[str], *, private: bool) -> bytes:
        """Encode what clients share.

        A feature that is not of §6.2 is named only to a client that has named it.
        """
        core, agents = self._core, self._jobs.agents
        with_versions = Feature.AGENT_VERSIONS in features
        pings = Feature.HEARTBEAT in features
        known = features.union(ALL_FEATURES)
        welcome = Welcome(
            session_id="",
            runtime=PeerInfo(name=core.name, version=core.version),
            resume_window_sec=core.limits.resume_window_seconds,
            heartbeat_interval_sec=core.limits.heartbeat_seconds if pings else None,
            capabilities=RuntimeCapabilities(
                encodings=["json"],
                features=[each for each in self.offered(private=private) if each in known],
                agents=[*agents.inventory()] if with_versions else [*sorted(agents.names())],
            ),
            extras=self._extras(ours=knows_ours(features)),
        )
        fields = to_json(welcome)
        del fields["session_id"]
        return dumps(fields)

    def _extras(self, *, ours: bool) -> WelcomeExtras | None:
        """Return what a welcome says beyond §6.2: what only our clients know, only to them."""
        extras = WelcomeExtras(
            input_schemas=_told(self._jobs.agents.input_schemas()),
            store=self._core.store.name if ours else None,
            nodes=(self._told[1] or None) if ours else None,
        )
        return None if extras == WelcomeExtras() else extras


def _told(schemas: Mapping[str, JsonObject]) -> dict[str, JsonObject] | None:
    """Return the schemas of inputs that have room, those that were registered first before all."""
    room, told = SCHEMA_BYTES, dict[str, JsonObject]()
    for ref, schema in schemas.items():
        room -= len(dumps(schema))
        if room >= 0:
            told[ref] = schema
    return told or None
