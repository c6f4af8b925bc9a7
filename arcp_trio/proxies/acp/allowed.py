"""Edits of files that an agent was allowed, and what has become of them.

An agent asks for permission, and then writes: through the runtime, by itself, or both. One decision
covers all of that. What is written through the runtime has to be what the person was shown. What
the agent writes by itself the runtime cannot see: it lets the sandbox write that file, until the
tool call ends. An edit that was not made is a problem that the job tells at its end.
"""

from __future__ import annotations

import logging
import os
import posixpath
import signal
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal

import attrs
import trio

from arcp_trio.plainfile import open_parent
from arcp_trio.proxies.acp.edits import Edit, place_of, present_text
from arcp_trio.proxies.acp.named import WRITE, absolute, digest_of
from arcp_trio.proxies.acp.operation import Clearance
from arcp_trio.runtime.job.context import cover_approval
from arcp_trio.sandbox.opening import close_for_writing, open_for_writing
from arcp_trio.sandbox.plan import upwards
from arcp_trio.wire.errors import ApprovalNeeded, ArcpError, InternalError, clip
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.json import JsonObject, text_in

if TYPE_CHECKING:
    from arcp_trio.proxies.acp.workplace import Workplace
    from arcp_trio.runtime.job.context import JobContext
    from arcp_trio.transport.stdio import ChildProcess

log = logging.getLogger(__name__)

EDITS: Final = frozenset({"edit", "delete", "move"})
"""Kinds of tool calls that change files."""
MOST_ALLOWED: Final = 1_000
"""Files that permissions which have not ended are about; past it the oldest ends."""
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
    lasts: bool
    """Whether it is allowed for as long as the job runs."""
    before: Sequence[int] | None = None
    """What tells one state of the file from another; None: it was not there."""
    opened: tuple[str, os.stat_result] | None = None
    """The file that was made writable because of this, and its real path."""
    mount: int | None = None
    """What lets the sandbox write it."""
    created: bool = False

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
        self.failure: ArcpError | None = None
        """Why the agent was killed, if it was."""
        self._job = job
        self._place = place
        self._allowed: list[_Allowed] = []
        self._refused: dict[bytes, None] = {}
        """Digests of the agent's ids of calls for which it was refused permission."""
        self._known: dict[bytes, None] = {}
        """Digests of the paths that were allowed, or written through the runtime."""
        self._problems: dict[str, None] = {}

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
            allowed = _Allowed(
                path=path,
                place=place,
                call=_digest_in(call),
                cleared=cleared,
                lasts=self._lasts(path),
            )
            if is_edit and cleared.decision:
                allowed.shown = [each for other, each in shown if other == place]
                room -= allowed.kept
                if room < 0:
                    allowed.shown = None
            self._keep(self._known, _digest_of_path(path))
            if self._place.contained and is_edit and not await self._writes(path):
                await self._open(allowed)
            allowed.before = await trio.to_thread.run_sync(_state, path)
            self._allowed.append(allowed)
            while len(self._allowed) > MOST_ALLOWED:
                oldest = self._allowed[0]
                await self._end(oldest, is_made=not oldest.lasts)

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
        for each in found:
            if each.opened is None or not each.lasts:
                await self._end(each, is_made=failure is None)

    async def close(self) -> None:
        """End what is still allowed, as the turn is over."""
        try:
            while self._allowed:
                await self._end(self._allowed[0], is_made=True)
        except trio.Cancelled:
            if any(each.mount is not None for each in self._allowed):
                self._kill()
            raise

    # -- what the sandbox can write

    async def _writes(self, path: str) -> bool:
        real = await trio.to_thread.run_sync(os.path.realpath, path)
        opened = (each.opened for each in self._allowed)
        return self._place.writes(real) or any(each and each[0] == real for each in opened)

    async def _open(self, allowed: _Allowed) -> None:
        """Have the sandbox write a file, which is made first if it is not there."""
        path = allowed.path
        try:
            await self._make_folder(allowed)
            try:
                await self._take(allowed, "xb")
            except FileExistsError:
                await self._take(allowed, "ab")
            assert allowed.opened is not None
            sandbox = None if self.program is None else self.program.sandbox
            if sandbox is not None:
                allowed.mount = await open_for_writing(sandbox, *allowed.opened)
        except TimeoutError as error:
            self._fail(path, error)
        except trio.Cancelled:
            self._kill()
            raise
        except (ArcpError, OSError) as error:
            why = error.message if isinstance(error, ArcpError) else str(error)
            self._note(f"the agent cannot write {_shown(path)} by itself: {clip(why)}")

    async def _make_folder(self, allowed: _Allowed) -> None:
        """Make the folder of a file, with those above it.

        The person who has decided on the file has seen its folder, too, if no link leads there.
        """
        folder = posixpath.normpath(posixpath.dirname(allowed.path))
        real = await trio.to_thread.run_sync(os.path.realpath, folder)
        if not await trio.to_thread.run_sync(os.path.isdir, real):
            for each in (folder, real):
                try:
                    self._job.authorize(WRITE, each)
                except ApprovalNeeded:
                    if not allowed.cleared.decision or real != folder:
                        raise
            await trio.to_thread.run_sync(_make_folder, real)

    async def _take(self, allowed: _Allowed, mode: Literal["xb", "ab"]) -> None:
        approved = None
        if allowed.cleared.decision:
            approved = new_id("call_")
            cover_approval(self._job, approved, allowed.cleared.call_id)
        async with self._job.open(allowed.path, mode, approved=approved) as file:
            found = os.fstat(file.fileno())
            real = await trio.to_thread.run_sync(os.path.realpath, allowed.path)
            allowed.opened = real, found
            if mode == "xb":
                allowed.created = True
                await trio.to_thread.run_sync(_give_file, real, file.fileno())

    async def _end(self, allowed: _Allowed, *, is_made: bool) -> None:
        if allowed not in self._allowed:
            return  # another task ends it
        self._allowed.remove(allowed)
        try:
            await self._close(allowed)
        except trio.Cancelled:
            if allowed.mount is not None:
                self._kill()
            raise
        after = await trio.to_thread.run_sync(_state, allowed.path)
        if is_made and after == allowed.before:
            self._note(f"an edit was allowed and not made: {_shown(allowed.path)} is as it was")
        if allowed.opened is not None and allowed.created:
            await trio.to_thread.run_sync(_remove_if_empty, *allowed.opened)

    async def _close(self, allowed: _Allowed) -> None:
        """Have the sandbox no longer write a file, unless another edit of it goes on."""
        if allowed.opened is None:
            return
        for each in self._allowed:
            if each.opened is None and each.place == allowed.place:
                each.opened, each.created = allowed.opened, allowed.created
                each.mount = allowed.mount
                allowed.opened = allowed.mount = None
                return
        sandbox = None if self.program is None else self.program.sandbox
        if sandbox is not None and allowed.mount is not None:
            try:
                await close_for_writing(sandbox, allowed.mount)
            except OSError as error:
                self._fail(allowed.path, error)

    def _fail(self, path: str, error: OSError) -> None:
        """End the program, which could go on writing a file that it was allowed to edit once."""
        words = f"the agent could go on writing {_shown(path)}, and was killed: {clip(str(error))}"
        log.warning("%s", words, extra={"job_id": self._job.id, "agent": self._job.agent})
        self.failure = self.failure or InternalError(words)
        self._kill()

    def _kill(self) -> None:
        if self.program is not None:
            self.program.signal(signal.SIGKILL)

    # -- helpers

    def _lasts(self, path: str) -> bool:
        try:
            self._job.authorize(WRITE, path)
        except ArcpError:
            return False
        return True

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


def _give_file(real: str, made: int) -> None:
    folder, name = open_parent(real)
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


def _remove_if_empty(path: str, made: os.stat_result) -> None:
    with suppress(OSError):
        folder, name = open_parent(path)
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if os.path.samestat(found, made) and not found.st_size:
                os.unlink(name, dir_fd=folder)
        finally:
            os.close(folder)


def _shown(path: str) -> str:
    """Return the end of a path, which names the file."""
    return path if len(path) <= MOST_SHOWN else f"…{path[-MOST_SHOWN:]}"
