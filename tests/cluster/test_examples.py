"""What examples/cluster has: the containers' commands, the balancer's settings, the service."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.cli.processes import ROOT, peer, starter
from tests.postgres_server import PostgresServer, own_server

EXAMPLES: Final = ROOT / "examples" / "cluster"
COMPOSE: Final[dict[str, Any]] = yaml.safe_load((EXAMPLES / "compose.yaml").read_text())
SERVICES: Final[dict[str, Any]] = COMPOSE["services"]
NODES: Final = ("one", "two", "three")
SECRETS: Final = {
    "OWNER_PASSWORD": "of-the-owner",
    "NODE_PASSWORD": "of-the-nodes",
    "ARCP_TOKENS": "alice=of-alice",
}


def environment(service: str, server: PostgresServer) -> dict[str, str]:
    """Return the environment of a service, whose database is this server."""
    found: dict[str, str] = {}
    for name, value in SERVICES[service].get("environment", {}).items():
        filled = re.sub(r"\$\{(\w+):\?\}", lambda match: SECRETS[match[1]], value)
        found[name] = filled.replace("@db/arcp?", f"@/arcp?host={server.sockets}&")
    return found


@contextmanager
def the_database(folder: Path) -> Generator[PostgresServer]:
    """Run a server that has what the container `db` makes of its environment and of roles.sh."""
    assert SERVICES["db"]["environment"]["POSTGRES_USER"] == "owner"
    assert SERVICES["db"]["environment"]["POSTGRES_DB"] == "arcp"
    assert "./roles.sh:/docker-entrypoint-initdb.d/roles.sh:ro" in SERVICES["db"]["volumes"]
    with own_server() as server:
        server.start()
        server.execute("CREATE ROLE owner SUPERUSER LOGIN")
        server.execute("CREATE DATABASE arcp OWNER owner")
        subprocess.run(
            ["sh", str(EXAMPLES / "roles.sh")],
            env={
                "PATH": f"{server.programs}:{os.environ['PATH']}",
                "PGHOST": str(server.sockets),
                **SECRETS,
            },
            cwd=folder,
            check=True,
            timeout=60,
            stdout=subprocess.DEVNULL,
        )
        yield server


def test_the_database_is_healthy_once_it_can_be_reached() -> None:
    """Its check goes by TCP: while the image prepares itself, a server has a Unix socket only."""
    assert " --host 127.0.0.1 " in SERVICES["db"]["healthcheck"]["test"]


@pytest.mark.parametrize("name", NODES)
def test_a_container_is_given_time_to_drain(name: str) -> None:
    """A node has more time to stop than its drain, and the 5 s that `serve` promises."""
    command: list[str] = SERVICES[name]["command"]
    drain = int(command[command.index("--drain") + 1])
    assert 0 < drain <= int(SERVICES[name]["stop_grace_period"].removesuffix("s")) - 5


@pytest.mark.postgres
@pytest.mark.real_tcp
def test_the_containers_are_a_cluster(tmp_path: Path) -> None:
    """The schema's command and the three nodes' work together, with the roles that are made."""
    dockerfile = (ROOT / "Dockerfile").read_text()
    (entry,) = re.findall(r"^ENTRYPOINT (.*)$", dockerfile, re.MULTILINE)
    assert re.search(r"/src\[[^]]*\bpostgres\b[^]]*\]", dockerfile), "the image has no psycopg"
    serve: list[str] = json.loads(entry)
    with the_database(tmp_path) as server, starter(tmp_path) as start:
        program, *arguments = SERVICES["schema"]["entrypoint"]
        assert program == "arcp-trio"
        made = start(*arguments, environment=environment("schema", server))
        code, _, err = made.end()
        assert (code, err) == (0, "")
        for name in NODES:
            options: list[str] = SERVICES[name]["command"]
            command = [*serve[1:], *options, "--port", "0"]
            node = start(*command, environment=environment(name, server))
            url = node.url().replace("0.0.0.0", "127.0.0.1")
            with peer(url, "of-alice") as session:
                assert session.run("echo", name)[-1]["payload"]["result"] == {"echo": name}
        listed = start("nodes", "--json", environment=environment("one", server)).end()[1]
        found = [json.loads(line) for line in listed.splitlines()]
        assert sorted((each["name"], each["state"]) for each in found) == [
            (name, "up") for name in sorted(NODES)
        ]


def test_the_balancer_asks_the_nodes_that_there_are(tmp_path: Path) -> None:
    """Its settings name the containers and the page that says who is ready; HAProxy reads them."""
    text = (EXAMPLES / "haproxy.cfg").read_text()
    assert re.findall(r"^ +server (\w+) (\w+):7777$", text, re.MULTILINE) == [
        (name, name) for name in NODES
    ]
    assert "option httpchk GET /readyz" in text
    assert SERVICES["balancer"]["depends_on"] == list(NODES)
    haproxy = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
    if haproxy is not None:
        subprocess.run(
            [haproxy, "-c", "-f", str(EXAMPLES / "haproxy.cfg")],
            check=True,
            timeout=60,
            capture_output=True,
        )


def test_the_service_is_that_of_one_runtime_with_a_node(tmp_path: Path) -> None:
    """It is as contained as the service of one runtime, and its options are those of a node."""
    usual = (ROOT / "docs" / "arcp-trio.service").read_text().splitlines()
    node = (EXAMPLES / "arcp-node.service").read_text().splitlines()
    contained = usual[usual.index("UMask=0077") :]
    assert node[node.index("UMask=0077") :] == contained
    (command,) = [line.removeprefix("ExecStart=") for line in node if line.startswith("ExecStart=")]
    assert shlex.split(command)[1:4:2] == ["serve", "/etc/arcp-trio.toml"]
    assert command.endswith("--node %H")
    assert "StartLimitIntervalSec=0" in node, "five starts without a database would be all"
    # libpq fails in a home that it cannot look into, and ProtectHome= hides the usual ones.
    assert "Environment=HOME=/opt/arcp-trio" in node
    analyze = shutil.which("systemd-analyze")
    if analyze is not None:
        unit = tmp_path / "arcp-node.service"
        program = shlex.split(command)[0]
        ours = str(Path(sys.executable).with_name("arcp-trio"))
        unit.write_text("\n".join(node).replace(program, ours))
        done = subprocess.run(
            [analyze, "verify", "--man=no", str(unit)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert [line for line in done.stderr.splitlines() if "arcp" in line] == []
        assert done.returncode == 0, done.stderr
