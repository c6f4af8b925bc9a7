"""Values of credentials between nodes: asked for with a command, and sealed to the asking node."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

import trio

from arcp_trio.runtime.cluster.sealing import NodeKey, seal
from arcp_trio.runtime.credentials.holes import may_see_values
from arcp_trio.runtime.job.commands import Obeyed, Reveal, Sealed
from arcp_trio.runtime.notices import store_trouble
from arcp_trio.store.errors import StoreError
from arcp_trio.store.shared_writes import ShowKey
from arcp_trio.wire.errors import ArcpError, PermissionDenied
from arcp_trio.wire.json import JsonObject, dumps, loads_object

if TYPE_CHECKING:
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.job import Job
    from arcp_trio.store.shared import Shared

log = logging.getLogger(__name__)

SILENT_SECONDS: Final = 10.0
"""How long a node is not asked again that has not answered: frames of clients wait meanwhile."""


class Revealer:
    """Has other nodes reveal credentials to sessions here, and reveals those of the jobs here.

    What the database has of this is sealed: it can be opened by the node that has asked, for as
    long as that runs, and by nobody who reads the database, a replica or a backup.
    """

    def __init__(
        self, core: Core, shared: Shared, ask: Callable[[Reveal], Awaitable[Obeyed | ArcpError]]
    ) -> None:
        """Make a key pair, and show the public key to the other nodes.

        `ask` asks the node of a job, and returns the answer; it may never return.
        """
        self._core = core
        self._shared = shared
        self._ask = ask
        self._key = NodeKey()
        self._silent: dict[int, float] = {}
        """Until when a node is not asked, on Trio's clock, by its number."""
        core.store.put(ShowKey(self._key.public))

    # -- for the sessions here: see `OtherWallets`

    async def reveal(
        self, job_id: str, session_id: str, principal: str
    ) -> Mapping[str, JsonObject]:
        """Ask the job's node, and open what it answers."""
        asked, node = Reveal(job_id, session_id, self._key.public), None
        try:
            with trio.move_on_after(self._core.limits.command_seconds):
                node = await self._node_of(job_id, principal)
                if node is None or self._silent.get(node, -math.inf) > trio.current_time():
                    return {}
                answer = await self._ask(asked)
                self._silent.pop(node, None)
                return self._opened(asked, answer)
        except StoreError as error:
            log.warning("credentials not revealed", extra=_facts(asked) | {"error": str(error)})
            return {}
        if node is not None:
            self._silent[node] = trio.current_time() + SILENT_SECONDS
        log.warning("credentials not revealed in time", extra=_facts(asked) | {"node": node})
        return {}

    async def _node_of(self, job_id: str, principal: str) -> int | None:
        """Return the node at which a job of the principal runs; None if it does not run."""
        row = await self._core.store.for_principal(principal).job(job_id)
        if row is None or row.finished_at is not None or row.principal != principal:
            return None
        return row.node

    def _opened(self, asked: Reveal, answer: Obeyed | ArcpError) -> Mapping[str, JsonObject]:
        if isinstance(answer, ArcpError):
            log.info("credentials not revealed", extra=_facts(asked) | {"error": answer.message})
            return {}
        opened = dict[str, JsonObject]()
        if answer.sealed is not None:
            for credential_id, sealed in answer.sealed.credentials.items():
                about = _about(asked, credential_id, self._shared.node, answer.sealed.node)
                try:
                    opened[credential_id] = loads_object(self._key.open(sealed, about))
                except ValueError as error:
                    log.warning(
                        "credential cannot be opened", extra=_facts(asked) | {"error": str(error)}
                    )
        return opened

    # -- for the sessions at other nodes

    async def seal(self, job: Job, asked: Reveal, asker: int) -> Obeyed:
        """Seal a job's credentials to the node that has asked, if its session may see them.

        Raises:
            PermissionDenied: it may not, the session or the key is not that of the node, or the key
                is not valid.
            InternalError: the store cannot be read now.
        """
        store = self._core.store.for_principal(job.principal)
        try:
            row = await store.session(asked.session_id)
            shown = await self._shared.public_key(asker, asked.session_id)
        except StoreError:
            raise store_trouble(self._core.store) from None
        if (
            row is None
            or not may_see_values(row.principal, row.features, job.principal)
            or shown != asked.public_key
        ):
            raise _refused(
                asked, asker, "the session may not see this, or is not at the node that asks"
            )
        held = [] if job.wallet is None else job.wallet.all()
        values = {each.id: dumps(each.wire()) for each in held}
        me = self._shared.node
        try:
            sealed = {
                id_: seal(value, asked.public_key, _about(asked, id_, asker, me))
                for id_, value in values.items()
            }
        except ValueError:
            raise _refused(asked, asker, "the node that asks has no valid public key") from None
        return Obeyed(sealed=Sealed(me, sealed))


def _refused(asked: Reveal, asker: int, why: str) -> PermissionDenied:
    """Note that a node is not told a job's credentials, and return the error for it."""
    facts = _facts(asked) | {"node": asker, "error": why}
    log.warning("credentials kept from another node", extra=facts)
    return PermissionDenied(why)


def _about(asked: Reveal, credential_id: str, asker: int, node: int) -> bytes:
    """Return what a sealed credential is about: it cannot be passed off as another one."""
    return dumps([asked.job_id, credential_id, asked.session_id, asker, node])


def _facts(asked: Reveal) -> dict[str, object]:
    return {"job_id": asked.job_id, "session_id": asked.session_id}
