"""The configuration file of `serve`."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from arcp_trio import Limits
from arcp_trio.cli.errors import CommandError
from arcp_trio.cli.serve.config import Config, settle
from arcp_trio.cli.serve.options import ServeOptions


def settled(tmp_path: Path, text: str, **given: object) -> Config:
    """Settle a file with this text together with these options of the command line."""
    path = tmp_path / "arcp.toml"
    path.write_text(text, encoding="utf-8")
    return settle({"config": str(path), **given})


def test_without_a_file_there_are_the_defaults() -> None:
    """A `serve` without options has the default options and limits."""
    assert settle({}) == Config(options=ServeOptions(), limits=Limits())


def test_every_option_can_stand_in_the_file(tmp_path: Path) -> None:
    """Each option has a key in [serve], its long name with _ for -."""
    config = settled(
        tmp_path,
        """
        [serve]
        host = ["::1", "unix:/run/arcp"]
        port = 0
        tls_cert = "c.pem"
        tls_key = "k.pem"
        insecure = true
        allow_origin = ["https://app.example"]
        data = "d"
        memory = false
        synchronous = "off"
        token = ["alice=x"]
        token_file = "tokens"
        agent = ["a=m:f"]
        agents = ["m", "n:r"]
        demo_agents = true
        resume_window = 5
        heartbeat = 2
        drain = 1
        cancel_grace = 0.5
        observer = ["auditor"]
        operator = ["root"]
        no_stop = true
        log_level = "error"
        """,
    )
    assert config.options == ServeOptions(
        host=("::1", "unix:/run/arcp"),
        port=0,
        tls_cert="c.pem",
        tls_key="k.pem",
        insecure=True,
        allow_origin=("https://app.example",),
        data="d",
        synchronous="off",
        token=("alice=x",),
        token_file="tokens",
        agent=("a=m:f",),
        agents=("m", "n:r"),
        demo_agents=True,
        resume_window=5,
        heartbeat=2,
        drain=1,
        cancel_grace=0.5,
        observer=frozenset({"auditor"}),
        operator=frozenset({"root"}),
        no_stop=True,
        log_level="error",
    )
    assert config.limits == Limits(
        resume_window_seconds=5, heartbeat_seconds=2, cancel_grace_seconds=0.5
    )


def test_every_limit_can_stand_in_the_file(tmp_path: Path) -> None:
    """Each limit of the runtime has a key in [limits]."""
    values = {name: index for index, name in enumerate(attrs.fields_dict(Limits), start=1)}
    values["lease_grace_seconds"] = 1  # the most there may be
    lines = "".join(f"{key} = {value}\n" for key, value in values.items())
    assert settled(tmp_path, "[limits]\n" + lines).limits == Limits(**values)


def test_the_command_line_wins(tmp_path: Path) -> None:
    """An option on the command line replaces the one in the file, also one under [limits]."""
    config = settled(
        tmp_path,
        "[serve]\nport = 1\nhost = 'a'\n[limits]\nresume_window_seconds = 7\n",
        port=2,
        resume_window=9,
    )
    assert (config.options.port, config.options.host) == (2, ("a",))
    assert config.limits.resume_window_seconds == 9


def test_the_command_line_chooses_between_streams_and_network(tmp_path: Path) -> None:
    """`--stdio` removes the file's address, and an address the file's `stdio`.

    The default of `chunk_bytes` follows the choice.
    """
    config = settled(tmp_path, "[serve]\nport = 1\nhost = 'a'\n", stdio=True)
    assert (config.options.stdio, config.options.port) == (True, 7777)
    assert config.limits.chunk_bytes == 32 * 1024
    config = settled(tmp_path, "[serve]\nstdio = true\n", port=1)
    assert (config.options.stdio, config.options.port) == (False, 1)
    assert config.limits == Limits()
    with pytest.raises(CommandError, match="leave out --port"):
        settled(tmp_path, "[serve]\nstdio = true\nport = 1\n")
    given = settled(tmp_path, "[serve]\nstdio = true\n[limits]\nchunk_bytes = 9\n")
    assert given.limits.chunk_bytes == 9


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[serve]\nprot = 1", "prot"),
        ("[serve]\nconfig = 'x'", "config"),
        ("[serve]\nlog-level = 'info'", "log-level"),
        ("[limits]\njobz = 1", "jobz"),
        ("[extra]\n", "extra"),
        ("port = 1", "port"),
        ("serve = 1", "serve"),
        ("[serve]\nport = '7777'", "port"),
        ("[serve]\nport = true", "port"),
        ("[serve]\nhost = 1", "host"),
        ("[serve]\nhost = ['a', 1]", "host"),
        ("[serve]\nport = 70000", "port"),
        ("[serve]\nmemory = 1", "memory"),
        ("[serve]\ntoken = 'alice=hush'", "token"),
        ("[serve]\ntoken = [1]", "token"),
        ("[serve]\nagents = [['m']]", "agents"),
        ("[serve]\ndrain = inf", "drain"),
        ("[serve]\ndrain = -1", "drain"),
        ("[serve]\nheartbeat = 0.5", "heartbeat"),
        ("[serve]\nlog_level = 'loud'", "log_level"),
        ("[serve]\nsynchronous = 1", "synchronous"),
        ("[serve]\nmemory = true\ndata = 'd'", "memory"),
        ("[limits]\njobs = 1.5", "jobs"),
        ("[limits]\njobs = true", "jobs"),
        ("[limits]\njobs = '1'", "jobs"),
        ("[limits]\njobs = 0", "jobs"),
        ("[limits]\njobs = -1", "jobs"),
        ("[limits]\nclose_seconds = nan", "close_seconds"),
        ("[limits]\nclose_seconds = '2'", "close_seconds"),
    ],
)
def test_a_wrong_key_or_value_is_named(tmp_path: Path, text: str, key: str) -> None:
    """An unknown key and a value of a wrong type are one line with the file and the key."""
    with pytest.raises(CommandError) as caught:
        settled(tmp_path, text)
    message = str(caught.value)
    assert f" {key} " in f" {message.replace(';', ' ')} "
    assert str(tmp_path / "arcp.toml") in message
    assert "\n" not in message
    assert "hush" not in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[serve]\nprot = 1", "[serve] unknown key prot (did you mean port?); "),
        ("[limits]\njob = 1", "[limits] unknown key job (did you mean jobs?); "),
    ],
)
def test_a_mistyped_key(tmp_path: Path, text: str, words: str) -> None:
    """The key that is most like it is named."""
    with pytest.raises(CommandError) as caught:
        settled(tmp_path, text)
    assert words in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing file, a folder, and a file that is not TOML or not text are one line each."""
    binary, wrong = tmp_path / "binary", tmp_path / "wrong"
    binary.write_bytes(b"\xff\xfe")
    wrong.write_text("[serve\n", encoding="utf-8")
    for path in (tmp_path / "missing", tmp_path, binary, wrong):
        with pytest.raises(CommandError) as caught:
            settle({"config": str(path)})
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
        assert ("not UTF-8 text" in str(caught.value)) == (path == binary)
