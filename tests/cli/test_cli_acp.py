"""`serve --agent NAME=acp:COMMAND`: programs that speak ACP, and what contains them."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trustme

from arcp_trio.cli.errors import ExitCode
from tests.authenticators.issuer import jwk, key_set
from tests.cli.clients import Commands
from tests.cli.processes import ROOT, Starter, assert_refused, peer

AGENT = f"coder=acp:{sys.executable} {shlex.quote(str(ROOT / 'tests/proxies/acp/scripted.py'))}"

pytestmark = pytest.mark.real_tcp


def serving(start: Starter, *options: str, **terms: Any) -> str:
    """Start `serve` with the agent, and return its address."""
    token = ("--token", "me=s3cret")
    return start("serve", "--port", "0", *token, "--agent", AGENT, *options, **terms).url()


def told(frames: list[Any]) -> Any:
    """Return what a job's agent has said, as JSON."""
    bodies = [frame["payload"].get("body", {}) for frame in frames]
    return json.loads("".join(body.get("data", "") for body in bodies))


def said(frames: list[Any]) -> tuple[str, dict[str, str]]:
    """Return what a job says of its start, and the variables that its agent has."""
    bodies = [frame["payload"].get("body", {}) for frame in frames]
    (start,) = [body["message"] for body in bodies if body.get("phase") == "starting"]
    return start, told(frames)["variables"]


@pytest.mark.sandbox
def test_contained(start: Starter, tmp_path: Path) -> None:
    """With `--sandbox require` agents are contained; homes are in the data folder, which is hidden.

    Agents have the variables that are named, and no others of the server.
    """
    (tmp_path / "notes").write_text("for agents")
    url = serving(
        start,
        *("--sandbox", "require", "--sandbox-read", "notes"),
        *("--agent-env", "API_KEY", "--agent-env", "MODEL=small"),
        environment={"API_KEY": "a-key", "OTHER_KEY": "hush"},
    )
    with peer(url, "s3cret") as client:
        message, variables = said(client.run("coder", json.dumps([["environment"]])))
        assert message == "contained"
        assert (variables["API_KEY"], variables["MODEL"]) == ("a-key", "small")
        assert "OTHER_KEY" not in variables
        assert variables["HOME"].startswith(f"{tmp_path}/.arcp/agents/homes/coder/")
        script = f"cat {tmp_path}/notes; cat {tmp_path}/.arcp/arcp.db; ls {tmp_path}/.arcp"
        result = told(client.run("coder", json.dumps([["run", script]])))
        assert result.startswith("for agentsagents\n")
        assert "arcp.db: No such file" in result


@pytest.mark.sandbox
def test_the_servers_own_files(start: Starter, tmp_path: Path) -> None:
    """No lease opens the files with secrets that options name: not by request, nor in a sandbox."""
    issued = trustme.CA().issue_cert("127.0.0.1")
    (tmp_path / "cert.pem").write_bytes(issued.cert_chain_pems[0].bytes())
    (tmp_path / "key.pem").write_bytes(issued.private_key_pem.bytes())
    (tmp_path / "tokens").write_text("me=s3cret-s3cret-s3cret\n")
    (tmp_path / "tokens").chmod(0o600)
    (tmp_path / "keys.json").write_bytes(key_set(jwk("ES256")))
    (tmp_path / "serve.toml").write_text('[serve]\ntoken_file = "tokens"\ntls_key = "key.pem"\n')
    secret = [tmp_path / name for name in ("serve.toml", "tokens", "key.pem", "keys.json")]
    signed = ("--jwt-keys=keys.json", "--jwt-algorithm=ES256", "--jwt-audience=a")
    served = start(
        *("serve", "--config=serve.toml", "--memory", f"--host=unix:{tmp_path}/door", *signed),
        *("--host=127.0.0.1", "--port=0", "--tls-cert=cert.pem"),
        *("--sandbox=require", "--agent", AGENT),
    )
    commands = Commands(served.url(), tmp_path, token="s3cret-s3cret-s3cret")
    asked = [["call", "fs/read_text_file", {"path": str(path)}] for path in secret]
    script = f"cat {' '.join(map(str, secret))}; test -S {tmp_path}/door || echo no door"
    prompt = json.dumps(json.dumps([["run", script], *asked]))
    lease = ("--lease", f"fs.read={tmp_path}/**")
    done = commands.run("submit", "coder", "--input", prompt, *lease)
    assert done.code == 0, done.err
    for words in ("token_file", "s3cret", "PRIVATE", '"keys"'):
        assert words not in done.out
    assert "no door" in done.out
    assert done.out.count("no lease allows fs.read") == len(secret)
    assert done.out.count("Permission denied") == len(secret)


@pytest.mark.sandbox
def test_the_server_is_not_reached(start: Starter) -> None:
    """A contained agent does not reach the server that has started it."""
    url = serving(start, "--memory", "--sandbox", "require")
    with peer(url, "s3cret") as client:
        steps = [["dial", urlsplit(url).port, "GET / HTTP/1.1"], ["dial", 3128, "GET / HTTP/1.1"]]
        for step in steps:
            assert "refused" in told(client.run("coder", json.dumps([step])))


@pytest.mark.parametrize("sandbox", ["off", pytest.param("require", marks=pytest.mark.sandbox)])
def test_no_agent_outlives_the_server(start: Starter, sandbox: str) -> None:
    """When the server is killed, so are its agents, contained or not."""
    mark = f"{os.getpid()}-{sandbox}"
    token = ("--token", "me=s3cret", "--memory", "--sandbox", sandbox)
    agent = f"{AGENT} {shlex.quote(json.dumps({'info': {'name': mark}}))}"
    served = start("serve", "--port", "0", *token, "--agent", agent)
    with peer(served.url(), "s3cret") as client:
        client.submit("coder", json.dumps([["say", "a"], ["sleep", 1000]]))
        while client.receive()["payload"].get("kind") != "result_chunk":
            pass
        assert running(mark) > 1  # the server and the agent
        served.process.kill()
        until = time.monotonic() + 30
        while running(mark):
            assert time.monotonic() < until
            time.sleep(0.05)


def running(mark: str) -> int:
    """Return how many processes have a word in their command lines."""
    count = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            count += mark in path.read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
    return count


def test_not_contained(start: Starter, tmp_path: Path) -> None:
    """With `--sandbox off` each job says that it is not contained; a home may be named."""
    (tmp_path / "home").mkdir()
    url = serving(start, "--memory", "--sandbox", "off", "--agent-home", "home")
    with peer(url, "s3cret") as client:
        message, variables = said(client.run("coder", json.dumps([["environment"]])))
        assert message == "not contained"
        assert variables["HOME"] == f"{tmp_path}/home"


@pytest.mark.sandbox
def test_a_job_that_requires_a_sandbox(start: Starter, tmp_path: Path) -> None:
    """`submit --contained` is done by a contained agent, and ends at once with another one."""
    prompt = json.dumps(json.dumps([["say", "hello"]]))
    for sandbox, code in (("require", ExitCode.SUCCESS), ("off", ExitCode.FAILED)):
        url = serving(start, "--memory", "--sandbox", sandbox)
        commands = Commands(url, tmp_path, token="s3cret")
        done = commands.run("submit", "coder", "--input", prompt, "--contained")
        assert done.code == code, done.err
        assert ("hello" in done.out) == (sandbox == "require")
        assert ("requires a sandbox" in done.err) == (sandbox == "off")


def test_without_bubblewrap(start: Starter, tmp_path: Path) -> None:
    """Where no sandbox can be built, `require` is refused; `auto` warns, as does each job."""
    python = {"PATH": str(tmp_path), "ARCP_LOG_FORMAT": "text"}
    options = ("serve", "--memory", "--port", "0", "--token", "me=s3cret", "--agent", AGENT)
    line = assert_refused(start(*options, "--sandbox", "require", environment=python))
    assert "--sandbox require" in line
    assert "bwrap" in line
    served = start(*options, environment=python)
    assert "no program bwrap" in served.line("will not be contained")
    with peer(served.url(), "s3cret") as client:
        assert said(client.run("coder", json.dumps([["environment"]])))[0] == "not contained"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--agent", "a=acp:no-such-program"), "'no-such-program' is not a program"),
        (("--agent", "a=acp:sh 'x"), "no closing quotation"),
        (("--agent-env", "NOT_SET_HERE"), "--agent-env NOT_SET_HERE: write NAME=VALUE"),
        (("--agent-env", "=x"), "--agent-env =x: write NAME=VALUE"),
        (("--agent-home", "nowhere"), "--agent-home nowhere: there is no such folder"),
        (("--sandbox-read", "nowhere"), "--sandbox-read nowhere: there is no such file"),
        (("--sandbox", "maybe"), "--sandbox"),
    ],
)
def test_a_mistake_is_one_line(start: Starter, options: tuple[str, str], complaint: str) -> None:
    """What is wrong with an option is said in one line, and nothing is served."""
    served = start("serve", "--memory", "--port", "0", "--agent", AGENT, *options)
    assert complaint in assert_refused(served)
