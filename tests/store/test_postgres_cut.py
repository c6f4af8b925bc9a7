"""A connection to PostgreSQL is cut off by another thread than the one that uses it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from arcp_trio.store.postgres._connections import cut

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]


def replaced(db: psycopg.Connection[Any], other: socket.socket) -> Callable[[int], int]:
    """Return an `os.dup` just before which the connection's number becomes another socket's."""
    dup = os.dup

    def dup_another(number: int) -> int:
        db.close()
        assert os.dup2(other.fileno(), number) == number
        return dup(number)

    return dup_another


def test_a_call_on_it_fails(database: str) -> None:
    """What is called on the connection afterwards fails."""
    with psycopg.connect(database, autocommit=True) as db:
        cut(db)
        with pytest.raises(psycopg.OperationalError):
            db.execute("SELECT 1")


def test_no_other_socket_is_shut(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket that gets the connection's number, as its thread closes it meanwhile, stays open."""
    ours, theirs = socket.socketpair()
    with ours, theirs, psycopg.connect(database, autocommit=True) as db:
        number = db.fileno()
        with monkeypatch.context() as patch:
            patch.setattr(os, "dup", replaced(db, ours))
            cut(db)
        os.close(number)
        theirs.sendall(b"still open")
        assert ours.recv(100) == b"still open"
