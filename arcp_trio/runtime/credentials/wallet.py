"""A job's credentials: issued before its acceptance, rotated by its agent, revoked at its end.

Values live here, in memory, for as long as the job; what is stored is what it takes to revoke them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import attrs
import trio

from arcp_trio.runtime.credentials.provisioner import CredentialOrder, Issued
from arcp_trio.runtime.job.emitting import add_sealed_event
from arcp_trio.runtime.limits import limit_hit
from arcp_trio.runtime.wake import Wake
from arcp_trio.store.records import CredentialRow, CredentialState
from arcp_trio.wire.errors import ArcpError, InternalError
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.json import Json, JsonObject, dumps
from arcp_trio.wire.timestamps import parse_rfc3339, rfc3339

if TYPE_CHECKING:
    from arcp_trio.authority.lease import Lease
    from arcp_trio.runtime.credentials.provisioner import Provisioner
    from arcp_trio.runtime.credentials.revocation import Doomed
    from arcp_trio.runtime.job.job import Job

log = logging.getLogger(__name__)

ROTATED = "credential_rotated"
"""The phase of the `status` event that tells of another value (§9.8.2)."""


@attrs.frozen(kw_only=True)
class Credential:
    """A credential of the job, as it is now (§9.8.1). Present it to its endpoint only."""

    id: str
    scheme: str
    value: str = attrs.field(repr=False)
    endpoint: str
    profile: str | None = None
    constraints: Mapping[str, Json] = attrs.field(factory=dict[str, Json])
    """What the upstream itself enforces."""

    def wire(self) -> JsonObject:
        """All of it, for whoever submitted the job."""
        return {**self.public(), "value": self.value}

    def public(self) -> JsonObject:
        """All but its value, to be stored."""
        fields = {
            "id": self.id,
            "scheme": self.scheme,
            "endpoint": self.endpoint,
            "profile": self.profile,
            "constraints": dict(self.constraints) or None,
        }
        return {name: value for name, value in fields.items() if value is not None}


@attrs.frozen
class _Held:
    credential: Credential
    row: CredentialRow


class Wallet:
    """What one job holds. Whatever is minted for it is revoked, at the latest with the job's end.

    Intent first: that the upstream is about to be asked is stored before it is. So what it minted
    can be revoked though its answer was never read.
    """

    def __init__(self, job: Job, provisioner: Provisioner) -> None:
        self.over = False
        """Everything is being revoked, and nothing new is kept."""
        self.issued = False
        """The job may be accepted with what it holds."""
        self._job = job
        self._provisioner = provisioner
        self._revoker = job.jobs.revoker
        self._held: dict[str, _Held] = {}
        self._minting: set[trio.CancelScope] = set()
        self._minted = Wake()
        self._rotating = trio.Lock()
        self._doomed: list[Doomed] = []
        self._ended_at = 0.0

    def all(self) -> list[Credential]:
        """What the job may use now."""
        return [] if self.over else [held.credential for held in self._held.values()]

    def get(self, credential_id: str) -> Credential | None:
        """The credential with this id, as it is or, behind the job's end, was last."""
        held = self._held.get(credential_id)
        return None if held is None else held.credential

    def explain(self, error: BaseException) -> ArcpError | None:
        """What an error of the upstream's means (§9.6, §9.7); None if it says nothing to us."""
        if not self._held or not isinstance(error, Exception):
            return None
        try:
            return self._provisioner.explain(error)
        except Exception:
            log.exception("error cannot be explained", extra=self._job.facts)
            return None

    # -- minting

    async def issue(self) -> None:
        """Have the job's credentials minted: as many as the upstream finds it needs.

        Raises:
            InternalError: it gets none, and what may have been minted is being revoked.
        """
        for held in await self._mint(self._provisioner.issue):
            self._held[held.credential.id] = held

    async def rotate(self, credential_id: str) -> Credential:
        """Replace a credential, tell of its new value, and have the old one revoked.

        Raises:
            KeyError: the job has no such credential.
            InternalError: there is no other; the old one is as good as before.
        """
        async with self._rotating:
            self._job.refuse_if_ending()
            old = self._held[credential_id]
            ask = partial(self._ask_for_another, old.row)
            first, *others = await self._mint(ask, first_id=credential_id)
            for new in (first, *others):
                self._held[new.credential.id] = new
            self._part_with(old, first)
            for new in (first, *others):
                add_sealed_event(self._job, "status", {"phase": ROTATED, **new.credential.public()})
            return first.credential

    async def _ask_for_another(
        self, row: CredentialRow, order: CredentialOrder
    ) -> Sequence[Issued]:
        assert row.handle is not None
        issued = await self._provisioner.rotate(order, row.handle)
        if not issued:
            raise LookupError("the provisioner has nothing to replace it with")
        return issued

    def _part_with(self, old: _Held, new: _Held) -> None:
        if old.row.handle == new.row.handle:
            # Another value under the same name: to revoke the old would be to revoke the new.
            self._revoker.keep(gone=[old.row.row_id])
        else:
            self._doom([old.row])

    async def _mint(
        self,
        ask: Callable[[CredentialOrder], Awaitable[Sequence[Issued]]],
        first_id: str | None = None,
    ) -> list[_Held]:
        job, order = self._job, self._order()
        intent = CredentialRow(
            row_id=order.id,
            order_id=order.id,
            job_id=job.id,
            principal=job.principal,
            state=CredentialState.ISSUING,
        )
        scope = trio.CancelScope(deadline=trio.current_time() + job.core.limits.issue_seconds)
        self._minting.add(scope)
        kept = False
        try:
            with scope:
                await self._revoker.keep([intent]).committed()
                issued = await ask(order)
                if not self.over:
                    held = self._read(issued, intent, first_id)
                    self._revoker.keep([each.row for each in held], gone=[intent.row_id])
                    kept = True
                    ids = [each.credential.id for each in held]
                    log.info("credentials issued", extra=job.facts | {"credential_ids": ids})
                    return held
            log.warning("credentials not issued", extra=job.facts | {"error": "none in time"})
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the upstream
            log.warning("credentials not issued", extra=job.facts | {"error": repr(error)})
        finally:
            if not kept:
                self._doom([intent])
            self._minting.discard(scope)
            self._minted.set()
        job.refuse_if_ending()
        if scope.cancelled_caught:
            raise limit_hit("issue_seconds", job.core.limits.issue_seconds)
        raise InternalError("the job's credentials could not be issued")

    def _order(self) -> CredentialOrder:
        job, limits = self._job, self._job.core.limits
        authority, lease = job.authority, job.authority.lease
        left = None
        if authority.deadline is not None:
            left = authority.deadline - limits.lease_grace_seconds - trio.current_time()
        return CredentialOrder(
            id=new_id("order_"),
            job_id=job.id,
            principal=job.principal,
            agent=job.agent.ref,
            trace_id=job.trace_id,
            # What it names to grant nothing is not what it does not name.
            lease={**dict.fromkeys(lease.grants, ()), **lease.wire()},
            budget=authority.budget.available() or {},
            expires_at=lease.expires_at,
            seconds_left=None if left is None else max(0.0, left),
        )

    def _read(
        self, issued: Sequence[Issued], intent: CredentialRow, first_id: str | None
    ) -> list[_Held]:
        """What was minted; ValueError if it cannot be shown to anybody."""
        lease = self._job.authority.lease
        held: list[_Held] = []
        for each in issued:
            credential = Credential(
                id=(not held and first_id) or new_id("cred_"),
                scheme=each.scheme,
                value=each.value,
                endpoint=each.endpoint,
                profile=each.profile,
                constraints=_constraints(each, lease),
            )
            dumps(credential.wire())
            row = attrs.evolve(
                intent,
                row_id=new_id("minted_"),
                state=CredentialState.LIVE,
                handle=each.handle,
                credential_id=credential.id,
            )
            held.append(_Held(credential, row))
        return held

    # -- the end

    def end(self) -> None:
        """Have everything revoked."""
        if self.over:
            return
        self.over = True
        self._ended_at = trio.current_time()
        for scope in self._minting:
            scope.cancel(reason="the job is over")
        self._doom([held.row for held in self._held.values()])

    async def ended(self) -> None:
        """Wait until everything is revoked, but not for long: the rest goes on by itself."""
        with self._revoker.patience(self._ended_at):
            while self._minting:
                await self._minted.wait()
            for doomed in self._doomed:
                await doomed.settled.wait()

    def _doom(self, rows: Sequence[CredentialRow]) -> None:
        doomed = [each for each in self._doomed if not each.settled.is_set()]
        self._doomed = doomed + self._revoker.begin(rows)


def _constraints(issued: Issued, lease: Lease) -> Mapping[str, Json]:
    """As they were told, but a time in UTC, which is all that clients need to read (§9.5)."""
    constraints = {name: value for name, value in issued.constraints.items() if value is not None}
    told = constraints.get("expires_at")
    if told is not None:
        moment = parse_rfc3339(told)
        if moment == lease.expires:
            constraints["expires_at"] = lease.expires_at
        elif not told.endswith("Z"):
            constraints["expires_at"] = rfc3339(moment)
    return constraints
