"""SIGHUP to `serve`: what is read again, and what is not disturbed by it."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import ssl
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import pytest
import trio
import trustme
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

import arcp_trio
from arcp_trio.cli.serve.reloading import Terminal, reload_at
from tests.cli.processes import Peer, Serve, Starter, peer

pytestmark = pytest.mark.real_tcp

AGENTS = """
import os, signal, sys
import arcp_trio, trio

os.kill(os.getpid(), signal.SIGHUP)
agents = arcp_trio.Agents()

@agents.agent("slow")
async def slow(job):
    print("at work", file=sys.stderr)
    await trio.sleep(1)
    return "finished"
"""


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    """Write a token file with alice in it."""
    path = tmp_path / "tokens"
    path.write_text("alice=a\n", encoding="utf-8")
    return path


def serve(start: Starter, *arguments: str) -> tuple[Serve, str]:
    """Serve in memory; return the process and its address."""
    served = start("serve", "--port=0", "--memory", *arguments)
    return served, served.url()


def hang_up(served: Serve, what: str = "reloaded what=tokens") -> str:
    """Send SIGHUP, and wait for a line of the log with `what`; return the rest of the line."""
    served.send_signal(signal.SIGHUP)
    return served.line(what)


def answer(url: str, token: str) -> str:
    """Say hello, and return the type of the answer, or its code if it is an error."""
    with peer(url, token) as session:
        if session.answer["type"] == "session.error":
            return str(session.answer["payload"]["code"])
        return str(session.answer["type"])


def assert_serves(session: Peer) -> None:
    """Run a job in the session."""
    assert session.run("echo", 1)[-1]["payload"]["result"] == {"echo": 1}


def ended(session: Peer) -> tuple[str, int]:
    """Receive up to the close of a connection; return the last frame's code, and the close's."""
    last = session.receive()
    with pytest.raises(ConnectionClosed) as closed:
        session.receive()
    assert closed.value.rcvd is not None
    return str(last["payload"]["code"]), closed.value.rcvd.code


def resume_alone(url: str, session: Peer) -> str:
    """Resume a session by its resume token alone; return the type of the answer, or its code."""
    with connect(url, compression=None) as socket:
        frame = {"arcp": "1.1", "id": "r", "type": "session.resume"}
        socket.send(json.dumps(frame | {"payload": session.resume_from(0)}))
        said = json.loads(socket.recv(timeout=10))
        return str(said["payload"].get("code", said["type"]))


def test_sessions_go_with_their_tokens(start: Starter, tokens: Path) -> None:
    """A removed token ends its sessions at once, and opens and resumes none; others go on."""
    served, url = serve(start, f"--token-file={tokens}", "--token=carol=c")
    with peer(url, "a") as session, peer(url, "c") as other:
        tokens.write_text(f"bob=sha256:{hashlib.sha256(b'b').hexdigest()}\n", encoding="utf-8")
        assert answer(url, "b") == "UNAUTHENTICATED"
        hang_up(served)
        began = time.monotonic()
        assert ended(session) == ("UNAUTHENTICATED", 1008)
        assert time.monotonic() - began < 1
        assert answer(url, "a") == "UNAUTHENTICATED"
        assert answer(url, "b") == "session.welcome"
        assert answer(url, "c") == "session.welcome"
        with peer(url, "a", session.resume_from(0)) as again:
            assert again.answer["payload"]["code"] == "UNAUTHENTICATED"
        assert resume_alone(url, session) == "UNAUTHENTICATED"
        assert_serves(other)
        # The principal is one again: its session was only left alone.
        tokens.write_text("alice=a\n", encoding="utf-8")
        hang_up(served)
        assert resume_alone(url, session) == "session.welcome"


def test_a_restart_without_a_token_ends_its_sessions(start: Starter, tokens: Path) -> None:
    """After a restart a session is resumed only if its token is still one of the tokens."""
    arguments = ("serve", "--port=0", f"--data={tokens.parent / 'data'}", f"--token-file={tokens}")
    served = start(*arguments, "--token=carol=c")
    url = served.url()
    with peer(url, "a") as session, peer(url, "c") as other:
        pass
    served.send_signal(signal.SIGTERM)
    assert served.process.wait(timeout=10) == 0
    tokens.write_text("alice=another\n", encoding="utf-8")
    url = start(*arguments, "--token=carol=c").url()
    assert resume_alone(url, session) == "UNAUTHENTICATED"
    assert resume_alone(url, other) == "session.welcome"
    with peer(url, "another", session.resume_from(0)) as again:
        assert_serves(again)


async def test_a_client_learns_that_its_token_was_removed(start: Starter, tokens: Path) -> None:
    """The library raises Unauthenticated from what waits, and does not try again."""
    served, url = serve(start, f"--token-file={tokens}")
    async with arcp_trio.connect(url, token="a") as client:
        job = await client.submit("sleeper", {"seconds": 60})
        await trio.Path(tokens).write_text("bob=b\n", encoding="utf-8")
        await trio.to_thread.run_sync(hang_up, served)
        with trio.fail_after(5), pytest.raises(arcp_trio.Unauthenticated, match="no longer good"):
            await job.result()


@pytest.mark.logs_error("reload failed what=first")
async def test_a_fault_in_one_reload_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """An exception in one reload is logged; the others go on, now and at the next signal."""
    before = signal.getsignal(signal.SIGHUP)
    terminal = Terminal()
    signal.signal(signal.SIGHUP, before)
    read: list[str] = []

    def fail() -> None:
        raise ZeroDivisionError

    async def hangups() -> AsyncGenerator[int]:
        for _ in range(2):
            yield signal.SIGHUP

    async with aclosing(hangups()) as signals:
        await reload_at(signals, terminal, {"first": fail, "second": lambda: read.append("it")})
    assert read == ["it", "it"]
    assert sum(record.exc_info is not None for record in caplog.records) == 2


def test_a_broken_file_changes_nothing(start: Starter, tokens: Path) -> None:
    """A mistake in the token file is one line without a token; the tokens before still count."""
    served, url = serve(start, f"--token-file={tokens}")
    for content in ("nonsense\n", "alice=x\nbob=x\n", "a=sha256:0\n"):
        tokens.write_text(content, encoding="utf-8")
        why = hang_up(served, "reload failed what=tokens error=")
        assert why.startswith(f'"{tokens} line ')
        assert "nonsense" not in why
        assert answer(url, "a") == "session.welcome"
    tokens.write_text("", encoding="utf-8")
    assert "has no token in it" in hang_up(served, "reload failed what=tokens error=")
    assert answer(url, "a") == "session.welcome"
    tokens.unlink()
    assert "no such file" in hang_up(served, "reload failed what=tokens error=")
    assert answer(url, "a") == "session.welcome"
    tokens.write_text("alice=mended\n", encoding="utf-8")
    hang_up(served)
    assert answer(url, "mended") == "session.welcome"
    assert answer(url, "a") == "UNAUTHENTICATED"


def test_a_pipe_is_not_waited_for(start: Starter, tokens: Path, tmp_path: Path) -> None:
    """A pipe in the place of a file is refused at a reload and not waited for."""
    config = tmp_path / "serve.toml"
    config.write_text("[serve]\ndrain = 0\n", encoding="utf-8")
    served, url = serve(start, f"--token-file={tokens}", f"--config={config}")
    for path in (tokens, config):
        content = path.read_bytes()
        path.unlink()
        os.mkfifo(path)
        why = hang_up(served, "reload failed what=tokens error=")
        assert why.startswith('"cannot read the ')
        assert why.endswith(f'{path}: not a plain file"')
        assert answer(url, "a") == "session.welcome"
        path.unlink()
        path.write_bytes(content)
    hang_up(served)


def test_tokens_may_come_out_of_a_pipe(start: Starter, tmp_path: Path) -> None:
    """At the start the token file may be a pipe; at a reload it is refused."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    served = start("serve", "--port=0", "--memory", f"--token-file={pipe}")
    pipe.write_text("alice=a\n", encoding="utf-8")  # blocks until `serve` reads
    url = served.url()
    assert "not a plain file" in hang_up(served, "reload failed what=tokens error=")
    assert answer(url, "a") == "session.welcome"


def test_the_tokens_of_the_configuration_are_read_again(start: Starter, tmp_path: Path) -> None:
    """Tokens of the configuration are read again; other changes are logged as waiting."""
    config = tmp_path / "serve.toml"
    config.write_text('[serve]\ntoken = ["alice=a"]\n', encoding="utf-8")
    served, url = serve(start, f"--config={config}")
    (tmp_path / "more").write_text("bob=b\n", encoding="utf-8")
    config.write_text(
        '[serve]\ntoken = ["alice=new"]\ntoken_file = "more"\ndrain = 9\n[limits]\njobs = 5\n',
        encoding="utf-8",
    )
    assert hang_up(served, "changes wait for a restart options=") == '"drain, limits"'
    served.line("reloaded what=tokens")
    answers = [answer(url, token) for token in ("a", "new", "b")]
    assert answers == ["UNAUTHENTICATED", "session.welcome", "session.welcome"]
    config.write_text("[serve\n", encoding="utf-8")
    hang_up(served, "reload failed what=tokens error=")
    assert answer(url, "new") == "session.welcome"


def test_the_token_that_was_made_is_made_again(start: Starter, tmp_path: Path) -> None:
    """After its file is deleted, SIGHUP makes a new token; otherwise the token stays."""
    served = start("serve", "--port=0")
    url = served.url()
    first = served.line("token for local: ")
    hang_up(served)
    assert answer(url, first) == "session.welcome"
    (tmp_path / ".arcp" / "token").unlink()
    second = hang_up(served, "token for local: ")
    assert second == (tmp_path / ".arcp" / "token").read_text(encoding="utf-8").strip()
    served.line("reloaded what=tokens")
    assert (answer(url, first), answer(url, second)) == ("UNAUTHENTICATED", "session.welcome")


def test_in_memory_the_made_token_outlives_a_hangup(start: Starter) -> None:
    """With --memory the token that was made stays at SIGHUP."""
    served, url = serve(start)
    token = served.line("token for local: ")
    hang_up(served)
    assert answer(url, token) == "session.welcome"


def test_fifty_in_a_row(start: Starter, tokens: Path) -> None:
    """Sessions, jobs and new connections go on during fifty reloads; the last state counts."""
    served, url = serve(start, f"--token-file={tokens}")
    with peer(url, "a") as session:
        for number in range(50):
            tokens.write_text(f"alice=a\nbob=b{number}\n", encoding="utf-8")
            served.send_signal(signal.SIGHUP)
            if number % 10 == 0:
                assert_serves(session)
        while answer(url, "b49") != "session.welcome":
            pass  # ends at the latest when the process is killed
        assert_serves(session)
    served.send_signal(signal.SIGTERM)
    assert served.end()[0] == 0


def test_a_hangup_while_it_starts_or_stops_is_harmless(start: Starter, tmp_path: Path) -> None:
    """SIGHUP during the import of agents, or during the drain, does not end the process."""
    (tmp_path / "my_agents.py").write_text(AGENTS, encoding="utf-8")
    served, url = serve(start, "--token=alice=a", "--agents=my_agents", "--drain=20")
    with peer(url, "a") as session:
        session.submit("slow")
        served.line("at work")
        served.send_signal(signal.SIGHUP)
        served.send_signal(signal.SIGTERM)
        for _ in range(10):
            served.send_signal(signal.SIGHUP)
        assert session.until_terminal()[-1]["payload"]["result"] == "finished"
        served.send_signal(signal.SIGHUP)
    code, _, err = served.end()
    assert code == 0, err
    assert "Traceback" not in err


def test_certificates_are_read_again(start: Starter, tmp_path: Path) -> None:
    """New connections see the new certificate; open ones go on; a broken one changes nothing."""
    authority = trustme.CA()
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)

    def renew() -> None:
        made = authority.issue_cert("localhost", "127.0.0.1")
        made.private_key_pem.write_to_path(str(key))
        chain.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))

    renew()
    served, url = serve(start, "--token=alice=a", f"--tls-cert={chain}", f"--tls-key={key}")

    def certificate() -> bytes:
        with connect(url, compression=None, ssl=trusting) as socket:
            assert isinstance(socket.socket, ssl.SSLSocket)
            shown = socket.socket.getpeercert(binary_form=True)
            assert shown is not None
            return shown

    with connect(url, compression=None, ssl=trusting) as socket:
        session = Peer(socket, "a", None)
        first = certificate()
        assert certificate() == first
        renew()
        hang_up(served, "reloaded what=certificates")
        second = certificate()
        assert second != first
        assert_serves(session)
        key.write_text("broken", encoding="utf-8")
        hang_up(served, "reload failed what=certificates error=")
        assert certificate() == second
        assert_serves(session)
