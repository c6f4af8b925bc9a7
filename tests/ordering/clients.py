"""A client that carries out its part of a schedule, and checks what it has seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from arcp_trio.testing.peer import TEST_TOKEN, Peer
from arcp_trio.transport import TransportClosed
from arcp_trio.wire.errors import ResumeWindowExpired
from arcp_trio.wire.ids import new_id
from tests.ordering import programs
from tests.ordering.lines import Line
from tests.ordering.observed import Observed
from tests.ordering.programs import ClientStep, Emitted, Script, emitted_by

if TYPE_CHECKING:
    from arcp_trio.testing.frames import Frame
    from arcp_trio.wire.json import Json, JsonObject
    from tests.ordering.world import World

WINDOW_SECONDS = 60
QUIET_SECONDS = 15.0
"""Longer than any job pauses."""

_PLAIN_RESUME = programs.Resume(0, 0, token_before=False, short=False, unheard=False)


class Client:
    """One client: what it was sent, and what its session must see."""

    def __init__(self, world: World, features: tuple[str, ...]) -> None:
        self._world = world
        self._features = features
        self._peer: Peer | None = None
        self._line: Line | None = None
        self._left: list[Peer] = []
        """Connections that the runtime must end, as the client began another."""
        self.tags: list[int] = []
        self.submitted: dict[int, str] = {}
        """The session in which each of its jobs was submitted."""
        self._observed = Observed(world)
        self.session_id = ""
        self._token = ""
        self._token_before: str | None = None
        self._racing: tuple[float, str] | None = None
        """A resume that is still on its way: when it was sent, and with which token."""
        self._floor = 0
        self._away_since = 0.0
        """When the session was last known to be attached; frames read later may be older."""
        self._dropped: float | None = None
        """When the client dropped the connection to which its session was attached."""

    @property
    def highest(self) -> int:
        """The highest number that the session has seen."""
        return self._world.recorder.highest(self.session_id)

    async def begin(self) -> None:
        """Open a new session."""
        self._peer, self._line = self._world.connect()
        await self._peer.hello(features=self._features)
        self.tags, self._floor = [], 0
        assert self._peer.session_id is not None
        self.session_id = self._peer.session_id
        self._observed = Observed(self._world)
        self._token_before = None
        self._note_token()

    async def take(self, step: ClientStep) -> None:  # noqa: C901 - one line for each kind of step
        """Take one step of the schedule."""
        match step:
            case programs.Submit():
                await self._submit(step.script)
            case programs.Read():
                await self._read(step.frames, step.patience)
            case programs.Drop():
                self._drop(losing=step.losing)
            case programs.Resume():
                await self._resume(step)
            case programs.Ack():
                await self._ack(max(self.highest - step.back, 0))
            case programs.Cancel():
                await self._cancel(step.job)
            case programs.Subscribe() | programs.Unsubscribe():
                await self._watch(step)
            case programs.Close():
                if await self._send("session.close", {}):
                    self._leave()
            case programs.Outlast():
                self._drop(losing=False)
                await trio.sleep(WINDOW_SECONDS + 2 * QUIET_SECONDS)
                await self._resume(_PLAIN_RESUME)

    async def _submit(self, script: Script) -> None:
        tag = len(self._world.scripts)
        self._world.scripts.append(script)
        self.tags.append(tag)
        self.submitted[tag] = self.session_id
        payload: JsonObject = {"agent": "scripted", "input": tag}
        if script.max_runtime is not None:
            payload["max_runtime_sec"] = script.max_runtime
        await self._send("job.submit", payload)

    async def _ack(self, seq: int) -> None:
        if await self._send("session.ack", {"last_processed_seq": seq}):
            self._floor = max(self._floor, seq)

    async def _cancel(self, nth: int) -> None:
        tags = [tag for tag in self.tags if tag in self._world.job_ids]
        if tags:
            tag = tags[nth % len(tags)]
            self._world.cancelled.add(tag)
            await self._send("job.cancel", {"job_id": self._world.job_ids[tag]})

    async def _watch(self, step: programs.Watching) -> None:
        job_ids = self._world.job_ids
        if not job_ids:
            return
        tag = list(job_ids)[step.job % len(job_ids)]
        if isinstance(step, programs.Subscribe):
            await self._subscribe(tag, step)
        else:
            self._observed.part(tag)
            await self._send("job.unsubscribe", {"job_id": job_ids[tag]})

    async def _subscribe(self, tag: int, step: programs.Subscribe) -> None:
        world = self._world
        job_id = world.job_ids[tag]
        payload: JsonObject = {"job_id": job_id, "history": step.history}
        after = 0
        submitter = world.submitter(tag)
        seen = world.recorder.highest(submitter)
        if step.back < seen:
            after = payload["from_event_seq"] = seen - step.back
        request = new_id()
        self._observed.ask(request, tag, history=step.history, submitter=submitter, after=after)
        await self._send("job.subscribe", payload, id=request)

    # -- speaking

    async def _send(self, kind: str, payload: JsonObject, **envelope: Json) -> bool:
        """Send a frame, unless the connection has ended or has no room."""
        if self._peer is None:
            return False
        # A frame that arrives may use up the token before, whether or not the client learns of it.
        self._token_before = None
        try:
            with trio.move_on_after(1) as waiting:
                await self._peer.send(kind, payload, **envelope)
        except TransportClosed:
            self._gone()
            return False
        if not waiting.cancelled_caught:
            self._away_since = trio.current_time()
        return not waiting.cancelled_caught

    async def _read(self, frames: int, patience: float) -> bool:
        """Read at most this many frames, each within the patience; return False at the end."""
        if "heartbeat" in self._features:
            self._token_before = None  # a ping may be among them, and is answered
        for _ in range(frames):
            if self._peer is None:
                return False
            try:
                with trio.move_on_after(patience) as waiting:
                    await self._peer.receive()
            except TransportClosed:
                self._gone()
                return False
            if waiting.cancelled_caught:
                return False
        return True

    # -- coming and going

    def _gone(self) -> None:
        """Note that the runtime ended the connection after it last heard of the client."""
        self._peer = self._line = None

    def _drop(self, *, losing: bool) -> None:
        if self._line is not None:
            self._line.cut(losing=losing)
            if self._racing is None:  # else the session may be attached to the other resume's
                self._dropped = trio.current_time()
        self._gone()

    def _leave(self) -> None:
        """Leave this connection open and turn to another."""
        if self._peer is not None:
            self._left.append(self._peer)
        self._gone()

    def _note_token(self) -> None:
        assert self._peer is not None
        assert self._peer.resume_token is not None
        self._token = self._peer.resume_token
        self._away_since = trio.current_time()

    async def _resume(self, step: programs.Resume) -> None:
        token = self._token
        if step.token_before and self._token_before is not None:
            token = self._token_before
        resume: JsonObject = {
            "session_id": self.session_id,
            "resume_token": token,
            "last_event_seq": max(self.highest - step.back, self._floor),
        }
        self._leave()
        dropped, self._dropped = self._dropped, None
        away = trio.current_time() - self._away_since
        self._peer, self._line = peer, _ = self._world.connect()
        if step.short:
            await peer.send("session.resume", resume)
        else:
            auth: JsonObject = {"scheme": "bearer", "token": TEST_TOKEN}
            hello: JsonObject = {
                "client": {"name": "schedule", "version": "1"},
                "auth": auth,
                "capabilities": {"encodings": ["json"], "features": list(self._features)},
                "resume": resume,
            }
            await peer.send("session.hello", hello)
        if step.unheard:
            # The token may have been rotated or not: the one used stays good in either case.
            self._token, self._token_before = token, None
            self._racing = trio.current_time(), token
            self._left.append(peer)
            self._gone()
            return
        racing, self._racing = self._racing, None
        welcomed = await self._is_welcome(peer, may_lose=racing is not None)
        if not welcomed and racing is not None:
            # The other resume came after this one, or after the one before; but the client was not
            # heard since then, so the token that it used is still good.
            self._leave()
            self._token, self._token_before = racing[1], None
            await self._resume(step)
            return
        if not welcomed:
            assert away >= WINDOW_SECONDS, f"refused after {away} s"
            self.check(whole=False)
            await self.begin()
            return
        if dropped is not None:
            late = trio.current_time() - dropped - WINDOW_SECONDS
            assert late < QUIET_SECONDS, f"welcomed {late} s after the window"
        if racing is not None and racing[0] == trio.current_time():
            self._racing = racing  # that resume may still arrive after this one
        self._token_before = token
        self._note_token()

    async def _is_welcome(self, peer: Peer, *, may_lose: bool) -> bool:
        """Return whether the resume succeeded; if not, the window must be over."""
        try:
            with trio.fail_after(5):
                frame = await peer.receive()
        except TransportClosed:
            assert may_lose, "closed instead of welcomed"
            return False
        if frame["type"] == "session.error":
            assert frame["payload"]["code"] == ResumeWindowExpired.code, frame
        return bool(frame["type"] == "session.welcome")

    # -- the end

    async def settle(self) -> None:
        """Read everything that is to come, over as many connections as it takes."""
        await trio.sleep(1)  # a resume that is still on its way would end the one below
        await self._resume(_PLAIN_RESUME)
        for peer in self._left:
            try:
                with trio.fail_after(10):
                    while True:
                        await peer.receive()
            except TransportClosed:
                pass
        while True:
            if self._peer is None:
                await self._resume(_PLAIN_RESUME)
            await self._read(1_000_000, QUIET_SECONDS)
            if self._peer is not None:
                return

    def check(self, *, whole: bool = True) -> None:
        """Compare what the session has seen with what its jobs emitted."""
        recorder, world = self._world.recorder, self._world
        jobs = {tag: world.job_ids[tag] for tag in self.tags if tag in world.job_ids}
        numbers: list[int] = []
        seen: list[tuple[int, Emitted]] = []
        for tag, job_id in jobs.items():
            for frame in recorder.events(job_id, session_id=self.session_id):
                numbers.append(frame["event_seq"])
                emitted = emitted_by(tag, frame["payload"])
                if emitted is not None:
                    seen.append((frame["event_seq"], emitted))
            terminal = recorder.terminal(job_id, session_id=self.session_id)
            numbers += self._check_repeats(job_id, terminal)
            if terminal is not None:
                numbers.append(terminal["event_seq"])
                self._check_outcome(tag, terminal["payload"]["final_status"])
            assert terminal is not None or not whole, f"job {tag} has no end"
        for tag in self._observed.tags - jobs.keys():
            numbers += self._observed.check(
                tag, self.session_id, progress="progress" in self._features, whole=whole
            )
        assert sorted(numbers) == list(range(1, self.highest + 1))
        in_order = [emitted for _, emitted in sorted(seen)]
        hidden = "progress" not in self._features
        expected = [
            emitted
            for emitted in world.emitted
            if emitted.tag in jobs and not (emitted.progress and hidden)
        ]
        assert in_order == (expected if whole else expected[: len(in_order)])

    def _check_repeats(self, job_id: str, terminal: Frame | None) -> list[int]:
        """Check that what came again of an own job leaves nothing out; return its numbers."""
        recorder = self._world.recorder
        once = recorder.events(job_id, session_id=self.session_id)
        once = [frame for frame in once if not _is_notice(frame)]
        once += [] if terminal is None else [terminal]
        order = {frame["id"]: place for place, frame in enumerate(once)}
        first = {frame["event_seq"] for frame in once}
        repeats: list[int] = []
        for subscription in recorder.subscriptions(job_id, session_id=self.session_id):
            frames = [frame for frame in subscription.frames if not _is_notice(frame)]
            places = [order[frame["id"]] for frame in frames]
            assert places == list(range(places[0], places[0] + len(places))) if places else True
            repeats += [frame["event_seq"] for frame in frames if frame["event_seq"] not in first]
        return repeats

    def _check_outcome(self, tag: int, status: str) -> None:
        """Check that a job ended for one of the possible reasons."""
        script = self._world.scripts[tag]
        possible = {"error" if script.fails else "success"}
        if tag in self._world.cancelled:
            possible.add("cancelled")
        if script.max_runtime is not None:
            possible.add("timed_out")
        assert status in possible, f"job {tag} ended {status}"


def _is_notice(frame: Frame) -> bool:
    """Return whether a frame says that the client is behind: it comes once."""
    return bool(frame["payload"].get("kind") == "status")
