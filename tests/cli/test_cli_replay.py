"""`replay`: what is in the store of a runtime that is not running."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import trio

from arcp_trio.cli import main
from arcp_trio.store.memos import Memo
from arcp_trio.store.records import Entry, Inline, LogItem, Mark, Range
from arcp_trio.store.sqlite import SqliteStore
from arcp_trio.store.writes import AppendJournal, AppendLog, KeepMemo, MoveFloor, TrimJournal
from tests.cli.processes import ROOT, Peer, Starter, peer
from tests.store.engines import Feeder, running

HEAD = '{"arcp":"1.1","session_id":"S"'


def replay(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Return the exit code, standard output and standard error of `replay`."""
    code = main(["replay", *arguments])
    out, err = capfd.readouterr()
    return code, out, err


def seen(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    """Return the contents, times and modes of the files in a folder."""
    return {
        each.name: (each.read_bytes(), each.stat().st_mtime_ns, each.stat().st_mode)
        for each in folder.iterdir()
    }


async def _fill(folder: Path) -> None:
    """Store one session with frames, of which one more is owed, and one without frames."""
    async with running(SqliteStore(folder / "arcp.db", synchronous="OFF")) as store:
        feed = Feeder(store)
        feed.session()
        feed.session("S2", token=b"other")
        feed.job()
        for index in range(4):
            tail = b',"type":"job.event","payload":%d}' % index
            store.put(AppendJournal("J", Entry(index, index + 1, tail)))
        first: list[LogItem] = [Mark(0, 0, b',"type":"job.accepted"}'), Range(1, "J", 0, 2)]
        second: list[LogItem] = [Mark(2, 1, b',"type":"job.cancelled"}'), Range(3, "J", 2, 1)]
        feed.log("S", first, top=2, cursors={"J": 2}, watched=["J"])
        feed.log("S", second, top=3, cursors={"J": 3})
        await store.flushed()


async def _put(
    folder: Path, *writes: AppendJournal | AppendLog | MoveFloor | TrimJournal | KeepMemo
) -> None:
    async with running(SqliteStore(folder / "arcp.db", synchronous="OFF")) as store:
        for write in writes:
            store.put(write)
        await store.flushed()


@pytest.fixture
def data(tmp_path: Path) -> str:
    """Return a folder with such a store."""
    trio.run(_fill, tmp_path / "data")
    return str(tmp_path / "data")


FRAMES = [
    HEAD + ',"type":"job.accepted"}',
    HEAD + ',"event_seq":1,"type":"job.event","payload":0}',
    HEAD + ',"event_seq":2,"type":"job.event","payload":1}',
    HEAD + ',"type":"job.cancelled"}',
    HEAD + ',"event_seq":3,"type":"job.event","payload":2}',
]


def test_without_a_session_all_are_listed(capfd: pytest.CaptureFixture[str], data: str) -> None:
    """Without SESSION_ID there is a line for each session, in columns, oldest first."""
    code, out, err = replay(capfd, "--data", data)
    assert (code, err) == (0, "")
    assert [line.split() for line in out.splitlines()] == [
        ["S", "alice", "last", "number", "3", "jobs", "watched", "1"],
        ["S2", "alice", "last", "number", "0", "jobs", "watched", "0"],
    ]


@pytest.mark.parametrize(
    ("after", "skipped"),
    [([], 0), (["--after-seq", "0"], 0), (["--after-seq", "1"], 2), (["--after-seq", "2"], 3)],
)
def test_the_frames_of_a_session(
    capfd: pytest.CaptureFixture[str], data: str, after: list[str], skipped: int
) -> None:
    """Frames are printed in order, one per line; events without a number yet are mentioned."""
    code, out, err = replay(capfd, "S", "--data", data, *after)
    assert code == 0
    assert out.splitlines() == FRAMES[skipped:]
    assert "numbered when the session is resumed" in err
    assert err.count("\n") == 1


def test_memos_follow_the_frames(capfd: pytest.CaptureFixture[str], data: str) -> None:
    """With --memos, what the jobs of the session remember is printed, one memo a line."""
    memo = Memo('["fetch",1]', "step", 2, b'{"done":7}')
    trio.run(_put, Path(data), KeepMemo("J", memo))
    code, out, _ = replay(capfd, "--data", data, "S", "--memos")
    assert code == 0
    assert out.splitlines()[-1] == (
        '{"job_id":"J","memo":["fetch",1],"kind":"step","index":2,"value":{"done":7}}'
    )
    assert replay(capfd, "--data", data, "--memos")[0] == 2


def test_nothing_is_printed_that_a_terminal_obeys(
    capfd: pytest.CaptureFixture[str], data: str
) -> None:
    """What an agent said, and what a job remembers, has its control characters escaped."""
    said = "\u009b2J \u202eevil".encode()
    tail = b',"type":"job.event","payload":"%b"}' % said
    inline: list[LogItem] = [Inline(4, tail)]
    batch = AppendLog("S", 2, inline, 4, {"J": 3}, watched=[], ended=[])
    memo = Memo('["fetch",1]', "step", 2, b'"%b"' % said)
    trio.run(_put, Path(data), batch, KeepMemo("J", memo))
    code, out, _ = replay(capfd, "--data", data, "S", "--memos")
    *_, frame, remembered = map(json.loads, out.splitlines())
    assert code == 0
    assert frame["payload"] == remembered["value"] == said.decode()
    assert "\u009b" not in out
    assert "\u202e" not in out


@pytest.mark.parametrize("after", ["3", "4", "9223372036854775807", "1" * 30])
def test_nothing_comes_after_the_last_number(
    capfd: pytest.CaptureFixture[str], data: str, after: str
) -> None:
    """A number after the last one prints nothing, and is not an error."""
    code, out, _ = replay(capfd, "S", "--data", data, "--after-seq", after)
    assert (code, out) == (0, "")


def test_acknowledged_numbers_are_not_missing_silently(
    capfd: pytest.CaptureFixture[str], data: str
) -> None:
    """If frames are no longer kept, a remark says so before the others."""
    trio.run(_put, Path(data), MoveFloor("S", 2, acked=True))
    code, out, err = replay(capfd, "S", "--data", data)
    assert (code, out.splitlines()) == (0, FRAMES[3:])
    assert "arcp-trio: numbers up to 2 are not kept" in err


def test_a_gap_ends_it(capfd: pytest.CaptureFixture[str], data: str) -> None:
    """Frames are printed up to the first one that is no longer kept, and the failure says so."""
    trio.run(_put, Path(data), TrimJournal("J", 2))
    code, out, err = replay(capfd, "S", "--data", data)
    assert (code, out.splitlines()) == (1, FRAMES[:1])
    assert err.startswith("arcp-trio: frames after number 0 are no longer kept")
    assert err.count("\n") == 1
    code, out, _ = replay(capfd, "S", "--data", data, "--after-seq", "2")
    assert (code, out.splitlines()) == (0, FRAMES[3:])


def test_an_unknown_session(capfd: pytest.CaptureFixture[str], data: str) -> None:
    """An unknown session is one line and exit code 1."""
    code, out, err = replay(capfd, "--data", data, "sess_unknown")
    assert (code, out) == (1, "")
    assert err.startswith("arcp-trio: there is no session sess_unknown in ")
    assert err.count("\n") == 1


def test_a_store_without_sessions(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A store without sessions is a remark on standard error, and exit code 0."""
    trio.run(_put, tmp_path)
    assert replay(capfd, "--data", str(tmp_path)) == (
        0,
        "",
        f"arcp-trio: there are no sessions in {tmp_path}/arcp.db\n",
    )


def test_where_there_is_no_store(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing store is one line; no folder is made."""
    monkeypatch.chdir(tmp_path)
    code, out, err = replay(capfd)
    assert (code, out) == (2, "")
    assert err == "arcp-trio: there is no store at .arcp/arcp.db; choose another --data\n"
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_store(capfd: pytest.CaptureFixture[str], data: str) -> None:
    """A later version, another file and a loop of links are one line each, and exit code 2."""
    path = Path(data) / "arcp.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 999")
    said = [replay(capfd, "--data", data)]
    path.write_bytes(b"my diary\n" * 1_000)
    said.append(replay(capfd, "--data", data))
    path.unlink()
    path.symlink_to(path)
    said.append(replay(capfd, "--data", data))
    for code, out, err in said:
        assert (code, out) == (2, "")
        assert err.count("\n") == 1
    assert ["later version" in err for _, _, err in said] == [True, False, False]


def test_a_number_without_a_session(capfd: pytest.CaptureFixture[str], data: str) -> None:
    """--after-seq without SESSION_ID is refused."""
    code, out, err = replay(capfd, "--data", data, "--after-seq", "1")
    assert (code, out) == (2, "")
    assert "SESSION_ID" in err


def test_a_reader_that_has_had_enough(data: str) -> None:
    """A closed pipe, as that of `| head`, ends the command quietly with 0."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        done = subprocess.run(
            [sys.executable, "-m", "arcp_trio", "replay", "--data", data],
            cwd=ROOT,
            check=False,
            stdout=pipe,
            stderr=subprocess.PIPE,
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (0, b"")


# -- the store of a real runtime


def work(session: Peer) -> list[str]:
    """Have a job finish and another one be cancelled; return the frames that were read."""
    session.run("countdown", {"n": 3, "delay": 0})
    accepted = session.submit("sleeper")
    session.send("job.cancel", {"job_id": accepted["job_id"]})
    session.until_terminal()
    return session.lines[1:]


@pytest.mark.real_tcp
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_it_prints_what_the_client_has_read(
    start: Starter, tmp_path: Path, end: signal.Signals
) -> None:
    """The frames are those that the client has read, to the byte; the folder is not changed."""
    served = start("serve", "--port=0", "--token=alice=x")
    with peer(served.url(), "x") as session:
        lines = work(session)
        session_id = session.answer["session_id"]
    served.send_signal(end)
    served.end()

    folder = tmp_path / ".arcp"
    before = seen(folder)
    code, out, err = start("replay", session_id).end()
    assert (code, out.splitlines(), err) == (0, lines, "")
    code, out, err = start("replay", session_id, "--after-seq=3").end()
    assert (code, out.splitlines(), err) == (0, lines[4:], "")
    code, out, err = start("replay").end()
    assert (code, out.split()[:2], err) == (0, [session_id, "alice"], "")
    assert seen(folder) == before


@pytest.mark.real_tcp
@pytest.mark.parametrize("left_out", [[], ["arcp.db.lock"], ["arcp.db.lock", "arcp.db-shm"]])
def test_a_copy_that_may_not_be_written(
    start: Starter, tmp_path: Path, left_out: list[str]
) -> None:
    """A read-only copy of the folder can be read, with or without the files of SQLite.

    The folder of a running runtime cannot be read.
    """
    served = start("serve", "--port=0", "--token=alice=x")
    with peer(served.url(), "x") as session:
        lines = work(session)
        session_id = session.answer["session_id"]
    code, out, err = start("replay").end()
    assert (code, out) == (2, "")
    assert err.startswith("arcp-trio: .arcp/arcp.db is in use by another runtime; ")
    served.send_signal(signal.SIGKILL)
    served.end()

    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / ".arcp", copy)
    for name in left_out:
        (copy / name).unlink()
    for each in copy.iterdir():
        each.chmod(0o400)
    copy.chmod(0o500)
    before = seen(copy)
    try:
        code, out, err = start("replay", "--data=copy", session_id).end()
    finally:
        copy.chmod(stat.S_IRWXU)
    assert (code, out.splitlines(), err) == (0, lines, "")
    assert seen(copy) == before
