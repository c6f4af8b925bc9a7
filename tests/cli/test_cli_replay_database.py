"""`replay`: what is in a store that several nodes share."""

from __future__ import annotations

from collections.abc import Generator

import pytest
import trio

from arcp_trio import PostgresStore
from arcp_trio.cli import main
from arcp_trio.store.memos import Memo
from arcp_trio.store.records import Entry, Mark, Range
from arcp_trio.store.writes import AppendJournal, KeepMemo
from tests.store import databases
from tests.store.engines import Feeder, running

pytestmark = pytest.mark.postgres

HEAD = '{"arcp":"1.1","session_id":"S"'


@pytest.fixture
def url() -> Generator[str]:
    """The URL of a store with a session that runs at a node, and one without frames."""
    with databases.empty_store() as url:
        trio.run(_fill, url)
        yield url


async def _fill(url: str) -> None:
    async with running(PostgresStore(url, synchronous=False)) as store:
        feed = Feeder(store)
        feed.session()
        feed.session("S2", token=b"other")
        feed.job()
        tail = b',"type":"job.event","payload":0}'
        store.put(AppendJournal("J", Entry(0, 1, tail)))
        mark = Mark(0, 0, b',"type":"job.accepted"}')
        feed.log("S", [mark, Range(1, "J", 0, 1)], top=1, cursors={"J": 1}, watched=["J"])
        await store.put(KeepMemo("J", Memo("k", "step", 0, b"1"))).committed()


def replay(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Return the exit code, standard output and standard error of `replay`."""
    code = main(["replay", *arguments])
    out, err = capfd.readouterr()
    return code, out, err


def test_sessions_of_all_nodes_are_listed(
    capfd: pytest.CaptureFixture[str], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each session has a line, whichever node has it; the address may be in the environment."""
    code, out, err = replay(capfd, "--store", url)
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == ["S", "S2"]
    monkeypatch.setenv("ARCP_STORE", url)
    assert replay(capfd) == (0, out, "")


def test_frames_and_memos_are_as_from_a_folder(capfd: pytest.CaptureFixture[str], url: str) -> None:
    """The frames of a session are printed, and what its jobs remember."""
    code, out, _ = replay(capfd, "S", "--store", url, "--memos")
    assert code == 0
    frames = [
        HEAD + ',"type":"job.accepted"}',
        HEAD + ',"event_seq":1,"type":"job.event","payload":0}',
    ]
    *found, memo_line = out.splitlines()
    assert found == frames
    assert '"kind":"step"' in memo_line


def test_what_cannot_be_read_is_said_in_a_line(
    capfd: pytest.CaptureFixture[str], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing session or database, and two stores at once, are refused; a folder stays one."""
    assert replay(capfd, "S9", "--store", url)[0] == 1
    code, _, err = replay(capfd, "--store", url.replace("/test_", "/not_there_"))
    assert code == 1
    assert "there is no such database" in err
    assert err.count("\n") == 1
    assert replay(capfd, "--store", url, "--data", "x")[0] == 2
    monkeypatch.setenv("ARCP_STORE", url)
    assert "no store at not-there" in replay(capfd, "--data", "not-there")[2]
