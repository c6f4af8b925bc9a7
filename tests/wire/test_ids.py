"""Identifiers and tokens."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from itertools import pairwise

import pytest

from arcp_trio.wire.ids import _Ulids, new_id, resume_token, token_digest

ULID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")


@pytest.mark.spec("1.0/5.1-2", "1.0/5.1-3")
def test_ids_are_ulids_that_rise_and_never_repeat() -> None:
    """Each of two hundred thousand ids is a ULID, and sorts after the one before."""
    ids = [new_id() for _ in range(200_000)]
    assert all(earlier < later for earlier, later in pairwise(ids))
    assert all(map(ULID.fullmatch, ids[::1000]))


def test_a_prefix_stands_in_front() -> None:
    """An id is its prefix and a ULID."""
    assert re.fullmatch(f"sess_{ULID.pattern}", new_id("sess_"))


def test_the_time_is_in_the_id() -> None:
    """The first ten digits of a ULID are the milliseconds since 1970."""
    digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    millis = 0
    for digit in _Ulids().next()[:10]:
        millis = millis * 32 + digits.index(digit)
    assert abs(millis / 1000 - time.time()) < 60


def test_ids_rise_when_the_clock_steps_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids increase also when the clock goes back or stands still."""
    source = _Ulids()
    clock = iter([5_000_000_000_000, 4_000_000_000_000, 4_000_000_000_000, 5_000_001_000_000])
    monkeypatch.setattr(time, "time_ns", lambda: next(clock))
    ids = [source.next() for _ in range(4)]
    assert all(earlier < later for earlier, later in pairwise(ids))


def test_ids_carry_over_into_the_higher_digits() -> None:
    """When the lowest digits are used up within a millisecond, the higher ones are counted up."""
    source = _Ulids()
    source._millis = 2**48  # a clock that never comes
    source._begin((2**47 << 80) - 2)
    ids = [source.next() for _ in range(5_000)]
    assert all(earlier < later for earlier, later in pairwise(ids))
    assert len({each[:20] for each in ids}) > 1


def test_the_next_id_cannot_be_counted_on_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a millisecond, each id is a random step further than the one before."""
    monkeypatch.setattr(time, "time_ns", lambda: 5_000_000_000_000)
    source = _Ulids()
    digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    values = [
        sum(digits.index(d) << 5 * n for n, d in enumerate(source.next()[::-1]))
        for _ in range(5_000)
    ]
    steps = [later - earlier for earlier, later in pairwise(values)]
    assert len(set(steps)) > 4_900
    assert min(steps) > 0
    assert max(steps) > 2**19


def test_threads_share_one_source() -> None:
    """Ids made in several threads at once are all different."""
    made: list[str] = []
    threads = [
        threading.Thread(target=lambda: made.extend([new_id() for _ in range(5000)]))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 20_000


@pytest.mark.spec("1.0/14-1", "1.0/6.2-1")
def test_resume_tokens_are_long_and_different() -> None:
    """A token has 256 bits in hexadecimal after its prefix, and no two are equal."""
    tokens = {resume_token() for _ in range(1000)}
    assert len(tokens) == 1000
    assert all(re.fullmatch(r"rt_[0-9a-f]{64}", token) for token in tokens)


def test_a_digest_stands_for_a_token() -> None:
    """The digest is SHA-256, of any text that a peer may send."""
    assert token_digest("rt_1") == hashlib.sha256(b"rt_1").digest()
    assert len(token_digest("\ud800")) == 32
