"""Commands between nodes are read and sent in bounded pieces, and none of them is passed over."""

from __future__ import annotations

import psycopg
import pytest
import trio

from arcp_trio import InternalError, Limits, PostgresStore
from arcp_trio.store.postgres import _commands
from arcp_trio.store.postgres.administering import make_schema
from arcp_trio.store.shared_writes import AnswerNode, AskAgain, AskNode
from arcp_trio.store.writes import AcceptJob
from tests.cluster.side_by_side import nodes_over
from tests.questions.support import answer, asked
from tests.store.engines import job_row, running

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

SECONDS = 60


async def test_open_commands_come_in_pieces(database: str) -> None:
    """A piece is bounded in commands and in bytes; the pieces together have all, in order."""
    many, sizes = _commands.MOST_COMMANDS + 10, [600_000, 600_000, 600_000]
    await trio.to_thread.run_sync(make_schema, database, None)
    with trio.fail_after(SECONDS):
        async with running(PostgresStore(database, node="a")) as asking:
            for name in ("J", "K"):
                await asking.put(AcceptJob(job_row(name), None)).committed()
            for number in range(many):
                asking.put(AskNode(number, "end", "J", b"{}"))
            for number, size in enumerate(sizes, many):
                asking.put(AskNode(number, "answer", "K", b"x" * size))
            await asking.flushed()
            known, pieces = set[int](), list[int]()
            about = ""
            while found := await asking.shared.open_commands(known):
                known.update(each.id for each in found)
                about += "".join(each.about for each in found)
                pieces.append(len(found))
            assert about == "J" * many + "K" * len(sizes)
            assert pieces == [_commands.MOST_COMMANDS, 12, 1]


async def test_a_command_goes_to_the_next_node(database: str) -> None:
    """The node that has the job by now is asked, by its number alone; once answered, none is."""
    await trio.to_thread.run_sync(make_schema, database, None)
    with trio.fail_after(SECONDS):
        async with (
            running(PostgresStore(database, node="a")) as asking,
            running(PostgresStore(database, node="b")) as first,
            running(PostgresStore(database, node="c")) as second,
        ):
            await first.put(AcceptJob(job_row("J"), None)).committed()
            asking.put(AskNode(1, "end", "J", b"body"))
            await asking.put(AskAgain(1)).committed()
            (command,) = await first.shared.open_commands(())
            with psycopg.connect(database) as db:
                db.execute("UPDATE arcp.job SET node = %s", (second.shared.node,))
            await asking.put(AskAgain(1)).committed()
            assert await first.shared.open_commands(()) == []
            assert await second.shared.open_commands(()) == [command]
            await second.put(AnswerNode(command.id, b"done")).committed()
            with psycopg.connect(database) as db:
                db.execute("UPDATE arcp.job SET node = %s", (first.shared.node,))
            await asking.put(AskAgain(1)).committed()
            assert await first.shared.open_commands(()) == []
            assert await asking.shared.answers() == {1: b"done"}


async def test_many_stops_at_once(monkeypatch: pytest.MonkeyPatch, database: str) -> None:
    """More commands than fit into a piece are all obeyed, each once."""
    monkeypatch.setattr(_commands, "MOST_COMMANDS", 3)
    with trio.fail_after(SECONDS):
        async with nodes_over(database) as (here, there):
            peer, other = await here.welcomed(), await there.welcomed()
            jobs = [(await peer.submit("sleeper"))["job_id"] for _ in range(20)]
            for job_id in jobs:
                await other.send("x-vendor.arcp-trio.stop", {"job_id": job_id})
            for job_id in jobs:
                stopped = await other.expect("x-vendor.arcp-trio.stopped")
                assert stopped["payload"]["job_id"] == job_id
            ends = [await peer.until_terminal(job_id) for job_id in jobs]
            assert {end["payload"]["code"] for end in ends} == {"CANCELLED"}


@pytest.mark.logs_error("command of another node failed")
async def test_a_command_that_cannot_be_read(database: str) -> None:
    """A command that is not as this version writes it is answered, and holds up no other."""
    with trio.fail_after(SECONDS):
        async with nodes_over(database) as (here, there):
            peer, other = await here.welcomed(), await there.welcomed()
            session_id = peer.resume_from()["session_id"]
            there.store.put(AskNode(1_000, "release", session_id, b"?"))
            job_id = (await peer.submit("sleeper"))["job_id"]
            await other.send("x-vendor.arcp-trio.stop", {"job_id": job_id})
            await other.expect("x-vendor.arcp-trio.stopped")
            while await here.store.shared.open_commands(()):  # noqa: ASYNC110 - in the database
                await trio.sleep(0.01)


async def test_an_answer_that_is_too_large(database: str) -> None:
    """An answer that no job takes is refused where it comes, and never stored for another node."""
    with trio.fail_after(SECONDS):
        async with nodes_over(database, limits=Limits(memo_bytes=1_000)) as (here, there):
            peer, other = await here.welcomed(), await there.welcomed()
            question = await asked(peer)
            with pytest.raises(InternalError) as refusal:
                await answer(other, question, "x" * 1_001)
            assert refusal.value.details["limit"] == "memo_bytes"
            with psycopg.connect(database) as db:
                made = db.execute("SELECT is_called FROM arcp.command_id_seq").fetchone()
            assert made == (False,)
            await answer(other, question, "short")
            end = await peer.until_terminal(question["job_id"])
            assert end["payload"]["result"] == {"answer": "short"}
