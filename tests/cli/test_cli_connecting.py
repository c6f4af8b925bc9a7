"""How commands find their runtime and their token."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest
import trustme
from attrs import evolve

from arcp_trio.cli.client.connecting import find_runtime, is_on_this_machine, read_token
from arcp_trio.cli.client.options import ClientOptions
from arcp_trio.cli.errors import CommandError
from tests.cli.clients import Commands
from tests.cli.processes import Starter

LOCAL = "ws://127.0.0.1:7777/arcp"


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder where `serve` has kept a token."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".arcp").mkdir()
    (tmp_path / ".arcp" / "token").write_text("found\n")
    return tmp_path


def test_the_kept_token_is_found(kept: Path) -> None:
    """The kept token is used if no other one is given, from the folder that --data names."""
    assert find_runtime(ClientOptions(), {}).token == "found"
    assert find_runtime(ClientOptions(url=("unix:/run/arcp",)), {}).token == "found"
    assert find_runtime(ClientOptions(), {"ARCP_TOKEN": "set"}).token == "set"
    assert find_runtime(ClientOptions(), {"ARCP_TOKEN": ""}).token == "found"
    assert find_runtime(ClientOptions(token="given"), {"ARCP_TOKEN": "set"}).token == "given"
    (kept / ".arcp").rename(kept / "elsewhere")
    assert find_runtime(ClientOptions(), {}).token is None
    assert find_runtime(ClientOptions(data="elsewhere"), {}).token == "found"


@pytest.mark.parametrize(
    "url",
    [
        "ws://example.com/arcp",
        "wss://192.0.2.1/arcp",
        "ws://127.0.0.1.example.com/arcp",
        "ws://127.0.0.1@example.com/arcp",
        "ws://localhost.example.com/arcp",
        "ws://0.0.0.0:7777/arcp",
        "ws://[::ffff:192.0.2.1]/arcp",
    ],
)
def test_no_other_machine_gets_the_kept_token(kept: Path, url: str) -> None:
    """The kept token is sent to no other machine; a token that is given is sent anywhere."""
    assert not is_on_this_machine(url)
    assert find_runtime(ClientOptions(url=(url,)), {}).token is None
    assert find_runtime(ClientOptions(), {"ARCP_URL": url}).token is None
    assert find_runtime(ClientOptions(url=(LOCAL, url)), {}).token is None
    assert find_runtime(ClientOptions(url=(url,), token="given"), {}).token == "given"


@pytest.mark.parametrize(
    "url", [LOCAL, "wss://localhost/", "ws://[::1]:1/arcp", "ws://127.9.9.9/", "unix:/tmp/socket"]
)
def test_this_machine(url: str) -> None:
    """Names and addresses of the loopback interface, and Unix sockets, are on this machine."""
    assert is_on_this_machine(url)


def test_what_is_no_token(tmp_path: Path) -> None:
    """In a pipe, a folder, other bytes or an empty file there is no token."""
    assert read_token(tmp_path / "token") is None
    assert read_token(tmp_path) is None
    os.mkfifo(tmp_path / "pipe")
    assert read_token(tmp_path / "pipe") is None
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    assert read_token(tmp_path / "bytes") is None
    (tmp_path / "empty").write_text("\n")
    assert read_token(tmp_path / "empty") is None


def test_the_address() -> None:
    """The address is the option, the environment or the default; it is shown without secrets."""
    assert find_runtime(ClientOptions(), {}).url == LOCAL
    assert find_runtime(ClientOptions(), {"ARCP_URL": "unix:/a"}).shown_url == "unix:/a"
    options = ClientOptions(url=("wss://me:pw@host:1/arcp?key=secret",))
    found = find_runtime(options, {"ARCP_URL": "unix:/a"})
    assert found.shown_url == "wss://host:1/arcp"
    several = find_runtime(ClientOptions(), {"ARCP_URL": "unix:/a, ws://me:pw@b/arcp"})
    assert several.shown_url == "unix:/a, ws://b/arcp"
    assert "pw" not in repr(find_runtime(ClientOptions(token="pw"), {}))
    with pytest.raises(CommandError, match="not the address of a runtime"):
        find_runtime(ClientOptions(url=("localhost:7777",)), {})
    with pytest.raises(CommandError, match=r"--url is .* '': it is empty.*; write it like ws://"):
        find_runtime(ClientOptions(url=("",)), {})
    with pytest.raises(CommandError, match=r"ARCP_URL is .* before or after it"):
        find_runtime(ClientOptions(), {"ARCP_URL": "unix:/a,"})
    assert find_runtime(ClientOptions(), {"ARCP_URL": ""}).url == LOCAL


def test_authorities(tmp_path: Path) -> None:
    """--ca takes a file of certificates, and refuses any other file."""
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    find_runtime(ClientOptions(url=("wss://localhost/",), ca=str(tmp_path / "ca.pem")), {})
    with pytest.raises(CommandError, match="holds no certificate"):
        find_runtime(ClientOptions(ca=__file__), {})


@pytest.mark.real_tcp
def test_serve_and_submit_in_one_folder(start: Starter, tmp_path: Path) -> None:
    """Beside `.arcp` a command needs no option; elsewhere, and not below it, it needs --data."""
    served = start("serve", "--port", "0", "--data", "here/.arcp")
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    commands = Commands(served.url(), here, token=None)
    assert commands.run("submit", "echo", "--input", "1").out == '{"echo":1}\n'
    elsewhere.mkdir()
    without = evolve(commands, folder=elsewhere)
    assert "wants a token; give one with --token or ARCP_TOKEN" in without.refused(
        3, "submit", "echo"
    )
    assert without.run("submit", "echo", "--data", "../here/.arcp").code == 0


@pytest.mark.real_tcp
def test_a_wrong_token(commands: Commands) -> None:
    """Every command reports a wrong token in one line that says where it is from."""
    for command in (["submit", "echo"], ["watch", "j"], ["jobs"], ["cancel", "j"], ["agents"]):
        said = commands.refused(3, *command, ARCP_TOKEN="hush")
        assert "does not accept the token from ARCP_TOKEN; give another one with --token" in said
        assert "hush" not in said
    assert "token from --token" in commands.refused(3, "ping", "--token", "hush")
    assert "token from --token" in commands.refused(3, "bench", "--token", "hush")


@pytest.mark.real_tcp
def test_a_token_with_its_principal(commands: Commands) -> None:
    """A token that is written as for `serve`, with its principal, is told apart from padding."""
    said = commands.refused(3, "jobs", "--token", "alice=s3cret")
    assert said.endswith("; give what is after the = alone with --token or ARCP_TOKEN")
    assert "give another one" in commands.refused(3, "jobs", "--token", "YWxpY2U==")


@pytest.mark.real_tcp
@pytest.mark.parametrize("command", [["submit", "echo"], ["jobs"], ["ping"]])
def test_no_runtime_there(commands: Commands, command: list[str]) -> None:
    """Without a runtime at the address, the line says so, and how to start one."""
    nowhere = evolve(commands, url="ws://127.0.0.1:1/arcp")
    assert nowhere.refused(3, *command) == (
        "no runtime listens at ws://127.0.0.1:1/arcp; start one with arcp-trio serve,"
        " or say where one is with --url or ARCP_URL"
    )


@pytest.mark.real_tcp
def test_several_runtimes(commands: Commands) -> None:
    """Of several addresses the one that answers is used; if no one does, all are named."""
    nowhere = "ws://127.0.0.1:1/arcp"
    assert commands.run("submit", "echo", "--url", nowhere, "--url", commands.url).code == 0
    assert commands.run("submit", "echo", ARCP_URL=f"{nowhere},{commands.url}").code == 0
    said = commands.refused(3, "jobs", "--url", nowhere, "--url", "ws://127.0.0.1:2/arcp")
    assert said.startswith(f"no runtime listens at {nowhere}, ws://127.0.0.1:2/arcp; start one")


@pytest.mark.real_tcp
def test_no_such_host(commands: Commands) -> None:
    """An unknown name is reported as such, and not as a runtime that is not started."""
    said = evolve(commands, url="ws://no-such-host.invalid/arcp").refused(3, "agents")
    assert said.startswith("cannot connect to ws://no-such-host.invalid/arcp: ")
    assert said.endswith("; is --url right?")
    assert "ws://no..host/arcp" in evolve(commands, url="ws://no..host/arcp").refused(3, "agents")


@pytest.mark.real_tcp
def test_a_wrong_path(commands: Commands) -> None:
    """A server without a runtime at the path is a wrong path, also where it has a page."""
    for path in ("/else", "/", "/healthz"):
        wrong = evolve(commands, url=commands.url.removesuffix("/arcp") + path)
        assert "look at the path in --url" in wrong.refused(3, "agents")


@pytest.mark.real_tcp
def test_a_proxy_without_a_runtime(commands: Commands) -> None:
    """A proxy whose runtimes are not ready is told from a server that is something else."""
    for answer, advice in (
        (b"HTTP/1.1 503 Service Unavailable", "its runtimes are not ready: try again"),
        (b"HTTP/1.1 200 OK", "is it a runtime, and is --url right?"),
    ):
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def refuse(listener: socket.socket = listener, answer: bytes = answer) -> None:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(answer + b"\r\ncontent-length: 0\r\n\r\n")

            proxy = threading.Thread(target=refuse)
            proxy.start()
            url = f"ws://127.0.0.1:{listener.getsockname()[1]}/arcp"
            said = evolve(commands, url=url).refused(3, "agents")
            proxy.join()
        assert said.endswith(advice)


@pytest.mark.real_tcp
def test_debug_shows_the_traceback_of_a_client(commands: Commands) -> None:
    """--log-level debug shows the traceback before the one line."""
    done = commands.run("jobs", "--token", "hush", "--log-level", "debug")
    assert done.code == 3
    assert "Traceback" in done.err
    assert "hush" not in done.err
    assert done.err.splitlines()[-1].startswith("arcp-trio: ")


@pytest.mark.real_tcp
def test_by_a_socket_in_the_file_system(start: Starter, tmp_path: Path) -> None:
    """`unix:` and a path leads to a runtime of this machine, which gets its token."""
    served = start("serve", "--host", f"unix:{tmp_path}/socket")
    commands = Commands(served.url(), tmp_path, token=None)
    assert commands.url == f"unix:{tmp_path}/socket"
    assert commands.run("submit", "echo", "--input", "1").out == '{"echo":1}\n'
    assert "answer from unix:" in commands.run("ping", "--count", "1").out


@pytest.mark.real_tcp
def test_over_tls(start: Starter, tmp_path: Path) -> None:
    """`wss://` trusts the authorities of --ca, and no others."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    own = authority.issue_cert("localhost", "127.0.0.1")
    own.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    own.private_key_pem.write_to_path(tmp_path / "key.pem")
    tls = ("--tls-cert", "cert.pem", "--tls-key", "key.pem")
    commands = Commands(start("serve", "--port", "0", *tls).url(), tmp_path, token=None)
    assert commands.url.startswith("wss://")
    assert commands.run("submit", "echo", "--ca", "ca.pem").code == 0
    assert "--ca names the authorities to trust" in commands.refused(3, "submit", "echo")
    assert commands.run("submit", "sleeper", "--detach", "--ca", "ca.pem").code == 0
    in_the_open = evolve(commands, url=commands.url.replace("wss:", "ws:"))
    assert "before it answered; perhaps by wss://; is it a runtime" in in_the_open.refused(
        3, "submit", "echo"
    )
    without = evolve(commands, url=start("serve", "--port=0", "--memory").url())
    assert "; perhaps by ws://; is --url right?" in without.refused(
        3, "agents", "--url", without.url.replace("ws:", "wss:")
    )
    assert "1 job ends with this runtime" in commands.run("stop").err
