"""`arcp-trio replay`: what is in the store of a runtime that has ended, or of several nodes."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import Final

import trio

from arcp_trio.cli import defaults
from arcp_trio.cli.data_folder import find_folder, store_path, unusable_store
from arcp_trio.cli.errors import PROGRAM, CommandError, ExitCode
from arcp_trio.cli.ids import meant_id
from arcp_trio.cli.replay_options import ReplayOptions
from arcp_trio.cli.store import administered
from arcp_trio.cli.store_options import DatabaseOptions
from arcp_trio.cli.text import safe_json
from arcp_trio.store.errors import StoreError
from arcp_trio.store.interface import JournalTrimmed, LogTrimmed, Reads
from arcp_trio.store.records import HOLES, NumberedTail, SessionRow
from arcp_trio.store.sqlite import open_read_only
from arcp_trio.wire import envelope
from arcp_trio.wire.json import dumps

_PIECE_FRAMES: Final = 1_000
_PIECE_BYTES: Final = 1024 * 1024

_JOB: Final = re.compile(rb'"job_id":"([^"]+)"')


def run(options: ReplayOptions) -> int:
    """Print the sessions, or the frames of one session, and return the exit code."""
    if options.session_id is None and options.after_seq is not None:
        raise CommandError("--after-seq belongs to one session; give its SESSION_ID, too")
    if options.session_id is None and options.memos:
        raise CommandError("--memos belongs to one session; give its SESSION_ID, too")
    if options.data is not None and options.store is not None:
        raise CommandError("--data is a folder and --store a database; give one of them")
    try:
        if options.store or (options.data is None and os.environ.get(defaults.STORE_VARIABLE)):
            with administered(DatabaseOptions(store=options.store)) as dsn:
                trio.run(_print_database, options, dsn)
        else:
            _print_folder(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the output has closed it. What is still buffered goes to /dev/null, since
        # otherwise the interpreter reports an error when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ExitCode.SUCCESS


def _print_folder(options: ReplayOptions) -> None:
    path = store_path(find_folder(options.data, os.environ))

    async def read() -> None:
        async with open_read_only(path) as reader:
            await _print(options, reader, str(path))

    try:
        trio.run(read)
    except StoreError as error:
        raise unusable_store(error) from error


async def _print_database(options: ReplayOptions, dsn: str) -> None:
    from arcp_trio.store import postgres  # noqa: PLC0415 - needs the extra

    async with postgres.open_read_only(dsn) as reader:
        await _print(options, reader, "the database")


async def _print(options: ReplayOptions, reader: Reads, place: str) -> None:
    if options.session_id is None:
        await _print_sessions(reader, place)
        return
    session_id = meant_id(options.session_id, (await reader.recover()).sessions)
    jobs = await _print_frames(reader, place, session_id, options.after_seq or 0)
    if options.memos:
        await _print_memos(reader, jobs)


async def _print_sessions(reader: Reads, place: str) -> None:
    found = (await reader.recover()).sessions
    rows = [row for session_id in found if (row := await reader.session(session_id)) is not None]
    if not rows:
        _remark(f"there are no sessions in {place}")
        return
    principal = max(len(row.principal) for row in rows)
    top = max(len(str(row.top)) for row in rows)
    for row in rows:
        print(
            f"{row.session_id}  {row.principal:{principal}}"
            f"  last number {row.top:{top}}  jobs watched {len(row.watches)}"
        )


async def _print_frames(reader: Reads, place: str, session_id: str, after: int) -> Sequence[str]:
    """Print the frames of a session; return the ids of the jobs that they are about."""
    row = await reader.session(session_id)
    if row is None:
        raise CommandError(
            f"there is no session {session_id} in {place};"
            f" {PROGRAM} replay without a SESSION_ID lists the sessions",
            exit_code=ExitCode.FAILED,
        )
    jobs = dict.fromkeys(row.watches)
    if after > row.top:
        return list(jobs)
    if after < row.floor:
        _remark(
            f"numbers up to {row.floor} are not kept: they were acknowledged, or beyond the limit"
        )
    last = max(after, row.floor)
    replay = reader.replay(session_id, last, row.top, row.log_rows)
    try:
        while frames := await replay.next(_PIECE_FRAMES, _PIECE_BYTES):
            for line in _lines(row, frames):
                _write(line)
            jobs |= dict.fromkeys(_jobs_in(frames))
            last = max(last, *(seq for seq, _ in frames))
        if await reader.owed(row.watches, 1, 0):
            _remark("events after these are numbered when the session is resumed")
    except (JournalTrimmed, LogTrimmed) as gap:
        sys.stdout.flush()
        raise CommandError(
            f"frames after number {last} are no longer kept: {gap};"
            " a larger --after-seq may reach later ones",
            exit_code=ExitCode.FAILED,
        ) from gap
    return list(jobs)


async def _print_memos(reader: Reads, jobs: Sequence[str]) -> None:
    """Print memos, each with its place: the index of the entry that follows it in the journal."""
    for job_id in jobs:
        for memo in await reader.memos(job_id):
            shown = b'{"job_id":%b,"memo":%b,"kind":%b,"index":%d,"value":%b}'
            fields = dumps(job_id), memo.key.encode(), dumps(memo.kind), memo.index, memo.value
            _write(shown % fields)


def _jobs_in(frames: Sequence[NumberedTail]) -> list[str]:
    return [found[1].decode() for _, tail in frames if (found := _JOB.search(tail))]


def _lines(row: SessionRow, frames: Sequence[NumberedTail]) -> list[bytes]:
    head, unnumbered = envelope.numbered_head(row.session_id), envelope.plain_head(row.session_id)
    lines: list[bytes] = []
    for seq, stored in frames:
        tail = stored[1:] if stored[0] == HOLES else stored  # the holes stay: no secret is stored
        lines.append(b"%b%d%b" % (head, seq, tail) if seq else b"%b%b" % (unnumbered, tail))
    return lines


def _write(line: bytes) -> None:
    """Write JSON as one line without characters that a terminal would obey."""
    sys.stdout.buffer.write(safe_json(line.decode()).encode() + b"\n")


def _remark(text: str) -> None:
    print(f"{PROGRAM}: {text}", file=sys.stderr, flush=True)
