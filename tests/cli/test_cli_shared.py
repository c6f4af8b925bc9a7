"""`serve --store`: where several runtimes keep everything together, and the name of each."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from arcp_trio.cli import logs
from arcp_trio.cli.database_url import secret_files
from arcp_trio.cli.errors import CommandError
from arcp_trio.cli.serve.config import settle
from arcp_trio.cli.serve.options import ServeOptions
from arcp_trio.cli.serve.storing import make_store
from arcp_trio.store.postgres import PostgresStore
from tests.cli.processes import Starter, assert_refused

URL = "postgresql://arcp@localhost/arcp"
WITH_PASSWORD = "postgresql://arcp:hush@localhost/arcp"


@pytest.fixture
def shared_by_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set `ARCP_STORE`."""
    monkeypatch.setenv("ARCP_STORE", URL)


def configuration(tmp_path: Path, text: str) -> str:
    """Write a configuration file with this under [serve], and return its path."""
    path = tmp_path / "arcp.toml"
    path.write_text(f"[serve]\n{text}\n")
    return str(path)


def test_the_environment_names_the_store(shared_by_environment: None) -> None:
    """The address of a database often has a password, which the list of processes would show."""
    assert settle({}).options.store == URL


@pytest.mark.parametrize(
    "given", [{"memory": True}, {"data": "d"}, {"store": "postgresql://other"}]
)
def test_the_command_line_wins_over_the_environment(
    shared_by_environment: None, given: dict[str, object]
) -> None:
    """What an option says is not changed by `ARCP_STORE`."""
    options = settle(given).options
    assert {name: getattr(options, name) for name in given} == given
    assert (options.store is None) == ("store" not in given)


def test_the_file_wins_over_the_environment(shared_by_environment: None, tmp_path: Path) -> None:
    """So does what the configuration says."""
    assert settle({"config": configuration(tmp_path, "data = 'd'")}).options.store is None


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    """A store in the file gives way to --memory, and --data in the file to a store."""
    path = configuration(tmp_path, f"store = '{URL}'")
    assert settle({"config": path, "memory": True}).options.store is None
    path = configuration(tmp_path, "data = 'd'")
    assert settle({"config": path, "store": URL}).options == ServeOptions(store=URL)


def test_the_file_names_one_place(tmp_path: Path) -> None:
    """A file with a folder and a store is refused."""
    path = configuration(tmp_path, f"data = 'd'\nstore = '{URL}'")
    with pytest.raises(CommandError, match="has both data and store; keep one of them"):
        settle({"config": path})


def test_a_name_is_for_a_shared_store() -> None:
    """A runtime that is alone has no name."""
    with pytest.raises(CommandError, match="give --store, too"):
        settle({"node": "a"})


def test_nothing_is_kept_in_a_folder_beside_a_shared_store() -> None:
    """There is no token and no address in a folder."""
    assert settle({"store": URL}).options.folder is None
    assert settle({"data": "d"}).options.folder == "d"


def test_a_shared_store_is_opened_by_its_url() -> None:
    """The store has the name of the node, or one of its own."""
    store = make_store(ServeOptions(store=URL, node="a"), {})
    assert isinstance(store, PostgresStore)
    assert store.shared is not None
    assert store.shared.name == "a"
    other = make_store(ServeOptions(store=URL), {})
    assert other.shared is not None
    assert other.shared.name not in ("", "a")


def test_a_path_is_not_a_store() -> None:
    """Whatever is not the URL of a PostgreSQL is refused, and not repeated."""
    with pytest.raises(CommandError, match="takes a URL") as refused:
        make_store(ServeOptions(store="mysql://root:hush@db"), {})
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("tokens", [(), ("--token", "alice=0123456789abcdef")])
def test_an_address_that_is_of_no_database(start: Starter, tokens: tuple[str, ...]) -> None:
    """What is wrong is said of the address, also where a token would be missed next."""
    said = assert_refused(start("serve", "--port=0", "--store=mysql://root:hush@db", *tokens))
    assert said.startswith("arcp-trio: --store takes a URL, postgresql://role@host/name;")


@pytest.mark.parametrize("tokens", [(), ("--token", "alice=0123456789abcdef")])
def test_an_address_that_cannot_be_read_is_a_mistake(
    start: Starter, tokens: tuple[str, ...]
) -> None:
    """Another start would not mend it: exit code 2, and nothing of the password."""
    environment = {"ARCP_STORE": "postgresql://arcp:hu/sh@db/arcp"}
    code, _, said = start("serve", "--port", "0", *tokens, environment=environment).end()
    assert (code, said.count("\n")) == (2, 1)
    assert said.startswith("arcp-trio: --store: the address of the database cannot be read")
    assert "sh@" not in said


def test_a_password_on_the_command_line_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """One in the configuration or the environment is not, and none is ever shown."""
    options = ServeOptions(store=WITH_PASSWORD)
    make_store(options, {})
    assert not caplog.records
    make_store(options, {"store": WITH_PASSWORD})
    (record,) = caplog.records
    assert record.getMessage() == "password is seen in the list of processes"
    assert vars(record)["keep_in"] == "ARCP_STORE"
    assert "hush" not in repr([vars(record), options])


def test_a_database_that_is_away(start: Starter) -> None:
    """A start is worth another try then: exit code 1, and not 2, which is for mistakes."""
    away = "postgresql://arcp@127.0.0.1:1/arcp"
    options = ("--port", "0", "--token", "alice=0123456789abcdef", "--log-level", "error")
    code, _, said = start("serve", "--store", away, *options).end()
    assert code == 1
    assert said.startswith("arcp-trio: 127.0.0.1:1/arcp: the server cannot be reached")
    assert said.count("\n") == 1


def test_no_token_is_made_that_other_nodes_do_not_take(start: Starter) -> None:
    """A node without a token is refused before it looks for the database."""
    code, out, said = start("serve", "--store", URL, "--port", "0").end()
    assert (code, out) == (2, "")
    assert said == (
        "arcp-trio: nodes that share a store take the same tokens, so none is made here:"
        " give every node the same --token, --token-file or ARCP_TOKENS\n"
    )


def test_the_log_names_the_node(capsys: pytest.CaptureFixture[str]) -> None:
    """Each line has the name of the node, in text and as JSON, unless it has one of its own."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    try:
        root.handlers.clear()
        logs.set_up("info", "text")
        logs.name_node("a")
        logging.getLogger("arcp_trio.x").info("said", extra={"job_id": "j"})
        logging.getLogger("arcp_trio.x").info("said", extra={"node": "b"})
    finally:
        root.handlers[:], level = before
        root.setLevel(level)
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith("said job_id=j node=a")
    assert second.endswith("said node=b")


def test_files_with_secrets_of_a_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files are known in which libpq finds passwords and keys for an address."""
    monkeypatch.setenv("PGPASSFILE", "/from/a/variable")
    found = secret_files("postgresql://me@db/x?sslmode=require&sslkey=/a%20key&passfile=/words")
    assert {"/a key", "/words", "/from/a/variable", str(Path.home() / ".pgpass")} <= {*found}
    assert secret_files("host=db passfile='/words'")[0] == "/words"
