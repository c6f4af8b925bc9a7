"""What an agent would change in files, as diffs that a person sees before allowing it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs
import trio

from arcp_trio.authority.targets import forms
from arcp_trio.proxies.acp.named import MOST_NAMED, WRITE, absolute
from arcp_trio.runtime.job.fitting import fitted_text
from arcp_trio.wire.errors import ArcpError
from arcp_trio.wire.json import JsonObject, JsonValue, dumps, is_list, object_in, text_in

if TYPE_CHECKING:
    from arcp_trio.runtime.job.context import JobContext

MOST_BYTES: Final = 32 * 1024
"""How much of all changes one question shows."""
MOST_READ_BYTES: Final = 1024 * 1024
"""A larger file is not compared with what is to be written."""

_AROUND: Final = 3
"""Unchanged lines that are shown before and after a change."""
_MOST_COMPARED: Final = 500
"""Lines that are compared with each other: the time grows with the square of their number."""
_PATHS: Final = ("path", "file_path", "filePath", "filepath", "abs_path", "absolute_path")
_Names: TypeAlias = tuple[str | None, str]
"""The fields that have a text of a file, None for all of it, and the one in its place."""
_DIFF: Final[_Names] = ("oldText", "newText")
_INPUTS: Final[Sequence[_Names]] = (
    *(("old_string", "new_string"), ("oldString", "newString"), ("old_str", "new_str")),
    *(_DIFF, ("old_text", "new_text"), (None, "content"), (None, "file_text")),
)
"""The fields of a tool's input, as programs call them."""
_NO_NEWLINE: Final = "\n\\ No newline at end of file"


@attrs.frozen
class Edit:
    """A text that is to be in a file, in place of another one."""

    path: str
    new: str
    old: str | None = None
    """The whole of it, or a part; None for all that the file has."""
    note: str | None = None
    """What people are told of the text that is replaced."""

    def applied(self, text: str) -> str | None:
        """Return the text of a file after the edit; None if it does not fit this text before."""
        if self.old is None or self.old == text:
            return self.new
        return text.replace(self.old, self.new, 1) if self.old and self.old in text else None


def edits_in(call: JsonObject, cwd: str) -> Sequence[Edit]:
    """Return the edits of which a tool call tells, by diffs or else by its input."""
    content = call.get("content")
    shown = [each for each in map(object_in, content if is_list(content) else ()) if "path" in each]
    given = object_in(call.get("rawInput"))
    diffs = [(each, _DIFF) for each in shown if each.get("type") == "diff"]
    edits: list[Edit] = []
    for fields, (old, new) in diffs or [(given, names) for names in _INPUTS]:
        path = next(filter(None, (text_in(fields.get(name)) for name in _PATHS)), None)
        text = text_in(fields.get(new))
        if path is not None and text is not None:
            before = None if old is None else text_in(fields.get(old)) or ""
            edits.append(Edit(absolute(path, cwd), text, before))
    return edits[:MOST_NAMED]


def place_of(path: str) -> Sequence[str]:
    """Return what is the same for two paths if they name the same file, however it is opened."""
    try:
        return forms(WRITE, path)
    except ValueError:
        return (path,)  # no lease allows it


async def changes(
    job: JobContext, edits: Sequence[Edit], paths: Sequence[str] = ()
) -> list[JsonValue]:
    """Return the changes of a question, as far as there is room; each says what is missing.

    Args:
        job: the job that asks.
        edits: what the agent tells.
        paths: what it would edit, all of it.
    """
    told = {place_of(edit.path) for edit in edits}
    unclear = "the agent gives no diff of what it will write"
    shown: list[JsonValue] = [
        {"path": path, "diff": "", "note": unclear} for path in paths if place_of(path) not in told
    ]
    room = MOST_BYTES
    for edit in edits:
        known = await _compared(job, edit)
        change = await trio.to_thread.run_sync(_change, known, max(room, 0))
        room -= len(dumps(change))
        shown.append(change)
    return shown


async def present_text(job: JobContext, path: str) -> str | None:
    """Return what a file has now, nothing if it is not there; None if the lease does not show it.

    Raises:
        OSError, ValueError: it cannot be read, is too large, or is not text.
    """
    try:
        async with job.open(path, "rb") as file:
            data = await file.read(MOST_READ_BYTES + 1)
    except FileNotFoundError:
        return ""
    except ArcpError:
        return None
    if len(data) > MOST_READ_BYTES:
        raise ValueError("it is too large")
    return data.decode()


async def _compared(job: JobContext, edit: Edit) -> Edit:
    """Return an edit with what the file has now, as far as the job's lease lets anybody see it."""
    note = None
    try:
        text = await present_text(job, edit.path)
        if text is None:
            note = "the lease does not show what the file has now"
        elif not text:
            note = "a new file"
        elif edit.applied(text) is None:
            note = "the file has something else now than the agent says"
    except (OSError, ValueError):
        text, note = None, "what the file has now cannot be shown"
    if edit.old is not None:
        return attrs.evolve(edit, note=note)
    return attrs.evolve(
        edit, old=text or "", note=f"{note}; all of it is replaced" if text is None else note
    )


def _change(edit: Edit, room: int) -> JsonObject:
    if not room:
        return {"path": edit.path, "diff": "", "note": "not shown: the other changes are too large"}
    diff = diff_of(edit.old or "", edit.new)
    kept = fitted_text(diff, room)
    if len(kept) < len(diff):
        kept = kept[: kept.rfind("\n") + 1]
    notes = [edit.note] if edit.note else []
    if len(kept) < len(diff):
        shown, lines = kept.count("\n"), diff.count("\n")
        notes.append(f"only {shown:,} of {lines:,} lines are shown")
    note: JsonObject = {"note": "; ".join(notes)} if notes else {}
    return {"path": edit.path, "diff": kept, **note}


def diff_of(old: str, new: str) -> str:
    """Return the hunks of a unified diff; where too much has changed, all of it as one."""
    before, after = _lines(old), _lines(new)
    same = sum(1 for _ in takewhile(_are_same, zip(before, after, strict=False)))
    rest = zip(reversed(before[same:]), reversed(after[same:]), strict=False)
    tail = sum(1 for _ in takewhile(_are_same, rest))
    first = max(same - _AROUND, 0)
    tail = max(tail - _AROUND, 0)
    before, after = before[first : len(before) - tail], after[first : len(after) - tail]
    if max(len(before), len(after)) <= _MOST_COMPARED:
        groups = difflib.SequenceMatcher(None, before, after).get_grouped_opcodes(_AROUND)
    else:
        groups = iter([[("replace", 0, len(before), 0, len(after))]])
    lines: list[str] = []
    for group in groups:
        old_range = _range(group[0][1], group[-1][2], first)
        lines.append(f"@@ -{old_range} +{_range(group[0][3], group[-1][4], first)} @@")
        for tag, at, end, new_at, new_end in group:
            if tag == "equal":
                lines += [f" {line}" for line in before[at:end]]
            else:
                lines += [f"-{line}" for line in before[at:end]]
                lines += [f"+{line}" for line in after[new_at:new_end]]
    return "".join(f"{line}\n" for line in lines)


def _range(start: int, end: int, offset: int) -> str:
    return f"{offset + start + (end > start)},{end - start}"


def _are_same(pair: tuple[str, str]) -> bool:
    return pair[0] == pair[1]


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    if lines[-1]:
        lines[-1] += _NO_NEWLINE
    else:
        del lines[-1]
    return lines
