"""What a client of a schedule must see of the jobs that it observes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from arcp_trio.testing.frames import TERMINAL
from tests.ordering.programs import emitted_by

if TYPE_CHECKING:
    from arcp_trio.testing.session_record import Subscription
    from tests.ordering.world import World


@attrs.frozen
class _Asked:
    least: int
    """The place of the first event that may come; it does come if anything is replayed."""


class Observed:
    """The subscriptions of one session."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._asked: dict[str, _Asked] = {}
        self.tags: set[int] = set()
        self._parted: set[int] = set()
        """Jobs from which the client has unsubscribed at some time."""
        self._wanted: dict[int, str] = {}
        """The latest subscription to each job, unless it was unsubscribed from since."""

    def ask(self, request: str, tag: int, *, history: bool, submitter: str, after: int) -> None:
        """Note a subscription, `after` being one of the numbers of the session `submitter`."""
        least = self._place_behind(tag, submitter, after) if history else self._said(tag)
        self._asked[request] = _Asked(least)
        self._wanted[tag] = request
        self.tags.add(tag)

    def part(self, tag: int) -> None:
        """Note an unsubscribe."""
        self._parted.add(tag)
        self._wanted.pop(tag, None)

    def _said(self, tag: int) -> int:
        return sum(emitted.tag == tag for emitted in self._world.emitted)

    def _place_behind(self, tag: int, submitter: str, after: int) -> int:
        """Return how many events the job had emitted when the session had this number."""
        events = self._world.recorder.events(self._world.job_ids[tag], session_id=submitter)
        said = [emitted_by(tag, e["payload"]) for e in events if e["event_seq"] <= after]
        return max((emitted.place + 1 for emitted in said if emitted is not None), default=0)

    def check(self, tag: int, session_id: str, *, progress: bool, whole: bool) -> list[int]:
        """Compare the events of a job with what it emitted; return their numbers."""
        world = self._world
        job_id = world.job_ids[tag]
        expected = [e for e in world.emitted if e.tag == tag and (progress or not e.progress)]
        subscriptions = world.recorder.subscriptions(job_id, session_id=session_id)
        for stream in self._streams(tag, subscriptions):
            answer = stream[0].subscribed["payload"]
            asked = self._asked[answer["request_id"]]
            frames = [frame for subscription in stream for frame in subscription.frames]
            ended = bool(frames) and frames[-1]["type"] in TERMINAL
            seen = [emitted_by(tag, frame["payload"]) for frame in frames[: -1 if ended else None]]
            came = [emitted for emitted in seen if emitted is not None]
            # An unsubscribe may have been lost: then the stream has gone on.
            doubtful = tag in self._parted and not answer["replayed"]
            due = [e for e in expected if doubtful or e.place >= asked.least]
            if not answer["replayed"]:
                # What was emitted before the request was handled does not come.
                due = [emitted for emitted in due if came and emitted >= came[0]]
            assert came == (due if ended else due[: len(came)]), (came, due)
            last = stream[-1].subscribed["payload"]["request_id"]
            wanted = tag not in self._parted or self._wanted.get(tag) == last
            if whole and wanted and stream[-1] is subscriptions[-1]:
                assert ended or all(map(_nothing_to_come, stream)), f"job {tag} has no end"
        return [f["event_seq"] for each in subscriptions for f in each.frames]

    def _streams(self, tag: int, subscriptions: list[Subscription]) -> list[list[Subscription]]:
        """Split the events into streams; one that repeats nothing goes on with the one before."""
        streams: list[list[Subscription]] = []
        goes_on = False
        for subscription in subscriptions:
            replayed = subscription.subscribed["payload"]["replayed"]
            if goes_on and tag not in self._parted and not replayed:
                streams[-1].append(subscription)
            else:
                streams.append([subscription])
            last = subscription.frames[-1]["type"] if subscription.frames else None
            goes_on = last not in TERMINAL and (goes_on or not _nothing_to_come(subscription))
        return streams


def _nothing_to_come(subscription: Subscription) -> bool:
    """Return whether the job had ended, and there is no history to come."""
    answer = subscription.subscribed["payload"]
    return answer["current_status"] not in ("pending", "running") and not answer["replayed"]
