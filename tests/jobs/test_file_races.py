"""Files of an agent while another process swaps links and files in the path (§9.3)."""

from __future__ import annotations

import itertools
import os
import threading
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

import pytest

from arcp_trio import JobContext
from arcp_trio.wire.json import Json
from tests.inside import AUTHORIZATION
from tests.jobs.workspace import DENIED, Workspace, attempt

ROUNDS = 1000


# --- races ----------------------------------------------------------------------------------


@contextmanager
def in_turn(steps: Sequence[Callable[[], object]]) -> Generator[Callable[[], int], None, None]:
    """Run the steps over and over in a thread; yield how often the thread did it."""
    stopping, rounds = threading.Event(), itertools.count()
    taken = [0]

    def take_them() -> None:
        while not stopping.is_set():
            for step in steps:
                step()
            taken[0] = next(rounds)

    thread = threading.Thread(target=take_them)
    thread.start()
    try:
        yield lambda: taken[0]
    finally:
        stopping.set()
        thread.join()


def swapped_directory(files: Workspace) -> Sequence[Callable[[], object]]:
    """Have `ws/deep` be a directory and a link to one outside, in turn."""
    place, spare, link = (files.inside / name for name in ("deep", "spare", "link"))
    link.symlink_to(files.outside / "deep")
    return [
        lambda: place.rename(spare),
        lambda: link.rename(place),
        lambda: place.rename(link),
        lambda: spare.rename(place),
    ]


def swapped_file(files: Workspace) -> Sequence[Callable[[], object]]:
    """Have `ws/deep/a.txt` be a file and a link to one outside, in turn, and always exist."""
    place, other = files.inside / "deep" / "a.txt", files.inside / "deep" / "other"
    return [
        lambda: other.symlink_to(files.outside / "a.txt"),
        lambda: other.replace(place),
        lambda: other.hardlink_to(files.inside / "a.txt"),
        lambda: other.replace(place),
    ]


def swapped_fifo(files: Workspace) -> Sequence[Callable[[], object]]:
    """Have `ws/deep/a.txt` be a file and a FIFO, in turn, and always exist."""
    place, other = files.inside / "deep" / "a.txt", files.inside / "deep" / "other"
    return [
        lambda: os.mkfifo(other),
        lambda: other.replace(place),
        lambda: other.hardlink_to(files.inside / "a.txt"),
        lambda: other.replace(place),
    ]


@pytest.mark.spec("9.3-2")
@pytest.mark.parametrize("swapped", [swapped_directory, swapped_file, swapped_fifo])
@pytest.mark.parametrize("mode", ["r", "w", "a"])
async def test_nothing_outside_is_reached_by_swapping_links(
    files: Workspace, swapped: Callable[[Workspace], Sequence[Callable[[], object]]], mode: str
) -> None:
    """However often a link replaces what was authorised, no file outside is reached."""
    path = files.inside / "deep" / "a.txt"
    opened = "inside" if mode == "r" else "written"
    seen: Counter[str] = Counter()

    async def act(job: JobContext) -> Json:
        with in_turn(swapped(files)) as rounds:
            # Until both outcomes have been seen; the test's timeout is the bound.
            while min(rounds(), seen.total()) < ROUNDS or not (seen[opened] and seen[DENIED]):
                seen[await attempt(job, path, mode, None if mode == "r" else "inside")] += 1
        return None

    await files.run(act)
    # The last three: missing between two renames, or changed since the check.
    changed = {"FileNotFoundError", "NotADirectoryError", "OSError"}
    assert set(seen) <= {opened, DENIED, *changed}


def link_for_directory(files: Workspace) -> None:
    """Replace the directory by a link outside."""
    (files.inside / "deep").rename(files.inside / "moved")
    (files.inside / "deep").symlink_to(files.outside / "deep")


def link_for_file(files: Workspace) -> None:
    """Replace the file by a link outside."""
    (files.inside / "deep" / "a.txt").unlink()
    (files.inside / "deep" / "a.txt").symlink_to(files.outside / "a.txt")


def dangling_link_for_file(files: Workspace) -> None:
    """Replace the file by a link to a file outside that does not exist."""
    (files.inside / "deep" / "a.txt").unlink()
    (files.inside / "deep" / "a.txt").symlink_to(files.outside / "made.txt")


def fifo_for_file(files: Workspace) -> None:
    """Replace the file by a FIFO."""
    (files.inside / "deep" / "a.txt").unlink()
    os.mkfifo(files.inside / "deep" / "a.txt")


def swap_behind(
    step: tuple[object, str], swap: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> Callable[[], bool]:
    """Swap once, right after a step of the next opening; the result says whether that happened."""
    owner, name = step
    take = getattr(owner, name)
    swaps = [swap]

    def swapping(*args: object, **kwargs: object) -> object:
        try:
            return take(*args, **kwargs)
        finally:
            if swaps and (kwargs.get("also") or "dir_fd" in kwargs):
                swaps.pop()()

    monkeypatch.setattr(owner, name, swapping)
    return lambda: not swaps


AUTHORISED = pytest.param(AUTHORIZATION, id="authorised")
"""The step that checks the real path against the lease."""
LOOKED_AT = pytest.param((os, "stat"), id="looked at")
"""The step that looks what kind of file the path leads to."""


@pytest.mark.parametrize("step", [AUTHORISED, LOOKED_AT])
@pytest.mark.parametrize(
    "swap", [link_for_directory, link_for_file, dangling_link_for_file, fifo_for_file]
)
@pytest.mark.parametrize("mode", ["r", "w", "a", "r+"])
async def test_a_swap_right_behind_a_check_gains_nothing(
    files: Workspace,
    monkeypatch: pytest.MonkeyPatch,
    step: tuple[object, str],
    swap: Callable[[Workspace], None],
    mode: str,
) -> None:
    """A link that appears after a check is not followed; a FIFO is refused at once."""
    swapped = swap_behind(step, lambda: swap(files), monkeypatch)
    result = await files.attempt(
        files.inside / "deep" / "a.txt", mode, None if "r" in mode else "inside"
    )
    assert swapped()
    # Only a directory that was opened before the swap stays reachable, wherever it was moved.
    expected = {DENIED, "NotADirectoryError", "OSError"}
    assert result in (expected | {"inside", "written"} if swap is link_for_directory else expected)


@pytest.mark.parametrize("step", [AUTHORISED, LOOKED_AT])
@pytest.mark.parametrize("mode", ["w", "a", "w+"])
async def test_a_link_put_in_the_place_of_a_new_file_is_not_followed(
    files: Workspace, monkeypatch: pytest.MonkeyPatch, step: tuple[object, str], mode: str
) -> None:
    """A link that appears where a file is to be made does not create its target."""
    path = files.inside / "new.txt"
    swapped = swap_behind(step, lambda: path.symlink_to(files.outside / "made.txt"), monkeypatch)
    assert await files.attempt(path, mode) in {DENIED, "OSError"}
    assert swapped()


@pytest.mark.parametrize("target", ["made.txt", "a.txt"])
async def test_a_link_put_in_the_place_of_what_is_to_be_new_is_there(
    files: Workspace, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """Mode `x` raises FileExistsError for a link that appears after the check."""
    path = files.inside / "new.txt"
    swapped = swap_behind(
        AUTHORIZATION, lambda: path.symlink_to(files.outside / target), monkeypatch
    )
    assert await files.attempt(path, "x") == "FileExistsError"
    assert swapped()
