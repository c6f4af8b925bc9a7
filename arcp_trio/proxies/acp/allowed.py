"""Edits of files that an agent was allowed, and what has become of them.

An agent asks for permission, and then writes: through the runtime, by itself, or both. One decision
covers all of that. What is written through the runtime has to be what the person was shown. What
the agent writes by itself it writes to a layer over the folder, which its sandbox has until the
tool call ends; the runtime writes to the file itself what the layer has of it, and nothing else. An
edit that was not made is a problem that the job tells at its end.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Literal

import attrs
import trio

from arcp_trio.plainfile import open_parent
from arcp_trio.proxies.acp.edits import Edit, place_of, present_text
from arcp_trio.proxies.acp.named import WRITE, absolute, digest_of
from arcp_trio.proxies.acp.operation import Clearance
from arcp_trio.runtime.job.context import cover_approval
from arcp_trio.sandbox.opening import OpenFolder
from arcp_trio.sandbox.plan import upwards, within
from arcp_trio.wire.errors import ApprovalNeeded, ArcpError, clip
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.json import JsonObject, text_in

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from io import BufferedWriter

    from trio._file_io import AsyncIOWrapper

    from arcp_trio.proxies.acp.workplace import Workplace
    from arcp_trio.runtime.job.context import JobContext
    from arcp_trio.transport.stdio import ChildProcess

EDITS: Final = frozenset({"edit", "delete", "move"})
"""Kinds of tool calls that change files."""
MOST_ALLOWED: Final = 1_000
"""Files that permissions which have not ended are about; past it the oldest ends."""
MOST_FOLDERS: Final = 16
"""Folders that an agent can change at once; past it the oldest edit ends."""
MOST_KEPT: Final = 16 * 1024 * 1024
"""Characters that are kept of what was shown; what is longer is asked about again."""
MOST_KNOWN: Final = 10_000
"""Calls that were refused, or files that were allowed, that are known; past it, the newest."""
MOST_COUNTED: Final = 1_000
"""Edits that were not made that are counted."""
MOST_PROBLEMS: Final = 20
"""Edits that were not made of which a job tells at its end."""
MOST_SHOWN: Final = 200
"""Characters of a path in what a job tells."""
MOST_TOLD: Final = 2_000
"""Characters of what a job tells of an edit."""

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@attrs.define(eq=False, kw_only=True)
class _Allowed:
    """One file that a permission is about."""

    path: str
    place: Sequence[str]
    call: bytes | None
    """The digest of the id of the agent's tool call."""
    cleared: Clearance
    shown: Sequence[Edit] | None = None
    """What a person has seen of the change that a write through the runtime may make, nothing if it
    was not known; None: no write is covered, or none any more."""
    before: Sequence[int] | None = None
    """What tells one state of the file from another; None: it was not there."""
    folder: OpenFolder | None = None
    """What the agent can change because of this."""
    name: str = ""
    """The file in there."""

    @property
    def kept(self) -> int:
        return sum(
            len(each.path) + len(each.new) + len(each.old or "") for each in self.shown or ()
        )


class AllowedEdits:
    """The edits of one job's agent."""

    def __init__(self, job: JobContext, place: Workplace) -> None:
        self.program: ChildProcess | None = None
        """The agent, once it runs."""
        self._job = job
        self._place = place
        self._allowed: list[_Allowed] = []
        self._refused: dict[bytes, None] = {}
        """Digests of the agent's ids of calls for which it was refused permission."""
        self._known: dict[bytes, None] = {}
        """Digests of the paths that were allowed, or written through the runtime."""
        self._problems: dict[str, None] = {}
        self._folders: list[OpenFolder] = []
        self._lock = trio.Lock()
        """Held while folders are opened, read and closed."""

    @property
    def problems(self) -> list[str]:
        """What to tell of edits that were not made."""
        told = list(self._problems)
        more = len(told) - MOST_PROBLEMS
        if more > 0:
            told[MOST_PROBLEMS:] = [f"{more:,} further edits were not made"]
        return told

    async def allow(
        self, call: JsonObject, paths: Iterable[str], edits: Sequence[Edit], cleared: Clearance
    ) -> None:
        """Let an agent make the edit for which it has asked permission."""
        is_edit = call.get("kind") == "edit"
        shown = [(place_of(each.path), each) for each in edits]
        room = MOST_KEPT - sum(each.kept for each in self._allowed)
        for path in paths:
            place = place_of(path)
            allowed = _Allowed(path=path, place=place, call=_digest_in(call), cleared=cleared)
            if is_edit and cleared.decision:
                allowed.shown = [each for other, each in shown if other == place]
                room -= allowed.kept
                if room < 0:
                    allowed.shown = None
            self._keep(self._known, _digest_of_path(path))
            async with self._lock:
                if self._place.contained and is_edit and not await self._writes(path):
                    await self._open(allowed)
                allowed.before = await trio.to_thread.run_sync(_state, path)
                self._allowed.append(allowed)
                while len(self._allowed) > MOST_ALLOWED:
                    await self._end(self._allowed[0], is_made=True)

    async def cover(self, call_id: str, edit: Edit) -> Clearance | None:
        """Return that a write through the runtime is allowed by what a permission was given for.

        Args:
            call_id: the runtime's tool call of the write.
            edit: what is to be written; it has to be what was shown with the permission.
        """
        place = place_of(edit.path)
        for allowed in [*self._allowed]:
            shown = allowed.shown if allowed.place == place else None
            if shown is None or not await self._is_shown(shown, edit):
                continue
            if allowed.shown is not None:  # no other write has been covered meanwhile
                allowed.shown = None
                cover_approval(self._job, call_id, allowed.cleared.call_id)
                return Clearance(call_id, allowed.cleared.decision)
        return None

    def written(self, edit: Edit) -> None:
        """Note that something was written through the runtime."""
        self._keep(self._known, _digest_of_path(edit.path))

    def refused(self, paths: Iterable[str], error: ArcpError, call: JsonObject | None) -> None:
        """Note that an edit was refused."""
        if call is not None and (digest := _digest_in(call)) is not None:
            self._keep(self._refused, digest)
        for path in paths:
            self._note(f"an edit was refused: {_shown(path)}: {error.code}: {error.message}")

    async def ended(
        self, call: bytes, kind: str | None, paths: Iterable[str], failure: str | None
    ) -> None:
        """Note that the agent says that a tool call of its own has ended, or has failed.

        Args:
            call: the digest of the agent's id of it.
            kind: its kind.
            paths: what it names.
            failure: why it has failed, if it has.
        """
        found = [each for each in self._allowed if each.call == call]
        named = dict.fromkeys([*(each.path for each in found), *map(self._absolute, paths)])
        if failure is not None and (found or kind in EDITS) and call not in self._refused:
            words = ", ".join(map(_shown, named)) or kind
            self._note(f"an edit has failed: {words}: {clip(failure)}")
        if failure is None and kind in EDITS:
            for path in named:
                if not await self._may_have_written(path):
                    words = f"it has edited {_shown(path)}, which it could not write"
                    self._note(f"the agent says that {words}")
        async with self._lock:
            for each in found:
                await self._end(each, is_made=failure is None)

    async def settle(self) -> None:
        """Write what the agent has changed so far: what it asks for next may be about that."""
        async with self._lock:
            for each in self._allowed:
                await self._write_changed(each)

    async def close(self) -> None:
        """End what is still allowed, as the turn is over."""
        try:
            async with self._lock:
                while self._allowed:
                    await self._end(self._allowed[0], is_made=True)
        finally:
            for each in self._allowed:
                if each.folder is not None:
                    self._note(f"an edit may be lost: {_shown(each.path)}: there was no time")
            for folder in self._folders:
                await folder.abandon()  # noqa: ASYNC102 - bounds and shields itself

    # -- what the agent can change

    async def _writes(self, path: str) -> bool:
        return self._place.writes(await trio.to_thread.run_sync(os.path.realpath, path))

    async def _open(self, allowed: _Allowed) -> None:
        """Let the agent change a file as its sandbox shows it."""
        assert self.program is not None, "an agent that asks for something runs"
        try:
            real = await self._real(allowed)
            folder = next((each for each in self._folders if within(real, [each.path])), None)
            if folder is None:
                if self.program.sandbox is None:
                    return  # it has ended
                while len(self._folders) >= MOST_FOLDERS:
                    oldest = next(each for each in self._allowed if each.folder is not None)
                    await self._end(oldest, is_made=True)
                path, _, name = real.rpartition("/")
                folder = await OpenFolder.open(self.program.sandbox, path or "/", name)
                self._folders.append(folder)
            allowed.folder, allowed.name = folder, posixpath.relpath(real, folder.path)
            folder.users += 1
            others = (each for each in self._allowed if each.folder is folder)
            if all(each.name != allowed.name for each in others):
                await folder.add(allowed.name)  # what it has so far was not allowed
        except (ArcpError, OSError) as error:
            self._note(f"the agent cannot write {_shown(allowed.path)} by itself: {_why(error)}")

    async def _real(self, allowed: _Allowed) -> str:
        """Return where a file is, or will be, in a folder that is made if it is not there.

        The person who has decided on the file has seen its folder, too, if no link leads there.

        Raises:
            ArcpError: what a link leads to is not allowed.
            OSError: the folder cannot be made.
        """
        named = posixpath.normpath(allowed.path)
        real = await trio.to_thread.run_sync(os.path.realpath, allowed.path)
        paths = [(named, named), (named, real)]
        folder = posixpath.dirname(real)
        missing = not await trio.to_thread.run_sync(os.path.isdir, folder)
        if missing:
            above = posixpath.dirname(named)
            paths += [(above, above), (above, folder)]
        for seen, each in paths:
            try:
                self._job.authorize(WRITE, each)
            except ApprovalNeeded:
                if not allowed.cleared.decision or each != seen:
                    raise
        if missing:
            await trio.to_thread.run_sync(_make_folder, folder)
        return real

    async def _write_changed(self, allowed: _Allowed) -> None:
        """Write to the real file what the agent has made of it, if it has."""
        if allowed.folder is None:
            return
        try:
            data = await allowed.folder.read(allowed.name)
            if data is not None:
                await self._write(allowed, data)
        except (ArcpError, OSError, trio.TooSlowError) as error:
            self._note(f"an edit is lost: {_shown(allowed.path)}: {_why(error)}")

    async def _write(self, allowed: _Allowed, data: bytes) -> None:
        with trio.CancelScope(shield=True):  # no part of it is left out; a thread does the work
            try:
                async with self._opened(allowed, "xb") as file:
                    await trio.to_thread.run_sync(_give_file, allowed.path, file.fileno())
                    await file.write(data)
            except FileExistsError:
                async with self._opened(allowed, "wb") as file:
                    await file.write(data)

    def _opened(
        self, allowed: _Allowed, mode: Literal["xb", "wb"]
    ) -> AbstractAsyncContextManager[AsyncIOWrapper[BufferedWriter]]:
        approved = None
        if allowed.cleared.decision:
            approved = new_id("call_")
            cover_approval(self._job, approved, allowed.cleared.call_id)
        return self._job.open(allowed.path, mode, approved=approved)

    async def _end(self, allowed: _Allowed, *, is_made: bool) -> None:
        if allowed not in self._allowed:
            return  # another task has ended it
        await self._write_changed(allowed)
        await self._leave(allowed)
        self._allowed.remove(allowed)
        after = await trio.to_thread.run_sync(_state, allowed.path)
        if is_made and after == allowed.before:
            self._note(f"an edit was allowed and not made: {_shown(allowed.path)} is as it was")

    async def _leave(self, allowed: _Allowed) -> None:
        """Have the agent see the real folder again, unless another edit goes on there."""
        folder = allowed.folder
        if folder is None:
            return
        folder.users -= 1
        if folder.users:
            return
        self._folders.remove(folder)
        try:
            others = await folder.close()
        except OSError:
            return  # it was told why the edit is lost
        for each in others:
            path = _shown(posixpath.join(folder.path, each))
            self._note(f"a change that was not allowed was dropped: {path}")

    # -- helpers

    async def _is_shown(self, shown: Sequence[Edit], edit: Edit) -> bool:
        """Return whether what is to be written is what a person has seen, if it was anything."""
        if not shown:
            return True
        try:
            text = await present_text(self._job, edit.path)
        except (OSError, ValueError):
            return False
        for each in shown:
            if text is None:
                return False
            text = each.applied(text)
        return text == edit.new

    async def _may_have_written(self, path: str) -> bool:
        return _digest_of_path(path) in self._known or await self._writes(path)

    def _absolute(self, path: str) -> str:
        return posixpath.normpath(absolute(path, self._place.cwd))

    def _keep(self, known: dict[bytes, None], digest: bytes) -> None:
        known[digest] = None
        if len(known) > MOST_KNOWN:
            del known[next(iter(known))]

    def _note(self, words: str) -> None:
        if len(self._problems) < MOST_COUNTED:
            self._problems[clip(words, MOST_TOLD)] = None


def _digest_in(call: JsonObject) -> bytes | None:
    call_id = text_in(call.get("toolCallId"))
    return None if call_id is None else digest_of(call_id)


def _digest_of_path(path: str) -> bytes:
    return digest_of(posixpath.normpath(path))


def _state(path: str) -> Sequence[int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _make_folder(real: str) -> None:
    missing = [each for each in upwards(real) if not os.path.lexists(each)]
    for each in reversed(missing):
        parent, name = open_parent(each)
        try:
            os.mkdir(name, dir_fd=parent)
            made = os.open(name, _FOLDER, dir_fd=parent)
            try:
                holds = os.listdir(made)  # noqa: PTH208 - of a descriptor
                if holds or os.fstat(made).st_uid != os.geteuid():
                    raise OSError("its folder was replaced as it was made")
                _give(parent, made)
            finally:
                os.close(made)
        finally:
            os.close(parent)


def _give_file(path: str, made: int) -> None:
    folder, name = open_parent(os.path.realpath(path))
    try:
        if os.path.samestat(os.stat(name, dir_fd=folder, follow_symlinks=False), os.fstat(made)):
            _give(folder, made)
    finally:
        os.close(folder)


def _give(folder: int, made: int) -> None:
    """Let what root has made in a folder belong to its owner, as whom contained programs write."""
    if os.geteuid() == 0:
        found = os.fstat(folder)
        os.fchown(made, found.st_uid, found.st_gid)


def _why(error: Exception) -> str:
    return clip(error.message if isinstance(error, ArcpError) else str(error))


def _shown(path: str) -> str:
    """Return the end of a path, which names the file."""
    return path if len(path) <= MOST_SHOWN else f"…{path[-MOST_SHOWN:]}"
