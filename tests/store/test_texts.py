"""Texts of clients, agents and operators are stored whole, whatever characters they have."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from arcp_trio.store.interface import Store
from arcp_trio.store.job_query import JobQuery
from arcp_trio.store.memos import Memo
from arcp_trio.store.writes import CancelJob, KeepMemo
from tests.store.engines import Feeder, job_row, key_row

TEXTS = ["", "\0", "a\0b", "\x01", "\x01\x01", "\x01\x02\0", "\0\x01", "\\x00", "é\U0001f600\n"]


@pytest.mark.parametrize("text", TEXTS)
async def test_any_text_is_kept(store: Store, feeder: Feeder, text: str) -> None:
    """Keys, principals, agents, reasons and memos are read as they were written."""
    row = replace(job_row(principal=text), agent=f"{text}@1.0.0")
    feeder.accept(row, replace(key_row(key=text), principal=text))
    store.put(CancelJob("J", text, text))
    store.put(KeepMemo("J", Memo(text, text, 0, b"1")))
    feeder.finish()
    await store.flushed()
    key = await store.key(text, text, 0.0)
    assert key is not None
    assert (key.principal, key.key) == (text, text)
    (job,) = await store.jobs(JobQuery(principal=text, agent=text, limit=2))
    assert (job.principal, job.agent) == (text, row.agent)
    assert (job.cancelled, job.stopped_by) == (text, text)
    assert await store.memos("J") == [Memo(text, text, 0, b"1")]
    assert await store.owner("J") == text
    assert set(await store.stored_bytes()) == {text}


async def test_texts_that_look_alike_are_different(store: Store, feeder: Feeder) -> None:
    """No two of them are taken for the same key."""
    for number, text in enumerate(TEXTS):
        feeder.job(f"J{number}", key=key_row(f"J{number}", key=text))
    await store.flushed()
    found = [await store.key("alice", text, 0.0) for text in TEXTS]
    assert [row.job_id for row in found if row] == [f"J{n}" for n in range(len(TEXTS))]
