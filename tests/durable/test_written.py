"""The streamed result of a durable job, over kills: each word once, in one result."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from arcp_trio import Agents, JobContext, Json, Limits, Retry
from arcp_trio.testing import TrioClock
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.features import CLIENT_FEATURES
from tests.durability.stores import copy_into
from tests.durable.mortal import MortalStore
from tests.durable.stage import Life
from tests.jobs.streams import decoded

WITHOUT_CHUNKS: Final = tuple(each for each in CLIENT_FEATURES if each != "result_chunk")
CHUNKS: Final = pytest.mark.parametrize("features", [CLIENT_FEATURES, WITHOUT_CHUNKS])

Act = Callable[[JobContext, Any], Awaitable[None]]


class Told:
    """What a client was told of a job that streams."""

    def __init__(self, life: Life, end: Frame) -> None:
        bodies = [each["payload"]["body"] for each in life.events(end["job_id"])]
        self.chunks = [body for body in bodies if "result_id" in body]
        self.warnings = [str(body["message"]) for body in bodies if body.get("level") == "warn"]
        self.end = end["payload"]

    @property
    def ids(self) -> list[str]:
        """The ids of all results, of which each chunk has come once, in order."""
        ids = list(dict.fromkeys(chunk["result_id"] for chunk in self.chunks))
        for each in ids:
            found = [chunk["chunk_seq"] for chunk in self.chunks if chunk["result_id"] == each]
            assert found == list(range(len(found)))
        return ids

    @property
    def result(self) -> str | bytes:
        """The result that the terminal names, or has."""
        assert self.end.get("final_status") == "success", self.end
        if "result" in self.end:
            assert not self.chunks
            return str(self.end["result"])
        assert self.end["result_id"] == self.ids[-1]
        last = [chunk for chunk in self.chunks if chunk["result_id"] == self.ids[-1]]
        assert [chunk["more"] for chunk in last] == [True] * (len(last) - 1) + [False]
        data = b"".join(map(decoded, last))
        assert self.end["result_size"] == len(data)
        return data if any(chunk["encoding"] == "base64" for chunk in last) else data.decode()


async def over_kills(
    act: Act,
    *after: float,
    features: tuple[str, ...] = CLIENT_FEATURES,
    encoding: Any = "utf8",
    limits: Limits | None = None,
) -> Told:
    """Return what is told of a job whose agent streams, and which is killed after these seconds."""
    agents = Agents()

    @agents.agent("agent", durable=True)
    async def agent(job: JobContext) -> None:
        async with job.stream_result(encoding) as out:
            await act(job, out)

    life, store = None, None
    for seconds in after:
        async with Life.begin(agents, store, before=life, features=features, limits=limits) as life:
            job_id = (await life.peer.submit("agent", idempotency_key="k"))["job_id"]
            await trio.sleep(seconds)
            await life.until_quiet()
            store = life.killed()
    async with Life.begin(agents, store, before=life, features=features, limits=limits) as life:
        job_id = (await life.peer.submit("agent", idempotency_key="k"))["job_id"]
        return Told(life, await life.peer.until_terminal(job_id))


def tokens(out: Any, *words: str, pause: float = 1) -> Callable[[], Awaitable[None]]:
    """Return the function of a step that writes these words, with a pause after each."""

    async def speak() -> None:
        for word in words:
            await out.write(word)
            await trio.sleep(pause)

    return speak


@CHUNKS
async def test_a_remembered_step_has_written(
    features: tuple[str, ...], autojump_clock: MockClock
) -> None:
    """What a step wrote that is done, and what was written around it, is there once."""

    async def act(job: JobContext, out: Any) -> None:
        await out.write("so: ")
        await job.step("speak", tokens(out, "once ", "upon "))
        await out.write("a ")
        await trio.sleep(10)
        await job.step("speak", tokens(out, "time"))

    for kills in [(1.5,), (5.0,), (5.0, 1.0), (1.5, 0.5, 5.0, 11.5)]:
        told = await over_kills(act, *kills, features=features)
        assert told.result == "so: once upon a time"
        assert len(told.ids) == (features is CLIENT_FEATURES)
        assert not told.warnings


async def test_a_result_that_had_ended(autojump_clock: MockClock) -> None:
    """A kill between the last chunk and the job's end adds nothing to the result."""
    agents = Agents()

    @agents.agent("agent", durable=True)
    async def agent(job: JobContext) -> None:
        async with job.stream_result() as out:
            await job.step("speak", tokens(out, "all"))
        await trio.sleep(10)

    async with Life.begin(agents) as life:
        job_id = (await life.peer.submit("agent"))["job_id"]
        await trio.sleep(5)
        await life.until_quiet()
        left = life.killed()
    async with Life.begin(agents, left, before=life) as second:
        told = Told(second, await second.peer.until_terminal(job_id))
        watcher = await second.another()
        await watcher.send("job.subscribe", {"job_id": job_id, "history": True})
        await watcher.until_terminal(job_id)
    assert (told.result, len(told.ids), len(told.chunks)) == ("all", 1, 2)
    seen = watcher.recorder.events(job_id, session_id=watcher.session_id)
    assert [e["payload"]["body"] for e in seen if "chunk" in e["payload"]["kind"]] == told.chunks


@CHUNKS
async def test_another_text_begins_the_result_anew(
    features: tuple[str, ...], autojump_clock: MockClock
) -> None:
    """Of a step that was cut off, the result has what its last call writes, and nothing else."""

    async def act(job: JobContext, out: Any) -> None:
        await job.step("intro", tokens(out, "so: "))
        if job.run == 1:
            await job.step("speak", tokens(out, "once ", "upon ", "a time", pause=3))
        else:
            await job.step("speak", tokens(out, "once ", "there ", "was", pause=3))

    told = await over_kills(act, 6, features=features)
    assert told.result == "so: once there was"
    if features is CLIENT_FEATURES:
        assert len(told.ids) == 2
        (warning,) = told.warnings
        why = "5 bytes that step 'speak' has not written again"
        assert warning == f"the result begins anew, without {why}"
    # A later run goes on with the new one.
    told = await over_kills(act, 6, 6, features=features)
    assert told.result == "so: once there was"
    assert len(told.warnings) == (features is CLIENT_FEATURES)


@CHUNKS
async def test_a_shorter_text_begins_the_result_anew(
    features: tuple[str, ...], autojump_clock: MockClock
) -> None:
    """What a later call of a step does not come to is not part of the result, over a kill, too."""

    async def act(job: JobContext, out: Any) -> None:
        words = ["once ", "upon "] if job.run == 1 else ["once "]
        await job.step("speak", tokens(out, *words, pause=2 if job.run == 1 else 0))
        await trio.sleep(10)
        await out.write("end")

    for kills in [(3.0,), (3.0, 5.0)]:
        told = await over_kills(act, *kills, features=features)
        assert told.result == "once end"
        assert len(told.warnings) == (features is CLIENT_FEATURES)


async def test_more_than_before(autojump_clock: MockClock) -> None:
    """What is written after the end of an earlier run's result is part of it, too."""
    agents = Agents()

    @agents.agent("agent", durable=True)
    async def agent(job: JobContext) -> None:
        async with job.stream_result() as out:
            await out.write("x" * job.run)
        await trio.sleep(10)

    async with Life.begin(agents) as life:
        job_id = (await life.peer.submit("agent"))["job_id"]
        await trio.sleep(5)
        await life.until_quiet()
        left = life.killed()
    async with Life.begin(agents, left, before=life) as second:
        told = Told(second, await second.peer.until_terminal(job_id))
    assert (told.result, len(told.ids)) == ("xx", 2)
    assert told.warnings == ["the result begins anew: it had ended, and more was written"]


@CHUNKS
@pytest.mark.parametrize("second", [["once ", "upon ", "a time"], ["once ", "there was"], []])
async def test_a_step_that_is_retried(
    second: list[str], features: tuple[str, ...], autojump_clock: MockClock
) -> None:
    """The result has the words of the call that has returned, once."""

    async def act(job: JobContext, out: Any) -> None:
        calls = itertools.count(1)

        async def speak() -> None:
            first = next(calls) == 1 and job.run == 1
            await job.step("inner", tokens(out, "so: "))
            await tokens(out, *(["once ", "upon "] if first else second))()
            if first:
                raise ConnectionError

        await job.step("speak", speak, retry=Retry(attempts=2))
        await out.write("!")

    for kills in [(), (2.5,), (20.0,)]:
        told = await over_kills(act, *kills, features=features)
        assert told.result == "so: " + "".join(second) + "!"
        same = second[:2] == ["once ", "upon "]
        assert len(told.warnings) == (not same and features is CLIENT_FEATURES)


@CHUNKS
async def test_a_step_that_streams_the_whole(
    features: tuple[str, ...], autojump_clock: MockClock
) -> None:
    """A step may be all of the result: remembered, cut off, or called again after an error."""
    agents, calls = Agents(), itertools.count(1)

    @agents.agent("agent", durable=True)
    async def agent(job: JobContext) -> None:
        async def report() -> None:
            with suppress(ConnectionError):  # it is another step that has streamed the result
                await job.step(f"other {next(tries)}", failing, retry=Retry(attempts=2, first=0.1))
            async with job.stream_result() as out:
                out.summarize("in short")
                await job.step("speak", tokens(out, "once "))
                await tokens(out, "upon ", pause=3)()
                if next(calls) == 1:
                    raise ConnectionError
                await tokens(out, "a time")()

        tries = itertools.count()

        async def failing() -> None:
            raise ConnectionError

        await job.step("report", report, retry=Retry(attempts=2))
        await job.sleep(10)

    for seconds in (0.5, 3, 7, 12):
        calls = itertools.count(1)
        async with Life.begin(agents, features=features) as life:
            job_id = (await life.peer.submit("agent"))["job_id"]
            await trio.sleep(seconds)
            await life.until_quiet()
            left = life.killed()
        async with Life.begin(agents, left, before=life, features=features) as second:
            told = Told(second, await second.peer.until_terminal(job_id))
        assert told.result == "once upon a time"
        assert not told.warnings
        if features is CLIENT_FEATURES:
            assert len(told.ids) == 1
            assert told.end["summary"] == "in short"


async def test_parts_of_characters_and_bytes(autojump_clock: MockClock) -> None:
    """A kill inside of a character, and in the middle of bytes, loses nothing."""

    async def act(job: JobContext, out: Any) -> None:
        await job.step("speak", tokens(out, "ü", b"\xc3", b"\xbc", "ü"))  # type: ignore[arg-type]
        await out.write(b"\xc3")
        await trio.sleep(10)
        await out.write(b"\xbc")

    for kills in [(1.5,), (2.5,), (8.0,), (1.5, 1.5, 8.0)]:
        assert (await over_kills(act, *kills)).result == "ü" * 4

    async def data(job: JobContext, out: Any) -> None:
        await job.step("speak", tokens(out, b"\xff", b"\xfe"))  # type: ignore[arg-type]
        await trio.sleep(10)
        await out.write(b"\xfd")

    assert (await over_kills(data, 1.5, 5, encoding="base64")).result == b"\xff\xfe\xfd"


async def test_a_step_that_ends_inside_of_a_character(autojump_clock: MockClock) -> None:
    """Its rest could not be stored with it: the step fails, and says so."""

    async def act(job: JobContext, out: Any) -> None:
        with pytest.raises(ValueError, match=r"step 'speak' ends inside of a character"):
            await job.step("speak", tokens(out, b"\xc3"))  # type: ignore[arg-type]
        await out.write(b"\xbc")

    assert (await over_kills(act)).result == "ü"


async def test_what_is_no_longer_stored(autojump_clock: MockClock) -> None:
    """A result whose beginning was trimmed cannot go on: the job fails, and says why."""

    async def act(job: JobContext, out: Any) -> None:
        for _ in range(200):
            await job.step("speak", tokens(out, "x" * 400, pause=0))
        await trio.sleep(100)

    told = await over_kills(act, 50, limits=Limits(journal_bytes=20_000))
    assert told.end["code"] == "INTERNAL_ERROR"
    assert "journal_bytes" in told.end["message"]


@pytest.mark.logs_error("agent streamed wrongly")
async def test_a_result_is_not_followed_by_another_kind(autojump_clock: MockClock) -> None:
    """Code that streams in one run and returns a value in another one has failed."""
    agents = Agents()

    @agents.agent("agent", durable=True)
    async def agent(job: JobContext) -> Json:
        if job.run > 1:
            return "value"
        async with job.stream_result() as out:
            await out.write("text")
            await trio.sleep(1_000)
        return None

    async with Life.begin(agents) as life:
        job_id = (await life.peer.submit("agent"))["job_id"]
        await life.until_told(job_id, "result_chunk")
        left = life.killed()
    async with Life.begin(agents, left, before=life) as second:
        end = await second.peer.until_terminal(job_id)
    assert "returned a value beside its streamed result" in end["payload"]["message"]


async def test_a_parent_reads_all_of_it(autojump_clock: MockClock) -> None:
    """A child's result is whole, whichever of its runs has written what."""
    agents = Agents()

    @agents.agent("child", durable=True)
    async def child(job: JobContext) -> None:
        async with job.stream_result() as out:
            await job.step("speak", tokens(out, "once ", "upon "))
            await trio.sleep(10)
            await out.write("a time")

    @agents.agent("agent", durable=True)
    async def agent(job: JobContext) -> Json:
        return await (await job.delegate("child")).result()

    lease = {"agent.delegate": ["*"]}
    async with Life.begin(agents) as life:
        job_id = (await life.peer.submit("agent", lease_request=lease))["job_id"]
        await trio.sleep(5)
        left = life.killed()
    async with Life.begin(agents, left, before=life) as second:
        end = await second.peer.until_terminal(job_id)
    assert end["payload"]["result"] == "once upon a time"


async def test_a_step_that_still_returns(autojump_clock: MockClock) -> None:
    """What a step writes that returns although its job is suspended is part of the result."""
    agents = Agents()

    @agents.agent("agent", durable=True)
    async def agent(job: JobContext) -> None:
        async def stubborn() -> None:
            with trio.CancelScope(shield=True):
                await tokens(out, "once ", "upon ")()

        async with job.stream_result() as out:
            try:
                await job.step("speak", stubborn)
                await job.sleep(5)
            finally:
                with trio.CancelScope(shield=True), suppress(Exception):
                    await out.write("a time")

    async with Life.begin(agents) as life:
        job_id = (await life.peer.submit("agent"))["job_id"]
        await trio.sleep(0.5)
    async with Life.begin(agents, life.store, before=life) as second:
        told = Told(second, await second.peer.until_terminal(job_id))
    assert (told.result, len(told.ids), told.warnings) == ("once upon a time", 1, [])


async def test_chunks_by_hand(autojump_clock: MockClock) -> None:
    """Chunks that an agent makes itself come once, if it makes them outside of steps."""
    agents = Agents()

    @agents.agent("agent", durable=True)
    async def agent(job: JobContext) -> None:
        body: dict[str, Json] = {"result_id": "mine", "encoding": "utf8"}
        for seq in range(3):
            more = {"chunk_seq": seq, "data": str(seq), "more": seq < 2}
            await job.emit("result_chunk", body | more)
            await trio.sleep(10)

    async with Life.begin(agents) as life:
        job_id = (await life.peer.submit("agent"))["job_id"]
        await trio.sleep(15)
        await life.until_quiet()
        left = life.killed()
    async with Life.begin(agents, left, before=life) as second:
        told = Told(second, await second.peer.until_terminal(job_id))
    assert told.result == "012"


# -- any program

Program = list[Any]
shapes: st.SearchStrategy[Any] = st.recursive(
    st.tuples(st.sampled_from(("text", "text", "pause")), st.just([])),
    lambda inner: st.tuples(
        st.sampled_from(("step", "step", "flaky", "tasks")), st.lists(inner, max_size=4)
    ),
    max_leaves=10,
)


def numbered(shape: Any, numbers: Iterator[int]) -> Program:
    """Return the program of a shape; what runs side by side writes inside of steps."""
    program: Program = []
    for kind, inner in shape:
        parts = [("step", [each]) for each in inner] if kind == "tasks" else inner
        program.append((kind, next(numbers), numbered(parts, numbers)))
    return program


async def carry_out(
    job: JobContext, out: Any, program: Program, calls: Counter[int], task: str = ""
) -> None:
    """Write what a program writes."""
    for kind, number, inner in program:
        part = partial(carry_out, job, out, inner, calls)
        match kind:
            case "text":
                await out.write(f"<{number}é>")
            case "pause":
                await trio.sleep(1)
            case "tasks":
                async with trio.open_nursery() as nursery:
                    for each in inner:
                        name = f"{task}.{each[1]}"
                        nursery.start_soon(carry_out, job, out, [each], calls, name)
            case _:
                await job.step(
                    f"step{task}",
                    flaky(part, number, calls) if kind == "flaky" else part,
                    retry=Retry(attempts=1_000, first=0.1, factor=1),
                )


def flaky(
    part: Callable[[], Awaitable[None]], number: int, calls: Counter[int]
) -> Callable[[], Awaitable[None]]:
    """Return a function that fails each second time, behind its work."""

    async def step() -> None:
        await part()
        calls[number] += 1
        if calls[number] % 2:
            raise ConnectionError

    return step


def written(program: Program) -> list[str]:
    """Return the words of a program, in the order of its text."""
    words: list[str] = []
    for kind, number, inner in program:
        words += [f"<{number}é>"] if kind == "text" else written(inner)
    return words


def check_order(program: Program, places: Mapping[str, int]) -> None:
    """Check that what comes later in a task was written later."""
    before = -1
    for kind, number, inner in program:
        found = [places[word] for word in written([(kind, number, inner)])]
        assert not found or min(found) > before
        before = max([before, *found])
        for each in [[one] for one in inner] if kind == "tasks" else [inner]:
            check_order(each, places)


@settings(max_examples=80)
@given(
    shape=st.lists(shapes, min_size=3, max_size=8),
    deaths=st.lists(st.integers(3, 16), min_size=1, max_size=4),
    features=st.sampled_from([CLIENT_FEATURES, WITHOUT_CHUNKS]),
)
def test_any_program_under_any_kills(
    shape: list[Any], deaths: list[int], features: tuple[str, ...]
) -> None:
    """Each word is there once, in its order, in one result."""
    program = numbered(shape, itertools.count())
    calls: Counter[int] = Counter()

    async def main() -> None:
        agents, clock = Agents(), TrioClock()

        @agents.agent("agent", durable=True)
        async def agent(job: JobContext) -> None:
            async with job.stream_result() as out:
                await carry_out(job, out, program, calls)

        life: Life | None = None
        store, end = MortalStore(None), Frame()
        for dies_at in [*deaths, None]:
            store = copy_into(MortalStore(dies_at), store.left or store)
            with trio.CancelScope() as scope:
                store.die = scope.cancel
                async with Life.begin(
                    agents, store, before=life, clock=clock, features=features
                ) as life:
                    accepted = await life.peer.submit("agent", idempotency_key="k")
                    end = await life.peer.until_terminal(accepted["job_id"])
            if store.left is None:
                assert life is not None
                told = Told(life, end)
                words = str(told.result).replace(">", "> ").split()
                assert sorted(words) == sorted(written(program))
                check_order(program, {word: place for place, word in enumerate(words)})
                assert len(told.ids) <= 1
                assert not told.warnings
                return

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
