"""`job.open` on a real file system: files outside of the lease are never read or written (§9.3).

These tests run in real time: a virtual clock does not wait for threads, which open the files.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import ArcpError, JobContext
from arcp_trio.wire.json import Json
from tests.inside import spend_after_each_authorization
from tests.jobs.doer import SteppedClock
from tests.jobs.workspace import DENIED, Workspace, attempt

# --- what is allowed ------------------------------------------------------------------------


@pytest.mark.spec("9.3-1")
async def test_what_the_lease_covers_is_opened(files: Workspace) -> None:
    """Files that the lease covers can be read, written, appended to and made."""
    path = files.inside / "a.txt"
    assert await files.attempt(path) == "inside"
    assert await files.attempt(path, "rb") == "inside"
    assert await files.attempt(path, "a", "+") == "written"
    assert path.read_text() == "inside+"
    assert await files.attempt(path, "r+b", "IN") == "written"
    assert path.read_text() == "INside+"
    assert await files.attempt(path, "w", "new") == "written"
    assert path.read_text() == "new"
    assert await files.attempt(files.inside / "b.txt", "x", "made") == "written"
    assert (files.inside / "b.txt").read_text() == "made"
    assert await files.attempt(files.inside / "c.txt", "w+") == ""
    assert (files.inside / "c.txt").read_text() == ""


async def test_the_file_is_what_open_gives(files: Workspace) -> None:
    """Encoding, line ends and name of the file are those of Python's `open`."""
    path = files.inside / "latin.txt"

    async def act(job: JobContext) -> Json:
        async with job.open(path, "w", encoding="latin-1", newline="\r\n") as file:
            await file.write("é\nà\n")
        async with job.open(path, encoding="ascii", errors="replace") as file:
            lines = [line async for line in file]
        async with job.open(path, "rb") as binary:
            await binary.seek(-1, os.SEEK_END)
            last = await binary.read()
            waits, kept = os.get_blocking(binary.fileno()), os.get_inheritable(binary.fileno())
        return [lines, last.hex(), binary.wrapped.name, waits, kept]

    payload = await files.run(act)
    assert payload["result"] == [["\ufffd\n", "\ufffd\n"], "0a", str(path), True, False]
    assert path.read_bytes() == "é\r\nà\r\n".encode("latin-1")


async def test_a_relative_path_is_in_the_working_directory(
    files: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path is resolved in the process's working directory and then checked."""
    monkeypatch.chdir(files.inside)
    assert await files.attempt("a.txt") == "inside"
    assert await files.attempt("deep/../a.txt") == "inside"
    assert await files.attempt("../out/a.txt") == DENIED
    monkeypatch.chdir(files.outside)
    assert await files.attempt("a.txt") == DENIED
    assert await files.attempt("") == DENIED


@pytest.mark.spec("9.3-2", "1.0/9.3-1")
@pytest.mark.parametrize("mode", ["r", "r+", "w", "a", "x", "w+", "wb"])
async def test_what_the_lease_does_not_cover_is_refused(files: Workspace, mode: str) -> None:
    """A path outside of the lease is refused in every mode, and no file is emptied or made."""
    for path in (
        files.outside / "a.txt",
        files.outside / "none.txt",
        f"{files.inside}/../out/a.txt",
        f"{files.inside}/%2e%2e/out/a.txt",
        f"{files.inside}-sibling/a.txt",
    ):
        assert await files.attempt(path, mode) == DENIED


@pytest.mark.parametrize(
    ("capability", "modes"),
    [("fs.read", ["w", "a", "x", "r+", "w+", "ab", "r+b"]), ("fs.write", ["r", "rb", "r+", "a+"])],
)
async def test_each_mode_needs_its_grants(
    files: Workspace, capability: str, modes: Sequence[str]
) -> None:
    """A mode that reads and writes needs both grants."""
    path = files.inside / "a.txt"
    other = {"fs.read": "fs.write", "fs.write": "fs.read"}[capability]
    for mode in modes:
        assert await files.attempt(path, mode, lease={other: []}) == DENIED
        assert await files.attempt(files.inside / "none.txt", mode, lease={other: []}) == DENIED
    assert path.read_text() == "inside"
    assert not (files.inside / "none.txt").exists()


@pytest.mark.parametrize("mode", ["", "q", "rw", "wa", "r++", "rbt", "b", "rr", "rU"])
async def test_a_mode_that_open_does_not_take_is_not_taken(files: Workspace, mode: str) -> None:
    """An invalid mode opens nothing, whatever the lease."""
    assert await files.attempt(files.inside / "a.txt", mode) == "ValueError"
    assert (files.inside / "a.txt").read_text() == "inside"


# --- what is checked before the path --------------------------------------------------------


async def test_an_exhausted_budget_comes_before_the_path(files: Workspace) -> None:
    """An exhausted budget is BUDGET_EXHAUSTED, even for a path that is not allowed."""

    async def act(job: JobContext) -> Json:
        await job.metric("cost.own", 1, unit="USD")
        return [
            await attempt(job, files.inside / "a.txt", "w"),
            await attempt(job, files.outside / "a.txt", "r"),
        ]

    payload = await files.run(act, lease_request=files.lease | {"cost.budget": ["USD:1"]})
    assert payload["result"] == ["BUDGET_EXHAUSTED", "BUDGET_EXHAUSTED"]
    assert (files.inside / "a.txt").read_text() == "inside"


async def test_an_expired_lease_comes_before_all(
    files: Workspace, clock: SteppedClock, autojump_clock: MockClock
) -> None:
    """An open after the lease's end is LEASE_EXPIRED, and so is the job."""
    refused: list[str] = []

    async def act(job: JobContext) -> Json:
        await job.metric("cost.own", 1, unit="USD")
        with trio.CancelScope(shield=True):
            await trio.sleep(10)
        refused.append(await attempt(job, files.inside / "a.txt", "w"))
        return None

    payload = await files.run(
        act,
        lease_request=files.lease | {"cost.budget": ["USD:1"]},
        lease_constraints={"expires_at": clock.after(5)},
    )
    assert payload["code"] == "LEASE_EXPIRED"
    assert refused == ["LEASE_EXPIRED"]
    assert (files.inside / "a.txt").read_text() == "inside"


@pytest.mark.spec("9.3-3")
async def test_the_check_is_the_last_thing_before_the_opening(
    files: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A budget that is used up while links are resolved refuses the opening."""
    spend_after_each_authorization(monkeypatch)
    path = files.inside / "new.txt"
    result = await files.attempt(path, "w", lease={"cost.budget": ["USD:1"]})
    assert result == "BUDGET_EXHAUSTED"
    assert not path.exists()


# --- links ----------------------------------------------------------------------------------


async def test_links_that_stay_inside_are_followed(files: Workspace) -> None:
    """Links within the lease are followed: to files, to directories, in chains, to new files."""
    (files.inside / "file").symlink_to("deep/a.txt")
    (files.inside / "directory").symlink_to(files.inside / "deep")
    (files.inside / "chain").symlink_to("directory/../file")
    (files.inside / "dangling").symlink_to("made.txt")
    assert await files.attempt(files.inside / "file") == "inside"
    assert await files.attempt(files.inside / "directory" / "a.txt") == "inside"
    assert await files.attempt(files.inside / "chain", "a", "+") == "written"
    assert (files.inside / "deep" / "a.txt").read_text() == "inside+"
    assert await files.attempt(files.inside / "directory" / "b.txt", "x", "made") == "written"
    assert (files.inside / "deep" / "b.txt").read_text() == "made"
    assert await files.attempt(files.inside / "dangling") == "FileNotFoundError"
    assert await files.attempt(files.inside / "dangling", "w", "made") == "written"
    assert (files.inside / "made.txt").read_text() == "made"


@pytest.mark.spec("9.3-2", "1.0/9.3-1")
@pytest.mark.parametrize("mode", ["r", "w", "a", "r+"])
async def test_links_that_lead_out_are_refused(files: Workspace, mode: str) -> None:
    """Links that lead out of the lease are refused: to files, directories, in chains, by `..`."""
    inside, outside = files.inside, files.outside
    (inside / "file").symlink_to(outside / "a.txt")
    (inside / "directory").symlink_to("../out")
    (inside / "deep" / "below").symlink_to(outside / "deep")
    (inside / "chain").symlink_to("deep/hop")
    (inside / "deep" / "hop").symlink_to("../directory/a.txt")
    (inside / "dangling").symlink_to(outside / "none.txt")
    (inside / "root").symlink_to("/")
    for path in (
        inside / "file",
        inside / "directory" / "a.txt",
        inside / "directory" / "none.txt",
        inside / "chain",
        inside / "dangling",
        f"{inside}/deep/below/../a.txt",  # the name leads to a.txt beside it, the links to another
        f"{inside}/root{outside}/a.txt",
        f"{inside}/root{inside}/../out/a.txt",
    ):
        assert await files.attempt(path, mode) == DENIED, path


async def test_a_way_through_the_outside_is_no_way(files: Workspace) -> None:
    """A path outside of the lease is refused, even if its links lead back inside."""
    (files.outside / "back").symlink_to(files.inside)
    assert await files.attempt(files.outside / "back" / "a.txt") == DENIED


async def test_a_new_file_is_no_link(files: Workspace) -> None:
    """Mode `x` treats a dangling link as an existing file, and does not create its target."""
    (files.inside / "in").symlink_to("made.txt")
    (files.inside / "out").symlink_to(files.outside / "made.txt")
    (files.inside / "directory").symlink_to(files.outside)
    assert await files.attempt(files.inside / "in", "x") == "FileExistsError"
    assert await files.attempt(files.inside / "out", "x") == "FileExistsError"
    assert await files.attempt(files.inside / "a.txt", "x") == "FileExistsError"
    assert await files.attempt(files.inside / "directory" / "made.txt", "x") == DENIED
    assert not (files.inside / "made.txt").exists()


async def test_links_in_a_circle_lead_nowhere(files: Workspace) -> None:
    """Links in a circle are refused, with or without more path after them."""
    (files.inside / "circle").symlink_to("circle")
    assert await files.attempt(files.inside / "circle") == DENIED
    assert await files.attempt(files.inside / "circle", "w") == DENIED
    assert await files.attempt(files.inside / "circle" / "a.txt") == "NotADirectoryError"


async def test_the_links_of_proc_are_refused(files: Workspace) -> None:
    """A magic link of `/proc` or `/dev/fd` opens nothing, wherever it leads."""
    everything = {"fs.read": ["/**"]}
    with (files.outside / "a.txt").open() as secret:
        for path in (
            f"/proc/self/root{files.outside}/a.txt",
            f"/proc/thread-self/root{files.outside}/a.txt",
            f"/proc/{os.getpid()}/fd/{secret.fileno()}",
            f"/proc/self/fd/{secret.fileno()}",
            f"/dev/fd/{secret.fileno()}",
            f"/proc/self/root{files.inside}/a.txt",
        ):
            assert await files.attempt(path, lease=everything) == DENIED, path


# --- what is not a file ---------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["r", "w", "a", "r+"])
async def test_what_is_no_regular_file_is_refused_at_once(files: Workspace, mode: str) -> None:
    """FIFOs, sockets, devices and directories are refused at once."""
    os.mkfifo(files.inside / "fifo")
    (files.inside / "to-fifo").symlink_to("fifo")
    (files.inside / "root").symlink_to("/")
    wide = {"fs.read": ["/**"], "fs.write": ["/**"]}
    with socket.socket(socket.AF_UNIX) as listener, pytest.MonkeyPatch.context() as patch:
        patch.chdir(files.inside)  # a socket's path may not be long
        listener.bind("socket")
        for name in (
            "fifo",
            "to-fifo",
            "socket",
            "deep",
            "deep/",
            "a.txt/",
            "deep/.",
            "root",
            "..",
        ):
            assert await files.attempt(f"{files.inside}/{name}", mode, lease=wide) == DENIED, name
    assert await files.attempt("/dev/zero", mode, lease=wide) == DENIED
    assert (files.inside / "a.txt").read_text() == "inside"


async def test_a_refusal_says_what_it_found(files: Workspace) -> None:
    """The agent is told that the path is a FIFO; the client's events do not mention the open."""
    os.mkfifo(files.inside / "fifo")

    async def act(job: JobContext) -> Json:
        with pytest.raises(ArcpError) as refusal:
            async with job.open(files.inside / "fifo"):
                pass
        return refusal.value.message

    job_id = await files.start(act)
    end = await files.peer.until_terminal(job_id)
    assert end["payload"]["result"].endswith(" is a FIFO, not a regular file")
    assert files.peer.recorder.events(job_id) == []


# --- odd names and the system's own refusals ------------------------------------------------


@pytest.mark.parametrize(
    "name", ["a\0b", "a\nb", "a\\b", "a\udcffb", os.fsdecode(b"\xff"), 20000 * "x"]
)
async def test_names_that_no_pattern_can_have_are_refused(files: Workspace, name: str) -> None:
    """Names with control characters, backslashes or invalid UTF-8, or too long, are refused."""
    for mode in ("r", "w"):
        assert await files.attempt(f"{files.inside}/{name}", mode) == DENIED
    assert sorted(each.name for each in files.inside.iterdir()) == ["a.txt", "deep"]


async def test_a_link_to_a_name_that_no_pattern_can_have_is_refused(files: Workspace) -> None:
    """A link to a name that no pattern can match is refused."""
    target = os.fsencode(files.inside) + b"/\xff"
    with open(target, "w"):  # noqa: ASYNC230, PTH123
        pass
    (files.inside / "link").symlink_to(os.fsdecode(target))
    assert await files.attempt(files.inside / "link") == DENIED


async def test_the_systems_errors_are_raised_as_they_are(files: Workspace) -> None:
    """Errors of the operating system are raised unchanged."""
    assert await files.attempt(files.inside / "none.txt") == "FileNotFoundError"
    assert await files.attempt(files.inside / "none" / "a.txt", "w") == "FileNotFoundError"
    assert await files.attempt(files.inside / "a.txt" / "b.txt") == "NotADirectoryError"
    assert await files.attempt(files.inside / ("x" * 300)) == "OSError"


async def test_an_error_of_the_system_names_the_path(files: Workspace) -> None:
    """An OSError has the path as the agent gave it."""

    async def act(job: JobContext) -> Json:
        with pytest.raises(FileNotFoundError) as missing:
            async with job.open(files.inside / "none" / "a.txt"):
                pass
        return str(missing.value.filename)

    assert (await files.run(act))["result"] == str(files.inside / "none" / "a.txt")


# --- closing --------------------------------------------------------------------------------


async def test_a_cancelled_agents_file_is_closed(files: Workspace) -> None:
    """What a cancelled agent has written is in the file when its job has ended."""
    path = files.inside / "a.txt"

    async def act(job: JobContext) -> Json:
        async with job.open(path, "w") as file:
            await file.write("buffered")
            await job.log("at work")
            await trio.sleep_forever()

    job_id = await files.start(act)
    await files.peer.expect("job.event")
    assert path.read_text() == ""
    await files.peer.send("job.cancel", {"job_id": job_id})
    await files.peer.until_terminal(job_id)
    assert path.read_text() == "buffered"
