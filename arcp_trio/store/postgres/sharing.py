"""What a node does and knows as one of several, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from arcp_trio.store.postgres import _commands, _following, _holdings, _keys, _moving
from arcp_trio.store.postgres._connections import DatabaseThread, Membership
from arcp_trio.store.postgres._wake_ups import WakeUps
from arcp_trio.store.postgres.nodes import PostgresNodes
from arcp_trio.store.postgres.reader import PostgresReader
from arcp_trio.store.shared import (
    FoundSession,
    Holding,
    News,
    OpenCommand,
    SessionPlace,
    Shared,
    Timed,
)


class PostgresShared(PostgresNodes, Shared):
    """What a node does and knows as one of several; each method is as `Shared` says."""

    def __init__(
        self,
        membership: Membership,
        line: DatabaseThread,
        reader: PostgresReader,
        wake_ups: WakeUps,
    ) -> None:
        """Make it for a node that is yet to join.

        Args:
            membership: the node.
            line: the connection for what may wait for locks that other nodes hold.
            reader: reads what has no owner.
            wake_ups: between the nodes.
        """
        super().__init__(membership, line)
        self._reader = reader
        self._resumes = reader.for_principal("", urgent=True)
        self._wake_ups = wake_ups

    @property
    def signing_key(self) -> bytes:
        return self._membership.signing_key

    def time_calls(self, timed: Timed) -> None:
        self._membership.timed = timed

    # -- commands

    async def open_commands(self, known: Collection[int]) -> Sequence[OpenCommand]:
        return await self._reader.read(_commands.open_commands, self.node, known)

    async def answers(self) -> Mapping[int, bytes]:
        return await self._reader.read(_commands.answers, self.node)

    async def asked(self) -> None:
        await self._wake_ups.asked()

    async def submitters(self, job_id: str) -> frozenset[str]:
        return await self._reader.read(_commands.submitters, job_id)

    async def public_key(self, node: int, session_id: str) -> bytes | None:
        return await self._reader.read(_commands.public_key, node, session_id)

    # -- journals of other nodes

    async def moved(self) -> frozenset[int] | None:
        return await self._wake_ups.moved()

    async def news(
        self, job_ids: Collection[str], cursors: Mapping[str, int], entries: int, size: int
    ) -> News:
        return await self._reader.read(_following.news, job_ids, cursors, entries, size)

    async def cursor_elsewhere(self, job_ids: Sequence[str], session_id: str) -> int | None:
        return await self._reader.read(_following.cursor_elsewhere, self.node, job_ids, session_id)

    # -- sessions that move

    async def place(self, session_id: str) -> SessionPlace | None:
        return await self._resumes.read(_moving.place, session_id)

    async def find(self, session_id: str) -> FoundSession | None:
        return await self._resumes.read(_moving.find, session_id)

    async def is_connected(self, node: int) -> bool:
        address = self._membership.address
        return await self._resumes.read(_moving.is_connected, address, node)

    async def take_when_unlocked(self, session_id: str, node: int | None, moves: int) -> bool:
        me = self.node
        return await self._line.run(
            lambda db: _moving.take_when_unlocked(db, session_id, node, moves, me)
        )

    async def sessions_here(self) -> Collection[str]:
        return await self._reader.read(_moving.sessions_of, self.node)

    # -- what principals have

    async def claimant(self, principal: str, key: str) -> str | None:
        return await self._reader.read(_keys.claimant, principal, key)

    async def held_elsewhere(self) -> Mapping[str, Holding]:
        return await self._reader.read(_holdings.held_elsewhere, self.node)
