"""The authors of a streamed result: who has written which bytes, and what is written again.

An author is a step, by its key, or the code outside of steps. A later run of a durable job writes
again what its steps that were not done, and the code outside of steps, have written before; so does
the next call of a step that has failed. What is the same is not added a second time. From the
first write on that differs, the rest of what its author wrote before is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import attrs

OUTSIDE: Final = ""
"""The author of what is written outside of steps."""


@attrs.define
class _Earlier:
    """What an author has written before, and how much of it it has written again."""

    text: bytes | None
    """None until it is read back."""
    again: int = 0


class Authors:
    """The authors of one result's bytes, in spans from the first byte to the last."""

    def __init__(self) -> None:
        self._spans: list[tuple[int, str | None]] = [(0, OUTSIDE)]
        """The start of each span, and its author; None: its bytes are dropped."""
        self._unsaved: dict[int, str | None] = {}
        """The spans that are to be stored."""
        self._earlier: dict[str, _Earlier] = {}
        self.dropped: set[str | None] = set()
        """The authors whose bytes no longer count; None stands for those of an earlier run."""

    @property
    def all(self) -> set[str]:
        """All authors of what counts."""
        return {author for _, author in self._spans if author is not None}

    @property
    def last(self) -> str | None:
        """The author of the last byte; None if that is dropped."""
        return self._spans[-1][1]

    def note(self, author: str, size: int) -> None:
        """Note that what is added to a result of `size` bytes is this author's."""
        if self.last != author:
            self._spans.append((size, author))
            self._unsaved[size] = author

    def take_unsaved(self, below: int) -> dict[int, str | None]:
        """Return the spans that start before `below` and are to be stored, each once."""
        taken = {start: author for start, author in self._unsaved.items() if start < below}
        for start in taken:
            del self._unsaved[start]
        return taken

    def _ranges(self, size: int) -> Iterator[tuple[int, int, str | None]]:
        ends = [start for start, _ in self._spans[1:]]
        for (start, author), end in zip(self._spans, [*ends, size], strict=True):
            yield start, end, author

    # -- what is written again

    def recall(
        self, spans: dict[int, str | None], text: bytes, is_done: Callable[[str], bool]
    ) -> None:
        """Go on with what earlier runs have written; steps that are done write nothing again."""
        self._spans = sorted({0: OUTSIDE, **spans}.items())
        self.dropped = {author for author in spans.values() if author is None}
        pieces: dict[str, list[bytes]] = {}
        for start, end, author in self._ranges(len(text)):
            if author is not None and end > start:
                pieces.setdefault(author, []).append(text[start:end])
        for author, found in pieces.items():
            if author == OUTSIDE or not is_done(author):
                self._earlier[author] = _Earlier(b"".join(found))

    def begin_again(self, author: str) -> None:
        """Expect what the author has written again, from its beginning."""
        self._earlier[author] = _Earlier(None)

    def is_unread(self, author: str) -> bool:
        """Whether it is not known what the author, which begins again, has written."""
        return author in self._earlier and self._earlier[author].text is None

    def read_back(self, author: str, whole: bytes) -> None:
        """Find what an author that begins again has written, in the whole result."""
        ranges = self._ranges(len(whole))
        self._earlier[author].text = b"".join(whole[a:b] for a, b, each in ranges if each == author)

    def new_part(self, author: str, data: bytes, size: int) -> bytes:
        """Return the part of `data` that its author has not written before.

        If it differs from what came here before, that is dropped from the result of `size` bytes.
        """
        earlier = self._earlier.get(author)
        if earlier is None:
            return data
        assert earlier.text is not None, "it was read back"
        known = earlier.text[earlier.again : earlier.again + len(data)]
        if not data.startswith(known):
            self.drop_rest(author, size)
            return data
        earlier.again += len(known)
        if earlier.again == len(earlier.text):
            del self._earlier[author]
        return data[len(known) :]

    @property
    def unrepeated(self) -> set[str]:
        """The authors that have not written again all that they wrote before."""
        return set(self._earlier)

    # -- what is dropped

    def drop_rest(self, author: str, size: int) -> None:
        """Drop what the author wrote before and has not written again."""
        kept = self._earlier.pop(author).again
        spans: list[tuple[int, str | None]] = []
        for start, end, each in self._ranges(size):
            mine = min(kept, end - start) if each == author else end - start
            if each == author:
                kept -= mine
            if mine or start == end:
                spans.append((start, each))
            if start + mine < end:
                self.dropped.add(author)
                spans.append((start + mine, None))
                self._unsaved[start + mine] = None
        self._spans = spans

    def without_dropped(self, whole: bytes) -> bytes:
        """Return what counts of the whole result, of which this has the authors from now on."""
        kept: list[bytes] = []
        ranges, size = list(self._ranges(len(whole))), 0
        self._spans, self._unsaved, self.dropped = [(0, OUTSIDE)], {}, set()
        for start, end, author in ranges:
            if author is not None and end > start:
                self.note(author, size)
                kept.append(whole[start:end])
                size += end - start
        return b"".join(kept)
