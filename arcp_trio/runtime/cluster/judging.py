"""Which nodes are dead, by the beats that this node has seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arcp_trio.store.nodes import NodeRow, RollCall


@attrs.define(eq=False)
class NodeJudge:
    """Finds that a node is dead if its beats stand still for as long as this node's own go through.

    Only this machine's monotonic clock counts, so no clock is compared with another one. A beat
    that fails or is late, one's own pause included, voids all that was seen before: a node that was
    itself cut off from the database accuses nobody.
    """

    node: int
    """The one that judges."""
    node_seconds: float
    """For how long beats stand still before their node is dead."""
    _seen: dict[int, tuple[int, float]] = attrs.field(factory=dict[int, tuple[int, float]])
    """The beats of each other node, and when they were first seen."""
    _last: float | None = None
    """When everything was seen last; None if that beat failed."""

    def dead(self, call: RollCall | None) -> Sequence[NodeRow]:
        """Take what a beat has seen, and return the nodes that are dead."""
        last, self._last = self._last, None if call is None else call.ended
        if call is None or last is None or call.ended - last > self.node_seconds / 2:
            self._seen.clear()
        if call is None:
            return ()
        others = [row for row in call.nodes if row.node != self.node]
        self._seen = {row.node: self._since(row, call.ended) for row in others}
        return [row for row in others if call.began - self._seen[row.node][1] >= self.node_seconds]

    def _since(self, row: NodeRow, now: float) -> tuple[int, float]:
        beats, since = self._seen.get(row.node, (None, now))
        return row.beats, since if beats == row.beats else now
