"""What an engine has besides, if several runtimes can share what it stores."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

import msgspec

from arcp_trio.store.nodes import Nodes
from arcp_trio.store.records import Owed, SessionRow


class OpenCommand(msgspec.Struct, frozen=True):
    """What a node was asked to do by another one, and has not answered."""

    id: int
    """Its place among all commands of all nodes."""
    asker: int
    """The node that has asked."""
    kind: str
    about: str
    """The id of the job or of the session that it is about."""
    body: bytes


class Commands(ABC):
    """What the nodes ask of each other, because only the node of a job or a session decides it.

    `AskNode` and `AskAgain` ask, `AnswerNode` answers, and `DropAnswers` deletes what was answered.
    `ShowKey` has a node's public key.
    """

    @abstractmethod
    async def open_commands(self, known: Collection[int]) -> Sequence[OpenCommand]:
        """Return what this node was asked and has not answered, in the order of the asking.

        Those with the ids `known` are left out. There may be more, as an answer is bounded in
        commands and bytes: none is returned when there are no more.
        """

    @abstractmethod
    async def answers(self) -> Mapping[int, bytes]:
        """Return the answers to what this node has asked, by the number of the command."""

    @abstractmethod
    async def asked(self) -> None:
        """Wait until there may be a command for this node, or an answer.

        A wake-up can get lost: look now and then without one.
        """

    @abstractmethod
    async def submitters(self, job_id: str) -> frozenset[str]:
        """Return the sessions that may cancel a job: that exist and submitted it.

        Those that were closed since then are left out. A job that was delegated has the sessions of
        the job above it, too.
        """

    @abstractmethod
    async def public_key(self, node: int, session_id: str) -> bytes | None:
        """Return the public key that a node has shown, if it has this session awake.

        None if it has shown no key, if it is gone, or if the session is elsewhere.
        """


class Extent(msgspec.Struct, frozen=True):
    """How far a journal goes that any node may be writing."""

    key: int
    """By this `Follows.moved` names the journal."""
    tree: int
    """The key of the first job above, or the journal's own if its job was not delegated."""
    trace_id: str
    """The trace of its job."""
    length: int
    """How many entries it was given."""
    finished: bool
    """Whether the last of them is the terminal."""


class News(msgspec.Struct, frozen=True):
    """What was read of some journals at a time."""

    extents: Mapping[str, Extent]
    """How far each of them goes; those that are gone are left out."""
    owed: Sequence[Owed] = ()
    """The first entries from the cursors on, in the order of their emission."""


class Follows(ABC):
    """Journals that other nodes write; `Follow` and `Unfollow` say which this node reads."""

    @abstractmethod
    async def moved(self) -> frozenset[int] | None:
        """Wait until entries were added to journals that this node follows, and return their keys.

        None stands for all of them: nobody can tell which. A wake-up can get lost: look now and
        then without one.
        """

    @abstractmethod
    async def news(
        self, job_ids: Collection[str], cursors: Mapping[str, int], entries: int, size: int
    ) -> News:
        """Return how far the journals of these jobs go, and what is at or after the cursors.

        All extents are of the same time. The entries are at most `entries`, and at most `size`
        bytes, but at least one; or none, if a journal no longer reaches back to its cursor.
        """

    @abstractmethod
    async def cursor_elsewhere(self, job_ids: Sequence[str], session_id: str) -> int | None:
        """Return how far a session that another node has awake has come in a job's journal.

        The job is the first of `job_ids`; those that follow are above it, one after the other. None
        if the session watches none of them, or no other node has it awake. A session that watches
        only a job above has yet to read all.
        """


class SessionPlace(msgspec.Struct, frozen=True):
    """Where a session is."""

    node: int | None
    """The node that has it awake; None if it is parked."""
    moves: int
    """See `SessionRow`."""
    seconds: float | None = None
    """How long it can still be resumed, if it is parked and that is known."""
    beats: int | None = None
    """How many signs of life its node has given."""

    @property
    def over(self) -> bool:
        """Whether it is parked, and its window is over."""
        return self.node is None and self.seconds is not None and self.seconds <= 0


class UntoldJob(msgspec.Struct, frozen=True):
    """A job that was accepted, and that its client has yet to be told of."""

    job_id: str
    accepted: bytes
    """The `job.accepted` payload without its `request_id`, as JSON."""
    request_id: str | None


class FoundSession(msgspec.Struct, frozen=True):
    """A session that a node may take."""

    row: SessionRow
    place: SessionPlace
    untold: Sequence[UntoldJob] = ()
    """Jobs that were accepted in it, and of which its log has no promise.

    Their node stopped in between, or the session has moved.
    """


class Moves(ABC):
    """Sessions that go from one node to another; see also `TakeSession` and `ReleaseSession`."""

    @abstractmethod
    async def place(self, session_id: str) -> SessionPlace | None:
        """Return where a session is; None if there is no such session."""

    @abstractmethod
    async def find(self, session_id: str) -> FoundSession | None:
        """Return a session, and where it is; None if there is no such session."""

    @abstractmethod
    async def is_connected(self, node: int) -> bool:
        """Return whether a node has a connection to the store: if not, it stores nothing now."""

    @abstractmethod
    async def take_when_unlocked(self, session_id: str, node: int | None, moves: int) -> bool:
        """Make a session this node's that is another one's, or parked if `node` is None.

        Unlike a `TakeSession`, this waits for a connection that has the session locked. One that
        stands still is ended.

        Return False if it is no longer where it was when it had moved so often: it may have moved
        on meanwhile, and even come back.

        Raises:
            StoreError: the session stays locked, by something else than a node.
        """

    @abstractmethod
    async def sessions_here(self) -> Collection[str]:
        """Return the sessions that are this node's."""


class Holding(msgspec.Struct, frozen=True):
    """What a principal has at other nodes, and the jobs that wait for a node."""

    jobs: int
    """Jobs that have not ended and wait for nobody, those that wait for a node included."""
    sessions: int
    """Sessions that are awake."""


class EngineCall(enum.StrEnum):
    """What the engine of a shared store is called for."""

    GROUP = "group"
    """To store a group of writes."""
    READ = "read"


Timed: TypeAlias = Callable[[EngineCall, float], None]
"""Is told of a call that was answered, and after how many seconds."""


class Shared(Nodes, Commands, Follows, Moves):
    """What this node does and knows as one of several."""

    @abstractmethod
    def time_calls(self, timed: Timed) -> None:
        """Have `timed` told of each call of the engine that is answered from now on."""

    @property
    @abstractmethod
    def signing_key(self) -> bytes:
        """The key with which all nodes sign short-lived tokens, once the store is open."""

    @abstractmethod
    async def claimant(self, principal: str, key: str) -> str | None:
        """Return the id of the job for which a node has claimed a key that stands for none yet."""

    @abstractmethod
    async def held_elsewhere(self) -> Mapping[str, Holding]:
        """Return what each principal has that is not this node's."""
