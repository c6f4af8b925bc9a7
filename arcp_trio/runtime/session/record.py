"""What the store has of a session, how large its log is, and the writes that keep it in step."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final

import attrs

from arcp_trio.runtime.access import Principal
from arcp_trio.store.writes import MoveFloor, RotateToken

if TYPE_CHECKING:
    from collections.abc import Iterable

    from arcp_trio.runtime.limits import Limits
    from arcp_trio.store.interface import Store
    from arcp_trio.store.queue import Group
    from arcp_trio.store.records import LogItem, SessionRow

MOST_SPARE_DIGESTS: Final = 16
"""Resume tokens of a session that are valid besides the newest: this many resumes in a row
may fail after they have rotated the token."""

STEPS: Final = 64
"""How many parts are kept apart, about: an ack or a bound gives up whole ones."""


class Record:
    """A session's row, as it is now or is about to be once what is queued is stored."""

    def __init__(self, store: Store, limits: Limits, row: SessionRow) -> None:
        self.id = row.session_id
        self.principal = row.principal
        self._client = row.client
        self.features = row.features
        self.dialect = row.dialect
        """The name of the dialect that its client speaks."""
        self.top = row.top
        """The highest number that was taken."""
        self.floor = row.floor
        """The highest number that need not be replayed.

        It is above `top` after promises that follow `top` were given up: then nothing can be
        replayed in full before another number is taken.
        """
        self.log_size = LogSize(limits.log_bytes, row.log_bytes, row.top + 1)
        self.log_rows = row.log_rows
        self.acked = row.acked
        """The client acknowledges what it has processed (§6.5)."""
        self._token_digest = row.token_digest
        self._spare_digests = row.spare_digests
        self._store = store
        self._most_numbers = limits.unacked_frames

    # -- numbers

    def take_numbers(self, count: int) -> int:
        """Take the next `count` numbers, and return the first of them."""
        first = self.top + 1
        self.top += count
        return first

    def take_log_row(self) -> int:
        """Return the index of the next row of the log."""
        row = self.log_rows
        self.log_rows += 1
        return row

    def ack(self, seq: int) -> None:
        """Keep nothing up to `seq` for replay: the client has processed it (§6.5)."""
        if seq > self.floor or not self.acked:
            self.acked = True
            self._move_floor(max(seq, self.floor))

    def give_up_surplus(self) -> int:
        """Give up the oldest numbers, if too many or too large ones are kept.

        Return how many went.
        """
        floor = max(self.top - self._most_numbers, self.log_size.fitting_floor())
        if floor <= self.floor and not self.log_size.too_large:
            return 0
        gone = min(floor, self.top) - self.floor
        self._move_floor(max(floor, self.floor))
        return max(0, gone)

    def _move_floor(self, floor: int) -> None:
        self.floor = floor
        self.log_size.let_go(floor)
        self._store.put(MoveFloor(self.id, floor, self.acked, self.log_size.held))

    # -- resume tokens (§6.3)

    @property
    def client(self) -> Principal:
        """The principal as it was authenticated last."""
        return Principal.remembered(self.principal, self._client)

    def holds(self, digest: bytes) -> bool:
        """Whether a token with this digest resumes the session."""
        valid = (self._token_digest, *self._spare_digests)
        return any(hmac.compare_digest(digest, each) for each in valid)

    def rotate(
        self,
        *,
        used: bytes,
        fresh: bytes,
        features: frozenset[str],
        dialect: str | None,
        client: Principal,
    ) -> Group:
        """Make `fresh` the newest digest, after a resume with the token of digest `used`.

        The client has been heard with that token, which makes older ones invalid. Tokens issued
        since stay valid: the client may have given this attempt up and be trying with one of them.
        """
        issued = (*self._spare_digests, self._token_digest)
        since = issued[issued.index(used) + 1 :]
        self._spare_digests = (used, *since[-(MOST_SPARE_DIGESTS - 1) :])
        self._token_digest = fresh
        self.features = features
        self._client = client.facts
        if dialect is not None:
            self.dialect = dialect
        return self._put_tokens()

    def heard(self) -> None:
        """Make all tokens but the newest invalid: a frame has come from the client that has it."""
        if self._spare_digests:
            self._spare_digests = ()
            self._put_tokens()

    def _put_tokens(self) -> Group:
        return self._store.put(
            RotateToken(
                self.id,
                self._token_digest,
                self._spare_digests,
                self.features,
                self.dialect,
                self._client,
            )
        )


@attrs.define
class _Step:
    floor: int
    """The floor at which the log no longer has it."""
    size: int


class LogSize:
    """Counts the marks, and the frames that are in no journal, above a session's floor."""

    def __init__(self, most: int, held: int, floor: int) -> None:
        """Begin to count.

        Args:
            most: what may be held, in bytes.
            held: what is held already.
            floor: the floor at which nothing of that is held any longer.
        """
        self.held = 0
        self._most = most
        self._steps: list[_Step] = []
        self._add(floor, held)

    def add(self, items: Iterable[LogItem]) -> None:
        """Count what is appended to the log."""
        for item in items:
            if item.size:
                self._add((item.last_place + 1) // 2, item.size)

    def _add(self, floor: int, size: int) -> None:
        self.held += size
        last = self._steps[-1] if self._steps else None
        if last is not None and last.size < self._most // STEPS:
            last.floor = floor
            last.size += size
        else:
            self._steps.append(_Step(floor, size))

    def let_go(self, floor: int) -> None:
        """Stop counting what the log no longer has above this floor."""
        while self._steps and self._steps[0].floor <= floor:
            self.held -= self._steps.pop(0).size

    @property
    def too_large(self) -> bool:
        """Whether more is held than may be."""
        return self.held > self._most

    def fitting_floor(self) -> int:
        """Return the least floor above which no more is held than may be."""
        held, floor = self.held, 0
        for step in self._steps:
            if held <= self._most:
                break
            held -= step.size
            floor = step.floor
        return floor
