"""Asking other nodes: an answer is handed on once, in one step, or its absence is told in time."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import ArcpError, InternalError, InvalidRequest, Limits, MemoryStore
from arcp_trio.runtime.cluster.asking import Asker
from arcp_trio.runtime.job.command_rows import encode_answer
from arcp_trio.runtime.job.commands import EndJob, Obeyed
from arcp_trio.store.queue import Group
from arcp_trio.store.shared import Commands, OpenCommand
from arcp_trio.store.shared_writes import AskAgain, AskNode, DropAnswers
from arcp_trio.store.writes import Write

COMMAND = EndJob("job_1", "enough")


class OtherNode(Commands):
    """The commands of a node whose answers are given by hand."""

    def __init__(self) -> None:
        self.given: dict[int, bytes] = {}
        self.slow_until = 0.0

    async def open_commands(self, known: Collection[int]) -> Sequence[OpenCommand]:
        """Return nothing: nobody asks this node."""
        return ()

    async def answers(self) -> Mapping[int, bytes]:
        """Return what was given."""
        await trio.sleep_until(self.slow_until)
        return dict(self.given)

    async def asked(self) -> None:
        """Wait for nothing."""
        await trio.sleep_forever()

    async def submitters(self, job_id: str) -> frozenset[str]:
        """Return no sessions."""
        return frozenset()

    async def public_key(self, node: int, session_id: str) -> bytes | None:
        """Return nothing: no node has shown a key."""
        return None


class Putting(MemoryStore):
    """A store without a writer, which keeps what is put."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[Write] = []

    def put(self, write: Write) -> Group:
        """Keep a write, and queue it."""
        self.writes.append(write)
        return super().put(write)


async def test_a_node_that_does_not_answer(autojump_clock: MockClock) -> None:
    """The client is told so after `command_seconds`; the command is not taken back.

    What it says is stored once, and then only for whom it is, as its job may change nodes.
    """
    store, said, taken = Putting(), list[Obeyed | ArcpError](), list[float]()
    asker = Asker(store, OtherNode(), Limits(command_seconds=3).command_seconds, taken.append)
    began = trio.current_time()
    await asker.ask(COMMAND, said.append)
    assert trio.current_time() - began == 3
    assert [type(each) for each in said] == [InternalError]
    assert [type(write) for write in store.writes] == [AskNode, AskAgain, AskAgain]
    assert {write.number for write in store.writes if isinstance(write, AskNode | AskAgain)} == {1}
    assert taken == []


async def test_answers_are_handed_on_once(autojump_clock: MockClock) -> None:
    """Of two readers the first hands an answer on; one that comes too late is only deleted."""
    store, others, taken = Putting(), OtherNode(), list[float]()
    asker = Asker(store, others, 5, taken.append)
    first, second = list[Obeyed | ArcpError](), list[Obeyed | ArcpError]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(asker.ask, COMMAND, first.append)
        await wait_all_tasks_blocked()
        nursery.start_soon(asker.ask, COMMAND, second.append)
        await wait_all_tasks_blocked()
        others.given = {
            1: encode_answer(Obeyed(again=True)),
            2: encode_answer(InvalidRequest("not so")),
            77: encode_answer(Obeyed()),
        }
        async with trio.open_nursery() as readers:
            readers.start_soon(asker.hear)
            readers.start_soon(asker.hear)
    assert first == [Obeyed(again=True)]
    assert [(type(each), str(each)) for each in second] == [(InvalidRequest, "not so")]
    dropped = [write.numbers for write in store.writes if isinstance(write, DropAnswers)]
    assert taken == [0, 0]
    assert {1, 2, 77} == {number for numbers in dropped for number in numbers}


@pytest.mark.parametrize("unknown", [b'{"ended":"paused"}', b'{"error":7}', b"\xff"])
async def test_an_answer_that_is_not_known(autojump_clock: MockClock, unknown: bytes) -> None:
    """An answer that only a newer version knows is an error for its asker, and for nobody else."""
    store, others, said = Putting(), OtherNode(), list[Obeyed | ArcpError]()
    asker = Asker(store, others, 5, lambda _: None)
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(asker.ask, COMMAND, said.append)
        await wait_all_tasks_blocked()
        others.given = {1: unknown, 2: encode_answer(Obeyed())}
        await asker.hear()
    assert isinstance(said[0], InternalError)
    assert said[1:] == [Obeyed()]
    dropped = [write.numbers for write in store.writes if isinstance(write, DropAnswers)]
    assert dropped == [[1, 2]]


async def test_an_answer_at_the_last_moment(autojump_clock: MockClock) -> None:
    """An answer that is heard just as the asker's time ends is all that the asker is told."""
    for _ in range(20):  # each of the two goes first now and then
        others, said = OtherNode(), list[Obeyed | ArcpError]()
        others.given = {1: encode_answer(Obeyed())}
        others.slow_until = trio.current_time() + 2.5
        asker = Asker(MemoryStore(), others, 2.5, lambda _: None)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(asker.ask, COMMAND, said.append)
            await wait_all_tasks_blocked()
            nursery.start_soon(asker.hear)
        assert len(said) == 1, said


async def test_nothing_is_read_while_nothing_is_asked() -> None:
    """A node that waits for no answer looks for none."""
    others = OtherNode()
    others.answers = trio.sleep_forever  # type: ignore[method-assign]
    with trio.fail_after(5):
        await Asker(MemoryStore(), others, 5, print).hear()
