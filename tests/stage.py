"""The stage of most tests: a runtime in virtual time, its principals, and clients that connect.

`make_runtime` makes the runtime that a folder's tests need, with the folder's agents. `Stage` is an
entered runtime with its store and its clients; folders derive a class with agents of their own.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import ClassVar, Final, Generic, Self, TypeVar

import trio

from arcp_trio import (
    Agents,
    Authenticator,
    Clock,
    JobContext,
    Json,
    Limits,
    Policy,
    Provisioner,
    Runtime,
    StaticTokens,
)
from arcp_trio.store.interface import Store
from arcp_trio.testing import Peer, PeerFactory, TrioClock, WireRecorder, open_peers
from arcp_trio.testing.frames import Frame
from arcp_trio.testing.peer import TEST_TOKEN
from arcp_trio.wire.features import ALL_FEATURES

BOB: Final = "bob-token"
AUDITOR: Final = "auditor-token"
OPERATOR: Final = "operator-token"
"""Tokens of other principals than alice, whose token is `TEST_TOKEN`."""

TOKENS: Final = StaticTokens(
    {TEST_TOKEN: "alice", BOB: "bob", AUDITOR: "auditor", OPERATOR: "operator"}
)

simple_agents: Final = Agents()
stubborn_agents: Final = Agents()

_S = TypeVar("_S", bound=Store)


@simple_agents.agent("echo")
async def echo(job: JobContext) -> Json:
    """Return the input."""
    return job.input


@simple_agents.agent("sleeper")
async def sleeper(_job: JobContext) -> Json:
    """Sleep until the job is ended from outside."""
    await trio.sleep_forever()


@stubborn_agents.agent("stubborn")
async def stubborn(job: JobContext) -> Json:
    """Log a line a second for as many seconds as the input says, and ignore cancellation."""
    with trio.CancelScope(shield=True):
        for second in range(job.input):
            await trio.sleep(1)
            await job.log(f"second {second}")


def make_runtime(
    *agents: Agents,
    auth: Authenticator = TOKENS,
    store: Store | None = None,
    clock: Clock | None = None,
    limits: Limits | None = None,
    operators: Iterable[str] = (),
    policy: Policy | None = None,
    provisioner: Provisioner | None = None,
) -> Runtime:
    """Return a runtime whose time of day goes with Trio's clock.

    Without `agents` it has the simple ones.
    """
    runtime = Runtime(
        auth=auth,
        store=store,
        clock=clock or TrioClock(),
        limits=limits,
        operators=operators,
        policy=policy,
        provisioner=provisioner,
    )
    for each in agents or (simple_agents,):
        runtime.add(each)
    return runtime


class Stage(Generic[_S]):
    """An entered runtime without agents, its store, and raw clients that connect to it."""

    features: ClassVar[Sequence[str]] = ALL_FEATURES
    """What a client offers in its hello, unless its test says otherwise."""

    def __init__(self, runtime: Runtime, peers: PeerFactory, store: _S) -> None:
        self.runtime = runtime
        self.store = store
        self.recorder = peers.recorder
        self.connect = peers.connect

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        store: _S,
        /,
        *,
        auth: Authenticator = TOKENS,
        limits: Limits | None = None,
        operators: Iterable[str] = (),
        policy: Policy | None = None,
        recorder: WireRecorder | None = None,
    ) -> AsyncGenerator[Self]:
        """Run a runtime over this store for as long as the block lasts.

        With the recorder of another stage, clients can resume that stage's sessions.
        """
        runtime = make_runtime(
            Agents(), auth=auth, store=store, limits=limits, operators=operators, policy=policy
        )
        async with runtime, open_peers(runtime) as peers:
            peers.recorder = recorder or peers.recorder
            yield cls(runtime, peers, store)

    async def welcomed(
        self,
        *,
        token: str = TEST_TOKEN,
        features: Sequence[str] | None = None,
        resume: Frame | None = None,
        answer_pings: bool = True,
    ) -> Peer:
        """Return a client with a session: a new one, or the one that `resume` names.

        Raises:
            ArcpError: the class of the refusal's code.
        """
        peer = await self.connect(answer_pings=answer_pings)
        offered = self.features if features is None else features
        await peer.hello(token=token, features=tuple(offered), resume=resume)
        return peer


def hello_payload(token: str = TEST_TOKEN) -> Frame:
    """Return the payload of an ordinary hello."""
    return {
        "client": {"name": "tests", "version": "1"},
        "auth": {"scheme": "bearer", "token": token},
        "capabilities": {"encodings": ["json"], "features": ["heartbeat", "ack", "progress"]},
    }
