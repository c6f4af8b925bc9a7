"""Rows of credentials, which are kept until the credentials are revoked."""

from __future__ import annotations

from msgspec.structs import replace

from arcp_trio.store.interface import Store
from arcp_trio.store.memory import MemoryStore
from arcp_trio.store.records import CredentialRow, CredentialState
from arcp_trio.store.sqlite import SqliteStore
from arcp_trio.store.writes import KeepCredentials
from tests.store.engines import Engine

INTENT = CredentialRow(
    row_id="order",
    order_id="order",
    job_id="J",
    principal="alice",
    state=CredentialState.ISSUING,
)


def minted(number: int) -> CredentialRow:
    """Return the row of a minted credential."""
    return CredentialRow(
        row_id=f"row {number}",
        order_id="order",
        job_id="J",
        principal="alice",
        state=CredentialState.LIVE,
        handle=f"handle {number}",
        credential_id=f"cred_{number}",
    )


async def kept(store: Store) -> list[CredentialRow]:
    """Return the rows that the next runtime would find."""
    await store.flushed()
    return list((await store.recover()).credentials)


async def test_a_row_stays_until_it_is_gone(store: Store) -> None:
    """Rows are kept, oldest first and with their last state, until they are gone."""
    assert await kept(store) == []
    store.put(KeepCredentials([INTENT]))
    assert await kept(store) == [INTENT]
    one, two = minted(1), minted(2)
    store.put(KeepCredentials([one, two], [INTENT.row_id]))
    assert await kept(store) == [one, two]
    for state in (CredentialState.REVOKING, CredentialState.UNREVOCABLE):
        one = replace(one, state=state)
        store.put(KeepCredentials([one]))
        assert await kept(store) == [one, two]
    store.put(KeepCredentials(gone=[one.row_id]))
    store.put(KeepCredentials(gone=[one.row_id, two.row_id]))
    assert await kept(store) == []


async def test_nothing_is_left_of_what_is_revoked(engine: Engine) -> None:
    """A row that is gone leaves nothing in the store."""
    async with engine.running() as store:
        store.put(KeepCredentials([minted(number) for number in range(10)]))
        store.put(KeepCredentials(gone=[minted(number).row_id for number in range(10)]))
        await store.flushed()
        assert await engine.left(store) == {}


def test_only_what_survives_the_power_is_durable() -> None:
    """Only a file with full synchronisation is a durable store."""
    assert not MemoryStore().durable
    assert SqliteStore("x.db").durable
    assert not SqliteStore("x.db", synchronous="NORMAL").durable
    assert not SqliteStore("x.db", synchronous="OFF").durable
