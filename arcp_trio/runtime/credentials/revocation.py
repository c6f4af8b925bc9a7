"""Revoking credentials, for as long as it takes: across failures, and across restarts (§9.8.2)."""

from __future__ import annotations

import heapq
import logging
import math
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

import attrs
import trio

from arcp_trio.runtime.credentials.provisioner import CannotRevoke, Provisioner
from arcp_trio.runtime.wake import Wake
from arcp_trio.store.records import CredentialRow, CredentialState
from arcp_trio.store.writes import KeepCredentials

if TYPE_CHECKING:
    from arcp_trio.runtime.core import Core
    from arcp_trio.store.queue import Group

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 0.5, 60.0
"""Between tries to revoke one credential; each pause is twice the one before."""

MOST_DOUBLINGS = 16
"""The pause is the last one long before; a day of tries would take the power beyond any float."""

TRIES_AT_ONCE = 64
"""After a restart there may be many to revoke; the upstream is not to be flooded."""

AHEAD = -math.inf
"""Due before all that waits for another try, or was left by a runtime before."""


@attrs.define(eq=False)
class Doomed:
    """A credential that is to be revoked."""

    row: CredentialRow
    tries: int = 0
    """That have failed."""
    settled: trio.Event = attrs.field(factory=trio.Event)
    """The upstream has revoked it, or never will."""


class Revoker:
    """Knows every credential that is not revoked yet, and revokes those whose time has come.

    Nothing is forgotten: a row goes when the upstream has said that the credential is worthless.
    """

    def __init__(self, core: Core, provisioner: Provisioner | None) -> None:
        self.provisioner = provisioner
        self._core = core
        self._rows: dict[str, CredentialRow] = {}
        self._due: list[tuple[float, int, Doomed]] = []
        """A heap, by time; what is due at one time goes in order."""
        self._order = count()
        self._unsettled: dict[Doomed, None] = {}
        self._trying = 0
        self._wake = Wake()
        self._patience = core.limits.revoke_seconds
        self._waits: set[trio.CancelScope] = set()

    @property
    def offered(self) -> bool:
        """Whether jobs can get credentials: their revocation must be guaranteed (§14)."""
        return self.provisioner is not None and self._core.store.durable

    @property
    def outstanding(self) -> int:
        """How many credentials are not revoked, those of running jobs included."""
        return len(self._rows)

    def keep(self, rows: Sequence[CredentialRow] = (), *, gone: Sequence[str] = ()) -> Group:
        """Have these revoked one day, even by the next runtime; those not any more."""
        for row_id in gone:
            self._rows.pop(row_id, None)
        self._rows |= {row.row_id: row for row in rows}
        return self._core.store.put(KeepCredentials(rows, gone))

    # -- what is to be revoked

    def begin(self, rows: Iterable[CredentialRow], due: float = AHEAD) -> list[Doomed]:
        """Have these revoked from now on, before what has waited already unless told otherwise."""
        doomed = [Doomed(attrs.evolve(row, state=CredentialState.REVOKING)) for row in rows]
        if doomed:
            self.keep([each.row for each in doomed])
            self._unsettled |= dict.fromkeys(doomed)
            for each in doomed:
                self._schedule(each, due)
        return doomed

    async def take_over(self, rows: Sequence[CredentialRow]) -> None:
        """See to what a runtime before has not revoked; what takes long goes on behind this."""
        if not rows:
            return
        self._rows |= {row.row_id: row for row in rows}
        if self.provisioner is None:
            log.error("no provisioner to revoke credentials with", extra={"count": len(rows)})
            return
        log.warning("credentials are left of jobs that are over", extra={"count": len(rows)})
        now = trio.current_time()
        with self.patience(now):
            for each in self.begin(rows, due=now):
                await each.settled.wait()

    # -- waiting for it, never for long

    @contextmanager
    def patience(self, since: float) -> Generator[None]:
        """Around a wait for revocation: shielded, and cut short some time after `since`."""
        with trio.CancelScope(deadline=since + self._patience, shield=True) as scope:
            self._waits.add(scope)
            try:
                yield
            finally:
                self._waits.discard(scope)

    def hurry(self, seconds: float) -> None:
        """Let nobody wait longer than this from now on."""
        self._patience = min(self._patience, seconds)
        for scope in self._waits:
            scope.deadline = min(scope.deadline, trio.current_time() + seconds)

    async def idle(self) -> None:
        """Wait until nothing is being revoked."""
        while self._unsettled:
            await next(iter(self._unsettled)).settled.wait()

    # -- the work

    async def run(self) -> None:
        """Revoke what is due, and try again what failed, until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                while self._is_due():
                    _, _, doomed = heapq.heappop(self._due)
                    self._trying += 1
                    nursery.start_soon(self._try, doomed, name=f"revoke {doomed.row.row_id}")
                busy = self._trying >= TRIES_AT_ONCE
                due = math.inf if busy or not self._due else self._due[0][0]
                with trio.CancelScope(deadline=due):
                    await self._wake.wait()

    def _is_due(self) -> bool:
        if not self._due or self._trying >= TRIES_AT_ONCE:
            return False
        return self._due[0][0] <= trio.current_time()

    def _schedule(self, doomed: Doomed, due: float) -> None:
        heapq.heappush(self._due, (due, next(self._order), doomed))
        self._wake.set()

    async def _try(self, doomed: Doomed) -> None:
        provisioner, row = self.provisioner, doomed.row
        assert provisioner is not None
        try:
            with trio.fail_after(self._core.limits.revoke_seconds):
                await provisioner.revoke(row.order_id, row.handle)
        except CannotRevoke as error:
            # Its row stays, and the next start tries again (§14).
            facts = _facts(row) | {"error": str(error)}
            log.error("credential cannot be revoked", extra=facts)  # noqa: TRY400
            self.keep([attrs.evolve(row, state=CredentialState.UNREVOCABLE)])
            self._settle(doomed)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the upstream
            doublings = min(doomed.tries, MOST_DOUBLINGS)
            pause = min(FIRST_PAUSE_SECONDS * 2**doublings, LAST_PAUSE_SECONDS)
            doomed.tries += 1
            again = {"error": repr(error), "again_in_seconds": pause}
            log.warning("credential not revoked", extra=_facts(row) | again)
            self._schedule(doomed, trio.current_time() + pause)
        else:
            self._revoked(doomed)
        finally:
            self._trying -= 1
            self._wake.set()

    def _revoked(self, doomed: Doomed) -> None:
        row, first = doomed.row, not doomed.settled.is_set()
        self._settle(doomed)
        if row.handle is None and first:
            # The upstream was asked for it and its answer never came: what it has minted since
            # would be nobody's. So once more, when nothing can be on its way any longer.
            doomed.tries = 0
            self._schedule(doomed, trio.current_time() + self._core.limits.issue_seconds)
        else:
            log.info("credential revoked", extra=_facts(row))
            self.keep(gone=[row.row_id])

    def _settle(self, doomed: Doomed) -> None:
        doomed.settled.set()
        self._unsettled.pop(doomed, None)


def _facts(row: CredentialRow) -> dict[str, object]:
    return {
        "credential_id": row.credential_id,  # none if the upstream's answer never came
        "job_id": row.job_id,
        "principal": row.principal,
        "order_id": row.order_id,
        "handle": row.handle,
    }
