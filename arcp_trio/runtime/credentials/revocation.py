"""Revoking credentials, for as long as it takes: across failures, and across restarts (§9.8.2)."""

from __future__ import annotations

import heapq
import logging
import math
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Final

import attrs
import trio
from msgspec.structs import replace

from arcp_trio.runtime.credentials.provisioner import CannotRevoke, Provisioner
from arcp_trio.runtime.wake import Wake
from arcp_trio.store.records import CredentialRow, CredentialState
from arcp_trio.store.writes import KeepCredentials

if TYPE_CHECKING:
    from arcp_trio.runtime.core import Core
    from arcp_trio.store.queue import Group

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS: Final = 0.5
LAST_PAUSE_SECONDS: Final = 60.0
"""Between attempts to revoke one credential; each pause is twice the one before, up to the last."""

MOST_DOUBLINGS: Final = 16
"""Enough for the last pause. Without a bound, the power would exceed a float after a day."""

ATTEMPTS_AT_ONCE: Final = 64
"""After a restart there may be many credentials to revoke: do not flood the upstream."""

AHEAD: Final = -math.inf
"""Due before all other revocations."""


@attrs.define(eq=False)
class Revocation:
    """A credential that is being revoked."""

    row: CredentialRow
    failures: int = 0
    """How many attempts have failed."""
    settled: trio.Event = attrs.field(factory=trio.Event)
    """The upstream has revoked the credential, or never will."""


class Revoker:
    """Knows every credential that is not revoked yet, and revokes those that are no longer needed.

    Nothing is forgotten: a row is deleted when the upstream has said that its credential is
    worthless.
    """

    def __init__(self, core: Core, provisioner: Provisioner | None) -> None:
        self.provisioner = provisioner
        self._core = core
        self._rows: dict[str, CredentialRow] = {}
        self._due: list[tuple[float, int, Revocation]] = []
        """A heap, by time and then by `_order`."""
        self._order = count()
        self._unsettled: dict[Revocation, None] = {}
        self._attempts = 0
        """How many attempts are being made."""
        self._wake = Wake()
        self._patience = core.limits.revoke_seconds
        self._waits: set[trio.CancelScope] = set()

    @property
    def offered(self) -> bool:
        """Whether jobs can get credentials: only a durable store guarantees revocation (§14)."""
        return self.provisioner is not None and self._core.store.durable

    @property
    def outstanding(self) -> int:
        """How many credentials are not revoked, those of running jobs included."""
        return len(self._rows)

    def keep(self, rows: Sequence[CredentialRow] = (), *, gone: Sequence[str] = ()) -> Group:
        """Store credentials that must be revoked one day, and delete rows that need not be."""
        for row_id in gone:
            self._rows.pop(row_id, None)
        self._rows |= {row.row_id: row for row in rows}
        return self._core.store.put(KeepCredentials(rows, gone))

    # -- what is to be revoked

    def begin(self, rows: Iterable[CredentialRow], due: float = AHEAD) -> list[Revocation]:
        """Have credentials revoked, from `due` on."""
        begun = [Revocation(replace(row, state=CredentialState.REVOKING)) for row in rows]
        if begun:
            self.keep([each.row for each in begun])
            self._unsettled |= dict.fromkeys(begun)
            for each in begun:
                self._schedule(each, due)
        return begun

    async def take_over(self, rows: Sequence[CredentialRow]) -> None:
        """Revoke what a previous runtime has left; wait for it, at most `revoke_seconds`."""
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

    # -- waiting, never for long

    @contextmanager
    def patience(self, since: float) -> Generator[None]:
        """Shield a wait for revocations, and end it `revoke_seconds` after `since`, or sooner."""
        with trio.CancelScope(deadline=since + self._patience, shield=True) as scope:
            self._waits.add(scope)
            try:
                yield
            finally:
                self._waits.discard(scope)

    def hurry(self, seconds: float) -> None:
        """End each wait for revocations after `seconds` at most, from now on."""
        self._patience = min(self._patience, seconds)
        for scope in self._waits:
            scope.deadline = min(scope.deadline, trio.current_time() + seconds)

    async def idle(self) -> None:
        """Wait until every revocation is settled."""
        while self._unsettled:
            await next(iter(self._unsettled)).settled.wait()

    # -- the work

    async def run(self) -> None:
        """Revoke what is due, and try again what failed, until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                while self._is_due():
                    _, _, revocation = heapq.heappop(self._due)
                    self._attempts += 1
                    name = f"revoke {revocation.row.row_id}"
                    nursery.start_soon(self._attempt, revocation, name=name)
                busy = self._attempts >= ATTEMPTS_AT_ONCE
                due = math.inf if busy or not self._due else self._due[0][0]
                with trio.CancelScope(deadline=due):
                    await self._wake.wait()

    def _is_due(self) -> bool:
        if not self._due or self._attempts >= ATTEMPTS_AT_ONCE:
            return False
        return self._due[0][0] <= trio.current_time()

    def _schedule(self, revocation: Revocation, due: float) -> None:
        heapq.heappush(self._due, (due, next(self._order), revocation))
        self._wake.set()

    async def _attempt(self, revocation: Revocation) -> None:
        provisioner, row = self.provisioner, revocation.row
        assert provisioner is not None
        try:
            with trio.fail_after(self._core.limits.revoke_seconds):
                await provisioner.revoke(row.order_id, row.handle)
        except CannotRevoke as error:
            # The row stays, and the next start tries again (§14).
            facts = _facts(row) | {"error": str(error)}
            log.error("credential cannot be revoked", extra=facts)  # noqa: TRY400
            self.keep([replace(row, state=CredentialState.UNREVOCABLE)])
            self._settle(revocation)
        except Exception as error:  # noqa: BLE001 - anything may be wrong with the upstream
            self._try_again(revocation, error)
        else:
            self._revoked(revocation)
        finally:
            self._attempts -= 1
            self._wake.set()

    def _try_again(self, revocation: Revocation, error: Exception) -> None:
        doublings = min(revocation.failures, MOST_DOUBLINGS)
        pause = min(FIRST_PAUSE_SECONDS * 2**doublings, LAST_PAUSE_SECONDS)
        revocation.failures += 1
        again = {"error": repr(error), "again_in_seconds": pause}
        log.warning("credential not revoked", extra=_facts(revocation.row) | again)
        self._schedule(revocation, trio.current_time() + pause)

    def _revoked(self, revocation: Revocation) -> None:
        row, first = revocation.row, not revocation.settled.is_set()
        self._settle(revocation)
        if row.handle is None and first:
            # The upstream's answer never came: it may mint the credential after this revocation.
            # So revoke it once more, when the request can no longer be on its way.
            revocation.failures = 0
            self._schedule(revocation, trio.current_time() + self._core.limits.issue_seconds)
        else:
            log.info("credential revoked", extra=_facts(row))
            self.keep(gone=[row.row_id])

    def _settle(self, revocation: Revocation) -> None:
        revocation.settled.set()
        self._unsettled.pop(revocation, None)


def _facts(row: CredentialRow) -> dict[str, object]:
    return {
        "credential_id": row.credential_id,  # None if the upstream's answer never came
        "job_id": row.job_id,
        "principal": row.principal,
        "order_id": row.order_id,
        "handle": row.handle,
    }
