"""Schedules for trees of jobs and their clients, and the check of what each client has seen."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from typing import cast

import attrs
import trio
from hypothesis import strategies as st
from trio.testing import MockClock

from arcp_trio import Agents, ArcpError, JobContext, JobError, Limits
from arcp_trio.testing import Peer, WireRecorder
from arcp_trio.testing.frames import TERMINAL, Frame
from arcp_trio.transport import TransportClosed
from arcp_trio.wire.json import Json, JsonObject
from tests.ordering.lines import Line, line
from tests.stage import make_runtime

BUDGET = Decimal(100)


LEFT = "cost.budget.remaining"


LEASE: JsonObject = {"agent.delegate": ["scripted"], "cost.budget": [f"USD:{BUDGET}"]}


# -- schedules as data


@attrs.frozen
class Say:
    """Log `lines` lines."""

    lines: int


@attrs.frozen
class Nap:
    """Sleep."""

    seconds: float


@attrs.frozen
class Spend:
    """Report a cost in cents."""

    cents: int


@attrs.frozen
class Delegate:
    """Delegate a script to a child, and wait for its end or not."""

    to: Script
    waits: bool
    budget: int | None
    """In cents."""


@attrs.frozen
class Script:
    """The acts of a job."""

    acts: tuple[Say | Nap | Spend | Delegate, ...]
    fails: bool
    stubborn: bool
    """Whether the agent ignores its cancellation."""


@attrs.frozen
class Visit:
    """One connection of a client: how many frames it reads, and how long it stays away then."""

    frames: int
    patience: float
    away: float


@attrs.frozen
class Schedule:
    """A tree, the limits of its runtime, and two clients that submit the same root."""

    root: Script
    cancel_after: float | None
    outbox_items: int
    tail_frames: int
    line_frames: int
    visits: tuple[tuple[Visit, ...], ...]


_seconds = st.sampled_from((0.0, 0.01, 0.5, 2.0))


_plain_acts: st.SearchStrategy[Say | Nap | Spend | Delegate] = st.one_of(
    st.builds(Say, st.integers(1, 8)),
    st.builds(Nap, _seconds),
    st.builds(Spend, st.sampled_from((0, 1, 1050, 9000))),
)


def _scripts(acts: st.SearchStrategy[Say | Nap | Spend | Delegate]) -> st.SearchStrategy[Script]:
    return st.builds(
        Script,
        acts=st.lists(acts, max_size=5).map(tuple),
        fails=st.sampled_from((False, False, False, True)),
        stubborn=st.sampled_from((False, False, True)),
    )


def _delegations(scripts: st.SearchStrategy[Script]) -> st.SearchStrategy[Script]:
    delegations = st.builds(
        Delegate, scripts, waits=st.booleans(), budget=st.sampled_from((None, 500, 5000))
    )
    return _scripts(st.one_of(delegations, _plain_acts))


_visits = st.lists(
    st.builds(Visit, st.integers(0, 15), _seconds, st.sampled_from((0.0, 0.0, 1.0, 5.0))),
    max_size=4,
).map(tuple)


schedules = st.builds(
    Schedule,
    root=st.recursive(_scripts(_plain_acts), _delegations, max_leaves=8),
    cancel_after=st.sampled_from((None, None, 0.0, 0.7, 3.0)),
    outbox_items=st.sampled_from((1, 4, 1024)),
    tail_frames=st.sampled_from((1, 8, 10_000)),
    line_frames=st.sampled_from((1, 6, 1000)),
    visits=st.tuples(_visits, _visits),
)


# -- carrying them out


class World:
    """A runtime whose agents follow their scripts and keep a record."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.said: list[tuple[str, int]] = []
        """Log lines of all jobs in order: the job's id, and the number of the line."""
        self.scripts: list[Script] = [schedule.root]
        self.recorder = WireRecorder()
        self._all_there = trio.Event()
        limits = Limits(
            outbox_items=schedule.outbox_items,
            tail_frames=schedule.tail_frames,
            cancel_grace_seconds=1,
        )
        self.runtime = make_runtime(Agents(), limits=limits)
        self.runtime.agent("scripted")(self._play)

    async def live(self) -> None:
        """Carry the schedule out, and check what each client has seen."""
        async with self.runtime:
            clients = [Client(self, visits) for visits in self.schedule.visits]
            async with trio.open_nursery() as nursery:
                for client in clients:
                    await client.submit()
                self._all_there.set()
                for client in clients:
                    nursery.start_soon(client.live)
                if self.schedule.cancel_after is not None:
                    await trio.sleep(self.schedule.cancel_after)
                    await clients[0].cancel()
        for client in clients:
            client.check()

    def connect(self) -> tuple[Peer, Line]:
        """Open a connection."""
        near, far = line(self.schedule.line_frames)
        attend = partial(self.runtime.attend, far, deadline=trio.current_time() + 10)
        self.runtime.start_connection(attend, "connection")
        return Peer(near, cast("trio.abc.Stream", near), self.recorder), near

    async def _play(self, job: JobContext) -> Json:
        # A session that submits an ended job again gets its terminal only.
        await self._all_there.wait()
        script: Script = self.scripts[job.input]
        with trio.CancelScope(shield=script.stubborn):
            for act in script.acts:
                await self._do(job, act)
        if script.fails:
            raise JobError("as told")

    async def _do(self, job: JobContext, act: Say | Nap | Spend | Delegate) -> None:
        match act:
            case Say(lines):
                for _ in range(lines):
                    await self._say(job)
            case Nap(seconds):
                await trio.sleep(seconds)
            case Spend(cents):
                await job.metric("cost.x", Decimal(cents) / 100, unit="USD")
            case Delegate():
                await self._delegate(job, act)

    async def _say(self, job: JobContext) -> None:
        self.said.append((job.id, len(self.said)))
        try:
            await job.log(str(len(self.said) - 1))
        except ArcpError:  # the job has ended: nothing was logged
            self.said.pop()
            raise

    async def _delegate(self, job: JobContext, act: Delegate) -> None:
        self.scripts.append(act.to)
        budget = None if act.budget is None else {"USD": Decimal(act.budget) / 100}
        lease = {"agent.delegate": ["scripted"]}
        try:
            child = await job.delegate("scripted", len(self.scripts) - 1, lease, budget)
            if act.waits:
                await child.result()
        except ArcpError:  # refused, or it failed
            await trio.lowlevel.checkpoint()


class Client:
    """A client that submits the root, comes and goes, and reads everything in the end."""

    def __init__(self, world: World, visits: tuple[Visit, ...]) -> None:
        self._world = world
        self._visits = visits
        self._root = ""
        self._frames: dict[str, Frame] = {}
        """The frames that were received, each once, in order."""
        self._peer, self._line = world.connect()

    async def submit(self) -> None:
        """Open a session and submit the root."""
        await self._peer.hello()
        submit: JsonObject = {"lease_request": LEASE, "idempotency_key": "the root"}
        await self._peer.send("job.submit", {"agent": "scripted", "input": 0, **submit})
        self._root = (await self._receive())["job_id"]

    async def _receive(self) -> Frame:
        frame = await self._peer.receive()
        self._frames[frame["id"]] = frame
        return frame

    async def cancel(self) -> None:
        """Cancel the root, if there is a connection."""
        if self._peer.session_id is None:
            return  # not welcomed again yet
        try:
            with trio.move_on_after(1):
                await self._peer.send("job.cancel", {"job_id": self._root})
        except TransportClosed:
            pass

    async def live(self) -> None:
        """Connect and disconnect as the schedule says, and then read the rest."""
        for visit in self._visits:
            await self._read(visit.frames, visit.patience)
            self._line.cut(losing=True)
            await trio.sleep(visit.away)
            resume = self._peer.resume_from()
            self._peer, self._line = self._world.connect()
            await self._peer.hello(resume=resume)
        while not any(f["job_id"] == self._root and f["type"] in TERMINAL for f in self._told):
            await self._receive()
        with trio.move_on_after(5):
            frame = await self._receive()  # at most the refusal of a late cancel
            assert frame["type"] == "session.error", frame

    async def _read(self, frames: int, patience: float) -> None:
        for _ in range(frames):
            with trio.move_on_after(patience):
                await self._receive()

    @property
    def _told(self) -> list[Frame]:
        return [frame for frame in self._frames.values() if "job_id" in frame]

    # -- what the client must have seen

    def check(self) -> None:
        """Compare what was read with what the agents did."""
        said = [
            (frame["job_id"], int(frame["payload"]["body"]["message"]))
            for frame in self._told
            if frame["payload"].get("kind") == "log"
        ]
        assert said == self._world.said
        accepted = {f["job_id"]: f["payload"] for f in self._told if f["type"] == "job.accepted"}
        ended = [frame["job_id"] for frame in self._told if frame["type"] in TERMINAL]
        assert sorted(ended) == sorted(accepted)
        for job_id, its in accepted.items():
            if "budget" in its:
                self._check_budget(job_id, Decimal(str(its["budget"]["USD"])))

    def _check_budget(self, job_id: str, left: Decimal) -> None:
        """Check each remaining amount against the costs of the job and of the jobs below it."""
        below = {job_id}
        for frame in self._told:
            payload = frame["payload"]
            if payload.get("parent_job_id") in below:
                below.add(frame["job_id"])
            body = payload.get("body", {})
            if body.get("name") == "cost.x" and frame["job_id"] in below:
                left -= Decimal(str(body["value"]))
            if body.get("name") == LEFT and frame["job_id"] == job_id:
                assert Decimal(str(body["value"])) == left


def carry_out(schedule: Schedule) -> None:
    """Run a schedule in virtual time; raise what its check raises."""
    try:
        trio.run(World(schedule).live, clock=MockClock(autojump_threshold=0))
    except BaseExceptionGroup as group:
        raise _first(group) from None


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error
