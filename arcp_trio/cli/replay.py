"""`arcp-trio replay`: what a runtime that is not running has left in its store."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final

import trio

from arcp_trio.cli.commands import PROGRAM
from arcp_trio.cli.errors import CommandError
from arcp_trio.cli.options import ReplayOptions
from arcp_trio.cli.storing import cannot_use, store_path
from arcp_trio.store.errors import StoreError
from arcp_trio.store.interface import JournalTrimmed, LogTrimmed
from arcp_trio.store.records import HOLES, Frame, SessionRow
from arcp_trio.store.sqlite import SqliteReader, open_read_only
from arcp_trio.wire import envelope

_PIECE_FRAMES: Final = 1_000
_PIECE_BYTES: Final = 1024 * 1024


def run(given: Mapping[str, object]) -> int:
    """Print and return the exit code."""
    options = ReplayOptions(**given)  # type: ignore[arg-type]  # the parser held each to its kind
    if options.session_id is None and "after_seq" in given:
        raise CommandError("--after-seq belongs to one session; give its SESSION_ID too")
    try:
        trio.run(_print, options)
        sys.stdout.flush()
    except StoreError as error:
        raise cannot_use(error) from error
    except BrokenPipeError:
        # Whoever read has had enough. What is still buffered goes nowhere, or the interpreter would
        # complain on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


async def _print(options: ReplayOptions) -> None:
    async with open_read_only(store_path(options.data)) as reader:
        if options.session_id is None:
            await _print_sessions(reader)
        else:
            await _print_frames(reader, options.session_id, options.after_seq)


async def _print_sessions(reader: SqliteReader) -> None:
    found = (await reader.recover()).sessions
    rows = [row for session_id in found if (row := await reader.session(session_id)) is not None]
    if not rows:
        _remark(f"there are no sessions in {reader.path}")
        return
    principal = max(len(row.principal) for row in rows)
    top = max(len(str(row.top)) for row in rows)
    for row in rows:
        print(
            f"{row.session_id}  {row.principal:{principal}}"
            f"  last number {row.top:{top}}  jobs watched {len(row.watches)}"
        )


async def _print_frames(reader: SqliteReader, session_id: str, after: int) -> None:
    row = await reader.session(session_id)
    if row is None:
        raise CommandError(
            f"there is no session {session_id} in {reader.path};"
            f" {PROGRAM} replay without a SESSION_ID lists them",
            exit_code=1,
        )
    if after > row.top:
        return
    if after < row.floor:
        _remark(f"numbers up to {row.floor} are not kept: acknowledged, or more than the bound")
    last = max(after, row.floor)
    replay = reader.replay(session_id, last, row.top, row.log_rows)
    try:
        while frames := await replay.next(_PIECE_FRAMES, _PIECE_BYTES):
            sys.stdout.buffer.write(b"".join(_lines(row, frames)))
            last = max(last, *(seq for seq, _ in frames))
        if await reader.owed(row.watches, 1, 0):
            _remark("what comes behind these is numbered when the session is resumed")
    except (JournalTrimmed, LogTrimmed) as gap:
        sys.stdout.flush()
        raise CommandError(
            f"what comes behind number {last} is not kept any more: {gap};"
            " a larger --after-seq may reach what is",
            exit_code=1,
        ) from gap


def _lines(row: SessionRow, frames: Sequence[Frame]) -> list[bytes]:
    numbered, plain = envelope.numbered_head(row.session_id), envelope.plain_head(row.session_id)
    lines: list[bytes] = []
    for seq, stored in frames:
        tail = stored[1:] if stored[0] == HOLES else stored  # secrets are not stored
        lines.append(b"%b%d%b\n" % (numbered, seq, tail) if seq else b"%b%b\n" % (plain, tail))
    return lines


def _remark(text: str) -> None:
    print(f"{PROGRAM}: {text}", file=sys.stderr, flush=True)
