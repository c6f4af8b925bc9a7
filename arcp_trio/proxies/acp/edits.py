"""What an agent would change in files, as diffs that a person sees before allowing it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Final

import attrs
import trio

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
_NO_NEWLINE: Final = "\n\\ No newline at end of file"


@attrs.frozen
class Edit:
    """A text that is to be in a file, in place of another one."""

    path: str
    new: str
    old: str | None = None
    """None if it has to be read."""
    note: str | None = None


def edits_in(call: JsonObject, cwd: str) -> Iterator[Edit]:
    """Yield the edits that a tool call tells of; of a part of a file, the agent tells only that."""
    content = call.get("content")
    for each in map(object_in, content if is_list(content) else ()):
        path, new = text_in(each.get("path")), text_in(each.get("newText"))
        if each.get("type") == "diff" and path is not None and new is not None:
            path = path if path.startswith("/") else f"{cwd}/{path}"
            yield Edit(path, new, text_in(each.get("oldText")) or "", "as the agent describes it")


async def changes(job: JobContext, edits: Sequence[Edit]) -> list[JsonValue]:
    """Return the changes of a question, as far as there is room; each says what is missing."""
    shown: list[JsonValue] = []
    room = MOST_BYTES
    for edit in edits:
        known = edit if edit.old is not None else await _with_old(job, edit)
        change = await trio.to_thread.run_sync(_change, known, max(room, 0))
        room -= len(dumps(change))
        shown.append(change)
    return shown


async def _with_old(job: JobContext, edit: Edit) -> Edit:
    """Return an edit with what the file has now, as far as the job's lease lets anybody see it."""
    note, old = None, ""
    try:
        async with job.open(edit.path, "rb") as file:
            data = await file.read(MOST_READ_BYTES + 1)
        old = data.decode()
        if len(data) > MOST_READ_BYTES:
            old, note = "", "the file is too large to be compared; all that it has is replaced"
    except FileNotFoundError:
        note = "a new file"
    except ArcpError:
        note = "the lease does not show what the file has now; all of it is replaced"
    except (OSError, UnicodeDecodeError):
        note = "what the file has now cannot be shown; all of it is replaced"
    return attrs.evolve(edit, old=old, note=note)


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
