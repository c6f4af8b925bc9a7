"""What keeps `serve` from starting: each is one line on standard error, and exit code 2."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.cli.processes import Starter, assert_refused

pytestmark = pytest.mark.real_tcp

AGENTS = """
import arcp_trio

print("imported")
agents = arcp_trio.Agents()

@agents.agent("noisy")
async def noisy(job): ...
"""


@pytest.fixture(autouse=True)
def _agents(tmp_path: Path) -> None:
    (tmp_path / "my_agents.py").write_text(AGENTS, encoding="utf-8")


def test_a_port_in_use(start: Starter, tmp_path: Path) -> None:
    """A port in use is one line with the address and a way out, and leaves no folder behind.

    Mistakes in the options are reported before `serve` listens.
    """
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        options = ("serve", "--port", str(port))
        err = assert_refused(start(*options))
        wrong = assert_refused(start(*options, "--token", "x"))
        assert "--token number 1 has no '='; write principal=token" in wrong
        unsigned = assert_refused(start(*options, "--jwt-audience", "here"))
        assert "signed tokens need their keys" in unsigned
    assert f"cannot listen on 127.0.0.1:{port}: address already in use; " in err
    assert "--port" in err
    assert not (tmp_path / ".arcp").exists()


@pytest.mark.parametrize("host", ["no such host", "192.0.2.1", "x" * 70, "a..b"])
def test_a_bad_host(start: Starter, host: str) -> None:
    """A host that cannot be listened on is one line that names it."""
    err = assert_refused(start("serve", "--memory", "--port", "0", "--host", host))
    assert host in err
    assert "--host" in err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--agents", "nowhere"), "there is no module nowhere"),
        (("--agents", "my_agents.py"), "leave out the .py, my_agents"),
        (("--agent", "a=my_agents:agents"), "not an async function"),
        (("--token", "hush"), "--token number 1 has no '='"),
        (("--config", "absent.toml"), "absent.toml"),
        (("--config", "my_agents.py"), "my_agents.py is not a TOML file"),
        (("--token-file", "absent"), "absent"),
        (("--data", "my_agents.py"), "choose another --data"),
        (("--port", "many"), "--port"),
        (("--agent=noisy@1.0.0=my_agents:noisy", "--agents=my_agents"), "noisy@1.0.0"),
    ],
)
def test_what_keeps_it_from_starting(
    start: Starter, arguments: tuple[str, ...], complaint: str
) -> None:
    """Each mistake is one line and exit code 2, without a traceback and without a secret."""
    err = start("serve", "--port", "0", *arguments).end()
    assert err[:2] == (2, "")
    *printed, line = err[2].splitlines()
    assert printed in ([], ["imported"])  # the module of agents prints this
    assert line.startswith("arcp-trio: ")
    assert complaint in line
    assert "hush" not in line


def test_debug_shows_the_traceback(start: Starter, tmp_path: Path) -> None:
    """An exception in a module of agents is one line; --log-level debug adds its traceback."""
    (tmp_path / "broken.py").write_text("1 / 0\n", encoding="utf-8")
    short = assert_refused(start("serve", "--agents", "broken"))
    assert "importing broken failed with ZeroDivisionError" in short
    code, out, err = start("serve", "--agents", "broken", "--log-level", "debug").end()
    assert (code, out) == (2, "")
    assert "Traceback" in err
    assert 'broken.py", line 1' in err
    assert err.endswith(short)
