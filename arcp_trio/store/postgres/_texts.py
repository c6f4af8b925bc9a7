"""Texts with any characters: PostgreSQL's cannot have the character NUL, and clients send it."""

from __future__ import annotations

from typing import Any, Final

from psycopg import Connection
from psycopg.abc import Buffer
from psycopg.types.string import (
    StrBinaryDumper,
    StrDumperUnknown,
    TextBinaryLoader,
    TextLoader,
)

_MARK: Final = "\x01"
"""The character that marks what is written in another way: NUL, and itself."""
_NUL: Final = _MARK + "\x01"
_MARK_ITSELF: Final = _MARK + "\x02"


def _written(text: str) -> str:
    if "\0" in text or _MARK in text:
        return text.replace(_MARK, _MARK_ITSELF).replace("\0", _NUL)
    return text


def _read(text: str) -> str:
    if _MARK in text:
        return text.replace(_NUL, "\0").replace(_MARK_ITSELF, _MARK)
    return text


class _BinaryDumper(StrBinaryDumper):
    def dump(self, obj: str) -> Buffer | None:
        return super().dump(_written(obj))


class _Dumper(StrDumperUnknown):
    def dump(self, obj: str) -> Buffer | None:
        return super().dump(_written(obj))


class _BinaryLoader(TextBinaryLoader):
    def load(self, data: Buffer) -> bytes | str:
        return _read(str(super().load(data)))


class _Loader(TextLoader):
    def load(self, data: Buffer) -> bytes | str:
        return _read(str(super().load(data)))


def take_any_text(db: Connection[Any]) -> None:
    """Have a connection write and read all characters."""
    for dumper in (_BinaryDumper, _Dumper):
        db.adapters.register_dumper(str, dumper)
    for loader in (_BinaryLoader, _Loader):
        db.adapters.register_loader("text", loader)
