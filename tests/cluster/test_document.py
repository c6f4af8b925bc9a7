"""The commands of docs/cluster.md, from no node to the first one, and the connections of one."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

import psycopg
import pytest
import trio

from arcp_trio.store.postgres.administering import CONNECTIONS_OF_A_NODE
from tests.cli.processes import ROOT, starter
from tests.cluster.tellers import submitted, subscribed, two_nodes
from tests.documents.stories import Step, read
from tests.postgres_server import own_server

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

TEXT: Final = (ROOT / "docs" / "cluster.md").read_text()
STEPS: Final = read(TEXT, "shell").steps
AGENTS: Final = "import arcp_trio\nagents = arcp_trio.Agents()\n"


def the(command: str) -> Step:
    """Return the one step whose command begins so."""
    (found,) = [step for step in STEPS if step.command.startswith(command)]
    return found


def test_the_way_to_a_node(tmp_path: Path) -> None:
    """The schema is made and found good, a node starts, and is listed; outputs are as written."""
    (tmp_path / "my_agents.py").write_text(AGENTS)
    with own_server() as server, starter(tmp_path) as start:
        server.start()
        for statement in ("CREATE ROLE owner LOGIN", "CREATE ROLE arcp LOGIN"):
            server.execute(statement)
        server.execute("CREATE DATABASE arcp OWNER owner ENCODING 'UTF8'")

        def here(command: str) -> list[str]:
            """Return the words of a command, for this server."""
            there = f"@/arcp?host={server.sockets}"
            return shlex.split(re.sub(r"(:PASSWORD)?@db\.example/arcp", there, command))

        init = the("arcp-trio store init")
        made = start(*here(init.command)[1:]).end()
        said = init.output.replace("db.example:5432", f"{server.sockets}:5432")
        assert made == (0, said, "")
        (export,) = [step for step in STEPS if step.command.startswith("export")]
        environment = dict(word.split("=", 1) for word in here(export.command)[1:])
        check = start(*here(the("arcp-trio store check").command)[1:], environment=environment)
        assert check.end()[0] == 0
        serve = the("arcp-trio serve").command.replace('"$(hostname)"', "here")
        words = here(serve.replace("--tls-cert cert.pem --tls-key key.pem", "--insecure"))
        node = start(*words[1:], "--port", "0", environment=environment)
        assert node.url()
        listed = start("nodes", environment=environment).end()[1]
        assert re.search(r"^here +\d+ +up ", listed, re.MULTILINE), listed


async def test_the_connections_of_a_node(database: str) -> None:
    """A node that has woken another one has as many connections as `store check` counts on."""

    def connections(node: int) -> int:
        with psycopg.connect(database) as db:
            found = db.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
                " AND datname = current_database()",
                (f"arcp/{node}",),
            ).fetchone()
        assert found is not None
        count: int = found[0]
        return count

    async with two_nodes(database) as (desk, one, two):
        _, job_id = await submitted(one)
        watcher, _ = await submitted(two)
        await subscribed(watcher, job_id)
        await desk.say(job_id)
        await watcher.expect("job.event")
        most, node = 0, one.store.shared.node
        while most < CONNECTIONS_OF_A_NODE:
            most = max(most, await trio.to_thread.run_sync(connections, node))
        assert most == CONNECTIONS_OF_A_NODE == 7
        assert "A node has seven." in TEXT
