"""A node whose first read of a kind finds out that the node is gone."""

from __future__ import annotations

import pytest
import trio

from arcp_trio.store.postgres import PostgresStore


def find_out_at(patch: pytest.MonkeyPatch, store: PostgresStore, kind: type, read: str) -> None:
    """Have the next call of a method find out that the node is gone; nothing else tells the node.

    Args:
        patch: undoes it after the test.
        store: the node's.
        kind: the class of the method.
        read: the method, which reads something of this store.
    """
    real = getattr(kind, read)

    async def find_out(*_: object) -> None:
        with trio.CancelScope(shield=True):  # as a call of the database that is under way
            await trio.sleep(0.1)
        raise store._membership.fence()

    async def read_and_find_out(*args: object) -> object:
        for reader in store._readers:
            patch.setattr(reader, "run_timed", find_out)
        return await real(*args)

    patch.setattr(kind, read, read_and_find_out)
