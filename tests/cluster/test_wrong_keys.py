"""A public key or a command that is not what it should be: nobody is told the value for it."""

from __future__ import annotations

import logging

import psycopg
import pytest
import trio

from arcp_trio.runtime.cluster.sealing import NodeKey
from arcp_trio.runtime.job.command_rows import body_of
from arcp_trio.runtime.job.commands import Reveal
from arcp_trio.wire.json import dumps
from tests.cluster.revealing import Stage, revealing_nodes
from tests.cluster.side_by_side import NodeHere
from tests.credentials.runtimes import LEASE
from tests.credentials.upstream import SECRET
from tests.stage import BOB

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

STRANGER = 9_999
"""The number of a node that there is not."""


async def test_a_public_key_that_was_replaced(database: str) -> None:
    """Nothing is sealed to a key in the row of a node that is not the one which it asks with."""
    async with revealing_nodes(database) as stage:
        peer = await stage.here.welcomed()
        job = await peer.submit("rotator", None, lease_request=LEASE)
        show(stage, stage.there, NodeKey().public)
        again = {**peer.resume_from(), "last_event_seq": 0}
        away = await stage.there.welcomed(resume=again)
        seen = [await away.expect("job.accepted"), await away.expect("job.event")]
        assert SECRET not in dumps(seen).decode()
        assert [row["about"] for row in stage.commands()] == [job["job_id"]] * 2
        assert not any('"sealed":{' in row["answer"] for row in stage.commands())


async def test_what_is_not_a_public_key(database: str, caplog: pytest.LogCaptureFixture) -> None:
    """A node that has shown and asks with bytes that are not a key is refused, with one warning."""
    async with revealing_nodes(database) as stage:
        peer = await stage.here.welcomed()
        job_id = (await peer.submit("rotator", None, lease_request=LEASE))["job_id"]
        session_id = (await stage.there.welcomed()).resume_from()["session_id"]
        for number, wrong in enumerate((b"short", bytes(32))):
            caplog.clear()
            show(stage, stage.there, wrong)
            ask(stage, stage.there.store.shared.node, number - 9, Reveal(job_id, session_id, wrong))
            while number - 9 not in answered(stage):  # noqa: ASYNC110 - in the database
                await trio.sleep(0.05)
            answer = answered(stage)[number - 9]
            assert "PERMISSION_DENIED" in answer
            assert '"sealed":{' not in answer
            (warning,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
            assert warning.getMessage() == "credentials kept from another node"
            assert warning.exc_info is None
            assert "no valid public key" in str(vars(warning))
            assert SECRET not in answer + str(vars(warning))


async def test_answers_that_were_exchanged(database: str) -> None:
    """A value that is sealed as that of one credential is not taken for that of another one."""
    async with revealing_nodes(database) as stage:
        stage.upstream.mints = 2
        peer = await stage.here.welcomed()
        job = await peer.submit("rotator", None, lease_request=LEASE)
        exchange_in_answers(stage, *(each["id"] for each in job["credentials"]))
        again = {**peer.resume_from(), "last_event_seq": 0}
        away = await stage.there.welcomed(resume=again)
        seen = [await away.expect("job.accepted"), await away.expect("job.event")]
        assert SECRET not in dumps(seen).decode()
        assert any('"sealed":{' in row["answer"] for row in stage.commands())


async def test_a_command_of_somebody_else(database: str) -> None:
    """A command is refused that the node did not send which has the session, with its own key."""
    async with revealing_nodes(database) as stage:
        peer = await stage.here.welcomed()
        job_id = (await peer.submit("rotator", None, lease_request=LEASE))["job_id"]
        mine, bobs = await stage.there.welcomed(), await stage.there.welcomed(BOB)
        ids = [each.resume_from()["session_id"] for each in (mine, bobs, peer)]
        there, key = stage.there.store.shared.node, NodeKey()
        shown = shown_by(stage, stage.there)
        forged = [
            (there, Reveal(job_id, ids[0], key.public)),
            (STRANGER, Reveal(job_id, ids[0], key.public)),
            (STRANGER, Reveal(job_id, ids[0], shown)),
            (there, Reveal(job_id, ids[2], shown)),
            (there, Reveal(job_id, ids[1], shown)),
            (there, Reveal(job_id, "sess_unknown", shown)),
        ]
        for number, (asker, command) in enumerate(forged):
            ask(stage, asker, -1 - number, command)
        genuine = Reveal(job_id, ids[0], shown)
        ask(stage, there, -100, genuine)
        while len(answers := answered(stage)) <= len(forged):  # noqa: ASYNC110 - in the database
            await trio.sleep(0.05)
        assert "PERMISSION_DENIED" not in answers.pop(-100)
        assert len(answers) == len(forged)
        assert all("PERMISSION_DENIED" in answer for answer in answers.values())
        assert not any('"sealed":{' in answer for answer in answers.values())


def show(stage: Stage, node: NodeHere, public_key: bytes) -> None:
    """Have a public key stand in the row of a node."""
    with psycopg.connect(stage.database) as db:
        values = (public_key, node.store.shared.node)
        db.execute("UPDATE arcp.node SET public_key = %s WHERE node = %s", values)


def exchange_in_answers(stage: Stage, one: str, other: str) -> None:
    """Have two words change places in each answer that is stored from now on."""
    answer = "convert_from(NEW.answer, 'UTF8')"
    for word, replacement in ((one, "?"), (other, one), ("?", other)):
        answer = f"replace({answer}, '{word}', '{replacement}')"
    with psycopg.connect(stage.database) as db:
        db.execute(
            "CREATE FUNCTION exchange() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN NEW.answer = convert_to({answer}, 'UTF8'); RETURN NEW; END $$".encode()
        )
        db.execute(
            "CREATE TRIGGER exchange BEFORE UPDATE OF answer ON arcp.command"
            " FOR EACH ROW EXECUTE FUNCTION public.exchange()"
        )


def shown_by(stage: Stage, node: NodeHere) -> bytes:
    """Return the public key in the row of a node."""
    with psycopg.connect(stage.database) as db:
        row = db.execute(
            "SELECT public_key FROM arcp.node WHERE node = %s", (node.store.shared.node,)
        ).fetchone()
    assert row is not None
    return bytes(row[0])


def ask(stage: Stage, asker: int, number: int, command: Reveal) -> None:
    """Ask the node of the job, as if `asker` did."""
    node = stage.here.store.shared.node
    with psycopg.connect(stage.database) as db:
        db.execute(
            "INSERT INTO arcp.command (node, asker, number, kind, about, body)"
            " VALUES (%s, %s, %s, 'reveal', %s, %s)",
            (node, asker, number, command.job_id, body_of(command)),
        )


def answered(stage: Stage) -> dict[int, str]:
    """Return the answers that were ever given, by the number of the command."""
    rows = [row for row in stage.commands() if row["answer"] != "None"]
    return {int(row["number"]): row["answer"] for row in rows}
