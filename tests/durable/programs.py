"""Random programs for a durable agent: steps, emits, sleeps, tasks side by side, and children.

A program is JSON, a list of operations, each with a number of its own:

- `["emit", n]` tells an event, and `["sleep", n]` sleeps.
- `["step", n, program]` does the program inside of a step, then has an effect; `["tool", n]` calls
  a tool that has one.
- `["tasks", n, [program, …]]` runs programs side by side; `["child", n, program]` delegates one.

All steps of a task have one name, as far as they can.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import Any, TypeAlias

import trio
from hypothesis import strategies as st

from arcp_trio import Agents, JobContext, Json

Program: TypeAlias = list[Any]
LEASE: dict[str, list[str]] = {"tool.call": ["*"], "agent.delegate": ["*"]}
KINDS = ("emit", "emit", "step", "step", "tool", "sleep", "tasks", "child")


class Interpreter:
    """Agents that carry programs out."""

    def __init__(self, effect: Callable[[str, int], Awaitable[None]], second: float = 1.0) -> None:
        self.agents = Agents()
        self.agents.agent("program", durable=True)(self.program)
        self._effect = effect
        self._second = second

    async def program(self, job: JobContext) -> Json:
        """Carry out the program of the input, `[key, program]`; return what its parts return."""
        key, program = job.input
        return await self._all(job, key, program, "out", "")

    async def _all(
        self, job: JobContext, key: str, program: Program, where: str, task: str
    ) -> list[Json]:
        results: list[Json] = []
        for kind, number, *rest in program:
            match kind:
                case "emit":
                    await job.log(f"{where} {number}")
                case "sleep":
                    await job.sleep(self._second, name=f"sleep{task}")
                case "step":
                    step = self._step(job, key, number, rest[0])
                    results.append(await job.step(f"step{task}", step))
                case "tool":
                    call = self._tool
                    name = f"tool{task}"
                    results.append(
                        await job.call_tool("tool", call, name=name, key=key, number=number)
                    )
                case "tasks":
                    results.append(await self._tasks(job, key, where, f"{task}.{number}", rest[0]))
                case _:
                    child = await job.delegate(
                        "program", [key, rest[0]], lease=LEASE, name=f"child{task}"
                    )
                    results.append(await child.result())
        return results

    def _step(
        self, job: JobContext, key: str, number: int, program: Program
    ) -> Callable[[], Awaitable[Json]]:
        async def step() -> Json:
            results = await self._all(job, key, program, "in", "")
            await trio.sleep(self._second / 4)
            await self._effect(key, number)
            return [number, *results]

        return step

    async def _tool(self, key: str, number: int) -> int:
        await trio.sleep(self._second / 4)
        await self._effect(key, number)
        return number

    async def _tasks(
        self, job: JobContext, key: str, where: str, task: str, programs: list[Program]
    ) -> list[Json]:
        results: dict[int, Json] = {}

        async def one(place: int, program: Program) -> None:
            results[place] = await self._all(job, key, program, where, f"{task}.{place}")

        async with trio.open_nursery() as nursery:
            for place, program in enumerate(programs):
                nursery.start_soon(one, place, program)
        return [results[place] for place in range(len(programs))]


# -- making programs


def numbered(shape: Any, numbers: Iterator[int]) -> Program:
    """Return the program of a shape, `[kind, [shape, …]]` each, with numbers in it."""
    program: Program = []
    for kind, inner in shape:
        number = next(numbers)
        if kind == "tasks":
            programs = [numbered([each], numbers) for each in inner]
            program.append([kind, number, programs])
        elif kind in ("step", "child"):
            program.append([kind, number, numbered(inner, numbers)])
        else:
            program.append([kind, number])
    return program


shapes: st.SearchStrategy[Any] = st.recursive(
    st.tuples(st.sampled_from(("emit", "emit", "tool", "sleep", "step")), st.just([])),
    lambda inner: st.tuples(
        st.sampled_from(("step", "tasks", "child")), st.lists(inner, max_size=3)
    ),
    max_leaves=8,
)


def random_shape(rng: Random, depth: int = 2) -> list[Any]:
    """Return a random shape."""
    kinds = KINDS if depth else ("emit", "step", "tool", "sleep")
    return [
        [rng.choice(kinds), random_shape(rng, depth - 1) if depth else []]
        for _ in range(rng.randint(1, 4))
    ]


# -- what a program does


def parts(program: Program, *, where: str = "out") -> Iterator[tuple[str, int, str]]:
    """Yield kind, number and place of all operations of a job, but not those of its children."""
    for kind, number, *rest in program:
        yield kind, number, where
        if kind == "step":
            yield from parts(rest[0], where="in")
        elif kind == "tasks":
            for each in rest[0]:
                yield from parts(each, where=where)


def effects(program: Program) -> set[int]:
    """Return the numbers of all effects, those of children included."""
    found: set[int] = set()
    for kind, number, *rest in program:
        if kind in ("step", "tool"):
            found.add(number)
        if kind in ("step", "child"):
            found |= effects(rest[0])
        elif kind == "tasks":
            for each in rest[0]:
                found |= effects(each)
    return found


def result_of(program: Program) -> list[Any]:
    """Return what the agent returns for a program."""
    results: list[Any] = []
    for kind, number, *rest in program:
        if kind == "tool":
            results.append(number)
        elif kind == "step":
            results.append([number, *result_of(rest[0])])
        elif kind == "tasks":
            results.append([result_of(each) for each in rest[0]])
        elif kind == "child":
            results.append(result_of(rest[0]))
    return results


def orders(program: Program) -> Iterator[list[str]]:
    """Yield what each task tells outside of steps, in its order."""
    own: list[str] = []
    for kind, number, *rest in program:
        if kind == "emit":
            own.append(f"out {number}")
        elif kind == "tasks":
            for each in rest[0]:
                yield from orders(each)
    yield own


def check(
    program: Program, told: list[str], result: object, done: dict[int, int], deaths: int
) -> None:
    """Compare what came of a job with its program.

    Args:
        told: the events of the job, in short.
        done: how often each effect has happened.
        deaths: how often the job's runtime died.
    """
    assert result == result_of(program)
    outside = [text for text in told if text.startswith("out ")]
    assert sorted(outside) == sorted(text for each in orders(program) for text in each)
    for each in orders(program):
        assert [text for text in outside if text in each] == each
    inside = {
        f"in {number}" for kind, number, where in parts(program) if (kind, where) == ("emit", "in")
    }
    assert {text for text in told if text.startswith("in ")} == inside
    assert all(told.count(text) <= 1 + deaths for text in inside)
    tools = sum(kind == "tool" for kind, _, _ in parts(program))
    assert sum(text == "call tool" for text in told) == tools
    assert sum(text.startswith("result ") for text in told) == tools
    assert set(done) == effects(program)
    assert all(times <= 1 + deaths for times in done.values())
