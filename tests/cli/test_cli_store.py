"""`serve` and the store in its folder: what it keeps, who may read it, and its failures."""

from __future__ import annotations

import itertools
import os
import resource
import shutil
import signal
import sqlite3
import stat
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from tests.cli.processes import (
    END_SECONDS,
    Peer,
    Serve,
    Starter,
    assert_refused,
    peer,
    without_stalls,
)

TOKEN = "a-token-for-alice"

pytestmark = pytest.mark.real_tcp


def for_alice(start: Starter, *arguments: str) -> Serve:
    """Serve the demo agents to alice."""
    return start("serve", "--port=0", f"--token=alice={TOKEN}", *arguments)


def sql(path: Path, statement: str) -> None:
    """Execute a statement on a database file without the store."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(statement)


def set_largest_file(process: int, size: int) -> None:
    """Let a process write no file beyond this size, which is like a full disk."""
    _, hard = resource.prlimit(process, resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (size, hard))


@contextmanager
def no_file_larger_than(size: int) -> Generator[None]:
    """Let processes that are started in the block write no file beyond this size."""
    before, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    set_largest_file(os.getpid(), size)
    try:
        yield
    finally:
        set_largest_file(os.getpid(), before)


def a_store(start: Starter, tmp_path: Path) -> Path:
    """Run a process that makes a store; return the path of the store."""
    served = for_alice(start)
    served.url()
    served.send_signal(signal.SIGTERM)
    assert served.end()[0] == 0
    return tmp_path / ".arcp" / "arcp.db"


# -- after a restart


def begin_work(url: str, token: str) -> tuple[dict[str, object], list[str]]:
    """Have one job finish and another go on; return what resumes the session, and its frames."""
    with peer(url, token) as session:
        session.run("countdown", {"n": 2, "delay": 0})
        session.submit("sleeper")
        return session.resume_from(0), session.lines[1:]


def assert_it_goes_on(
    url: str, token: str, resume: dict[str, object], before: list[str], message: str
) -> None:
    """Expect the same frames to the byte, then the end of the lost job, and a working session."""
    with peer(url, token, resume) as session:
        assert session.answer["type"] == "session.welcome"
        for _ in before:
            session.receive()
        assert session.lines[1:] == before
        end = session.receive()
        assert (end["type"], end["event_seq"]) == ("job.error", 4)
        assert end["payload"]["code"] == "INTERNAL_ERROR"
        assert end["payload"]["retryable"] is True
        assert message in end["payload"]["message"]
        (result,) = session.run("echo", 1)
        assert (result["event_seq"], result["payload"]["result"]) == (5, {"echo": 1})


def test_a_killed_process_loses_nothing_that_it_sent(start: Starter) -> None:
    """After SIGKILL the token is the same, and a client reads again what it had read, and more."""
    served = start("serve", "--port=0")
    url, token = served.url(), served.line("token for local: ")
    resume, before = begin_work(url, token)
    served.send_signal(signal.SIGKILL)
    served.end()

    again = start("serve", "--port=0")
    url = again.url()
    assert again.line("token for local: ") == token
    assert_it_goes_on(url, token, resume, before, "runtime restarted")


def test_a_session_goes_on_after_an_orderly_end(start: Starter, tmp_path: Path) -> None:
    """After SIGTERM no write-ahead log is left, and the session goes on after the next start."""
    served = for_alice(start)
    resume, before = begin_work(served.url(), TOKEN)
    served.send_signal(signal.SIGTERM)
    assert served.end()[0] == 0
    folder = {each.name for each in (tmp_path / ".arcp").iterdir()}
    assert folder == {"arcp.db", "arcp.db.lock"}
    assert_it_goes_on(for_alice(start).url(), TOKEN, resume, before, "was shut down")


def test_memory_forgets(start: Starter, tmp_path: Path) -> None:
    """With --memory a session ends with the process, and nothing is written."""
    served = for_alice(start, "--memory")
    resume, _ = begin_work(served.url(), TOKEN)
    served.send_signal(signal.SIGTERM)
    assert served.end()[0] == 0
    with peer(for_alice(start, "--memory").url(), TOKEN, resume) as session:
        assert session.answer["payload"]["code"] == "RESUME_WINDOW_EXPIRED"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("synchronous", ["normal", "off"])
def test_how_hard_it_syncs_can_be_chosen(start: Starter, synchronous: str) -> None:
    """A killed process loses nothing under any --synchronous."""
    served = for_alice(start, "--synchronous", synchronous)
    resume, before = begin_work(served.url(), TOKEN)
    served.send_signal(signal.SIGKILL)
    served.end()
    assert_it_goes_on(for_alice(start).url(), TOKEN, resume, before, "runtime restarted")


def test_sigterm_in_the_middle_of_many_events(start: Starter) -> None:
    """The frames that a busy session was sent are stored, and the end is in time."""
    served = for_alice(start)
    url = served.url()
    with peer(url, TOKEN) as session:
        accepted = session.submit("chatty", {"n": 200_000})
        for _ in range(1_000):
            session.receive()
        asked = time.monotonic()
        served.send_signal(signal.SIGTERM)
        resume = session.resume_from(0)
        session.until_terminal()
        before = session.lines[1:]
    code, _, err = served.end()
    assert time.monotonic() - asked < END_SECONDS
    assert code == 0
    assert "leaving without it" not in err
    with peer(for_alice(start).url(), TOKEN, resume) as session:
        assert session.receive() == accepted
        session.until_terminal()
        assert session.lines[1:] == before


# -- who may read it


@pytest.mark.parametrize("umask", [0o022, 0])
def test_only_its_user_can_read_what_it_keeps(start: Starter, tmp_path: Path, umask: int) -> None:
    """The folder has the mode 0700 and each file in it 0600, also after SIGKILL."""
    served = start("serve", "--port=0", umask=umask)
    with peer(served.url(), served.line("token for local: ")) as session:
        session.run("echo")
    served.send_signal(signal.SIGKILL)
    served.end()
    folder = tmp_path / ".arcp"
    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()}
    files = ("address", "arcp.db", "arcp.db-shm", "arcp.db-wal", "arcp.db.lock", "pid", "token")
    assert modes == dict.fromkeys(files, 0o600)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_what_was_opened_to_others_is_closed_again(start: Starter, tmp_path: Path) -> None:
    """The default folder is closed to others again; a folder that was chosen is left as it is."""
    path = a_store(start, tmp_path)
    path.chmod(0o644)
    path.parent.chmod(0o755)
    served = for_alice(start)
    served.url()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    served.send_signal(signal.SIGTERM)
    err = served.end()[2]
    for each in (".arcp", ".arcp/arcp.db"):
        assert f"closed to other users path={each}\n" in err

    path.parent.chmod(0o755)
    for_alice(start, "--data", str(path.parent)).url()
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o755


# -- what cannot be opened


def test_a_second_runtime_is_refused(start: Starter) -> None:
    """A second runtime is refused in one line, and the first one goes on."""
    first = for_alice(start)
    url = first.url()
    assert "arcp.db is in use by another runtime; " in assert_refused(for_alice(start))
    with peer(url, TOKEN) as session:
        session.run("echo")


def test_files_that_are_no_store_of_this_version(start: Starter, tmp_path: Path) -> None:
    """A store of a later version, a damaged one, another file and a folder are one line each."""
    path = a_store(start, tmp_path)
    whole = path.read_bytes()

    sql(path, "PRAGMA user_version = 999")
    assert "was written by a later version" in assert_refused(for_alice(start))

    path.write_bytes(whole[: len(whole) // 2])
    assert "is damaged: " in assert_refused(for_alice(start))

    path.write_bytes(whole[:4096] + os.urandom(len(whole) - 4096))
    assert "is damaged: " in assert_refused(for_alice(start))

    path.write_text("my diary\n" * 1_000, encoding="utf-8")
    assert "is not a store" in assert_refused(for_alice(start))
    assert path.read_text(encoding="utf-8") == "my diary\n" * 1_000

    path.unlink()
    path.mkdir()
    assert "; choose another --data" in assert_refused(for_alice(start))

    shutil.rmtree(path.parent)
    path.parent.touch()
    assert "cannot write to .arcp/arcp.db: " in assert_refused(for_alice(start))


@pytest.mark.parametrize("size", [0, 512, 4096, 60_000])
def test_a_disk_that_is_full_from_the_start(start: Starter, size: int) -> None:
    """A disk without room for an empty store is one line, and the next start succeeds."""
    with no_file_larger_than(size):
        served = for_alice(start)
    assert "arcp.db" in assert_refused(served)
    for_alice(start).url()


def test_debug_shows_where_the_store_failed(start: Starter, tmp_path: Path) -> None:
    """--log-level debug shows the traceback before the one line."""
    (tmp_path / ".arcp").touch()
    code, out, err = for_alice(start, "--log-level=debug").end()
    assert (code, out) == (2, "")
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("arcp-trio: cannot write to ")


# -- failures while it runs


def assert_told(session: Peer) -> None:
    """Expect the session to be told of the failure, and its connection to be closed."""
    said: list[str] = []
    with pytest.raises(ConnectionClosed) as closed:
        said.extend(session.receive()["type"] for _ in itertools.count())
    assert said.count("session.error") == 1
    assert said[-1] == "session.error"
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1011


def test_trouble_is_said_once_and_so_is_its_end(start: Starter) -> None:
    """A full disk is logged once, however much waits for it, and so is its end."""
    served = for_alice(start)
    url = served.url()
    with peer(url, TOKEN) as session:
        for _ in range(4):
            session.send("job.submit", {"agent": "chatty", "input": {"n": 50_000}})
        while session.receive().get("event_seq", 0) < 100:
            pass
        set_largest_file(served.process.pid, 0)
        assert_told(session)
    served.line("store in trouble, everything waits for it")
    for _ in range(3):
        with pytest.raises(ConnectionClosed), peer(url, TOKEN) as refused:
            refused.receive()
    set_largest_file(served.process.pid, resource.RLIM_INFINITY)
    served.line("store works again")
    with peer(url, TOKEN) as session:
        (result,) = session.run("echo", "again")
        assert result["payload"]["result"] == {"echo": "again"}
    served.send_signal(signal.SIGTERM)
    code, _, err = served.end()
    assert code == 0
    said = "".join(served.said) + err
    assert said.count("in trouble") == 1
    assert said.count("works again") == 1
    usual = (" info ", "cannot be cleaned up")  # the store may be about to clean up meanwhile
    lines = without_stalls(said.splitlines())
    worth_a_look = [line for line in lines if not any(part in line for part in usual)]
    assert len(worth_a_look) == 2, worth_a_look
    assert "Traceback" not in said


def test_trouble_from_a_restart_on(start: Starter, tmp_path: Path) -> None:
    """A start without room for the ends of lost jobs refuses sessions, and says why.

    As soon as there is room, everything goes on where it was.
    """
    served = for_alice(start)
    resume, before = begin_work(served.url(), TOKEN)
    served.send_signal(signal.SIGKILL)
    served.end()
    largest = 4200 + max(each.stat().st_size for each in (tmp_path / ".arcp").iterdir())
    with no_file_larger_than(largest):
        again = for_alice(start)
    url = again.url()
    with peer(url, TOKEN) as session:
        assert session.answer["type"] == "session.error"
        assert session.answer["payload"]["retryable"] is True
        assert "the store cannot be used" in session.answer["payload"]["message"]
    again.line("store in trouble")
    set_largest_file(again.process.pid, resource.RLIM_INFINITY)
    again.line("jobs_ended=1")
    assert_it_goes_on(url, TOKEN, resume, before, "runtime restarted")


def test_sigterm_during_trouble(start: Starter) -> None:
    """`serve` ends in time although its store cannot be written."""
    served = for_alice(start)
    with peer(served.url(), TOKEN) as session:
        session.submit("sleeper")
        session.run("echo")  # by its end it is stored that the sleeper has begun
        set_largest_file(served.process.pid, 0)
        session.send("job.submit", {"agent": "echo", "input": None})
        assert_told(session)
    asked = time.monotonic()
    served.send_signal(signal.SIGTERM)
    code, _, err = served.end()
    assert time.monotonic() - asked < END_SECONDS
    assert code == 0, err
    assert "Traceback" not in err
