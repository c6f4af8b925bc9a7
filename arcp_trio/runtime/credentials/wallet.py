"""A job's credentials: issued before its acceptance, rotated by its agent, revoked at its end.

Values are in memory only, for as long as the job is. What is stored is what it takes to revoke
them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import attrs
import trio
from msgspec.structs import replace

from arcp_trio.runtime.credentials.credential import Credential, credential_of
from arcp_trio.runtime.credentials.provisioner import CredentialOrder, Issued
from arcp_trio.runtime.limits import limit_hit
from arcp_trio.runtime.wake import Wake
from arcp_trio.store.records import CredentialRow, CredentialState
from arcp_trio.wire.errors import ArcpError, InternalError
from arcp_trio.wire.ids import new_id

if TYPE_CHECKING:
    from arcp_trio.runtime.credentials.provisioner import Provisioner
    from arcp_trio.runtime.credentials.revocation import Revocation, Revoker

log = logging.getLogger(__name__)


@attrs.frozen
class _Held:
    credential: Credential
    row: CredentialRow


class Wallet:
    """The credentials of one job. All that is minted for it is revoked, at its end at the latest.

    Intent first: a row that says what the upstream is about to be asked for is stored before the
    upstream is asked. So what it minted can be revoked even if its answer is never read.
    """

    def __init__(
        self,
        revoker: Revoker,
        provisioner: Provisioner,
        *,
        order: Callable[[], CredentialOrder],
        announce: Callable[[Credential], None],
        refuse_if_ending: Callable[[], None],
        issue_seconds: float,
        facts: Mapping[str, object],
    ) -> None:
        """Make an empty wallet.

        Args:
            revoker: revokes what the job no longer needs.
            provisioner: mints what the job needs.
            order: makes an order for what the job may still do and spend.
            announce: tells the job's client of a credential that has replaced another.
            refuse_if_ending: raises once the job's end is decided.
            issue_seconds: how long the upstream may take to mint.
            facts: what each line of the log says of the job.
        """
        self._closed = False
        """Everything is being revoked, and nothing new is kept."""
        self._closed_at = 0.0
        self._revoker = revoker
        self._provisioner = provisioner
        self._order = order
        self._announce = announce
        self._refuse_if_ending = refuse_if_ending
        self._issue_seconds = issue_seconds
        self._facts = facts
        self._held: dict[str, _Held] = {}
        self._minting: set[trio.CancelScope] = set()
        self._minted = Wake()
        self._rotating = trio.Lock()
        self._revocations: list[Revocation] = []

    def all(self) -> list[Credential]:
        """Return the credentials that the job may use now."""
        return [] if self._closed else [held.credential for held in self._held.values()]

    def get(self, credential_id: str) -> Credential | None:
        """Return the credential with this id; after the job's end, as it was last."""
        held = self._held.get(credential_id)
        return None if held is None else held.credential

    def explain(self, error: BaseException) -> ArcpError | None:
        """Return what an error of the upstream means (§9.6, §9.7); None if it is not one."""
        if not self._held or not isinstance(error, Exception):
            return None
        try:
            return self._provisioner.explain(error)
        except Exception:
            log.exception("error cannot be explained", extra=self._facts)
            return None

    # -- minting

    async def issue(self) -> None:
        """Have the job's credentials minted: as many as the upstream finds it needs.

        Raises:
            InternalError: there are no credentials; what may have been minted is being revoked.
        """
        for held in await self._mint(self._provisioner.issue):
            self._held[held.credential.id] = held

    async def rotate(self, credential_id: str) -> Credential:
        """Replace a credential, announce the new one, and have the old one revoked.

        Raises:
            KeyError: the job has no such credential.
            InternalError: there is no new one, and the old one stays valid.
        """
        async with self._rotating:
            self._refuse_if_ending()
            old = self._held[credential_id]
            ask = partial(self._ask_for_another, old.row)
            first, *others = await self._mint(ask, first_id=credential_id)
            for new in (first, *others):
                self._held[new.credential.id] = new
            self._part_with(old, first)
            for new in (first, *others):
                self._announce(new.credential)
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
            # Another value under the same name: to revoke the old one would revoke the new one.
            self._revoker.keep(gone=[old.row.row_id])
        else:
            self._revoke([old.row])

    async def _mint(
        self,
        ask: Callable[[CredentialOrder], Awaitable[Sequence[Issued]]],
        first_id: str | None = None,
    ) -> list[_Held]:
        """Store the intent, ask the upstream, and keep what it minted, or have that revoked."""
        order = self._order()
        intent = CredentialRow(
            row_id=order.id,
            order_id=order.id,
            job_id=order.job_id,
            principal=order.principal,
            state=CredentialState.ISSUING,
        )
        scope = trio.CancelScope(deadline=trio.current_time() + self._issue_seconds)
        self._minting.add(scope)
        kept = False
        try:
            with scope:
                await self._revoker.keep([intent]).committed()
                issued = await ask(order)
                if not self._closed:
                    held = _read(issued, intent, order.expires_at, first_id)
                    self._revoker.keep([each.row for each in held], gone=[intent.row_id])
                    kept = True
                    ids = [each.credential.id for each in held]
                    log.info("credentials issued", extra={**self._facts, "credential_ids": ids})
                    return held
            log.warning("credentials not issued", extra={**self._facts, "error": "none in time"})
        except ArcpError as refusal:  # the provisioner's words, for the client
            log.info("credentials refused", extra={**self._facts, "error": repr(refusal)})
            raise
        except Exception as error:  # noqa: BLE001 - anything may be wrong with the upstream
            log.warning("credentials not issued", extra={**self._facts, "error": repr(error)})
        finally:
            if not kept:
                self._revoke([intent])
            self._minting.discard(scope)
            self._minted.set()
        self._refuse_if_ending()
        if scope.cancelled_caught:
            raise limit_hit("issue_seconds", self._issue_seconds)
        raise InternalError("the job's credentials could not be issued")

    # -- the job's end

    def close(self) -> None:
        """Have everything revoked, and keep nothing new."""
        if self._closed:
            return
        self._closed = True
        self._closed_at = trio.current_time()
        for scope in self._minting:
            scope.cancel(reason="the job is over")
        self._revoke([held.row for held in self._held.values()])

    async def revoked(self) -> None:
        """Wait until everything is revoked, but not for long: the revoker goes on by itself."""
        with self._revoker.patience(self._closed_at):
            while self._minting:
                await self._minted.wait()
            for revocation in self._revocations:
                await revocation.settled.wait()

    def _revoke(self, rows: Sequence[CredentialRow]) -> None:
        unsettled = [each for each in self._revocations if not each.settled.is_set()]
        self._revocations = unsettled + self._revoker.begin(rows)


def _read(
    issued: Sequence[Issued], intent: CredentialRow, expires_at: str | None, first_id: str | None
) -> list[_Held]:
    """Return what was minted; the first credential gets `first_id`, if that is given.

    Raises:
        ValueError: a credential cannot be sent to a client.
    """
    held: list[_Held] = []
    for each in issued:
        credential_id = (not held and first_id) or new_id("cred_")
        credential = credential_of(each, credential_id, expires_at)
        row = replace(
            intent,
            row_id=new_id("minted_"),
            state=CredentialState.LIVE,
            handle=each.handle,
            credential_id=credential.id,
        )
        held.append(_Held(credential, row))
    return held
