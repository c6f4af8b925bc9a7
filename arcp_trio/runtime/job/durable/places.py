"""Where in its code an agent is: in which task, in which step, and whether that is new.

The place of a task is a value in its context, so that a task begins with the place at which it was
started. Agents have it wherever they run: under Trio, under asyncio, or in threads.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import attrs

MOST_NAME: Final = 200  # characters


class Telling(enum.IntEnum):
    """Whether a later run repeats an event, by the place at which the job emits it."""

    ALWAYS = 0
    """Inside of a step, or by the runtime: a later run emits it again."""
    ONCE = 1
    """Outside of steps, by code that no earlier run has reached."""
    UNLESS_TOLD = 2
    """Outside of steps: it is skipped if an earlier run has emitted it."""


@attrs.define(eq=False)
class OpenStep:
    """A step whose function is being called."""

    path: tuple[str | int, ...]
    """Names and occurrences, from the outermost step to this one."""
    over: bool = False

    @property
    def name(self) -> str:
        """The step's own name."""
        return str(self.path[-2])


@attrs.frozen(eq=False)
class TaskPlace:
    """Where a task of an agent is. A change makes another place of the same task."""

    task: object
    step: OpenStep | None = None
    """The innermost step that the code is in."""
    tool: str | None = None
    """The tool of the `tool_call` block that the code is in."""
    live: bool = False
    """The task does something that no earlier run has done."""
    names: Counter[str] = attrs.field(factory=Counter[str])
    """How often each name has come, in this task and this step."""

    @property
    def telling(self) -> Telling:
        """How the events that are emitted here are repeated."""
        if self.step is not None:
            return Telling.ALWAYS
        return Telling.ONCE if self.live else Telling.UNLESS_TOLD

    def next_path(self, name: str) -> tuple[str | int, ...]:
        """Return the path of the next step with this name.

        Raises:
            TypeError, ValueError: the name is not valid.
            RuntimeError: no step can begin here.
        """
        check_name(name)
        if self.tool is not None:
            raise RuntimeError(
                f"step {name!r} is inside of a tool_call of {self.tool!r}, which is not a step:"
                " use call_tool, or begin the step before the call"
            )
        if self.step is not None and self.step.over:
            raise RuntimeError(f"step {name!r} belongs to step {self.step.name!r}, which has ended")
        return self.count(name)

    def count(self, name: str) -> tuple[str | int, ...]:
        """Return the path of what comes next under this name."""
        self.names[name] += 1
        above = () if self.step is None else self.step.path
        return (*above, name, self.names[name])


_here: Final[ContextVar[TaskPlace | None]] = ContextVar("place", default=None)


def here(task: object) -> TaskPlace:
    """Return the place of the task that calls this."""
    place = _here.get()
    if place is None:
        place = TaskPlace(task)
    elif place.task is not task:
        place = TaskPlace(task, place.step, place.tool, place.live)
    else:
        return place
    _here.set(place)
    return place


def go_live(place: TaskPlace) -> None:
    """Note that the task at this place does something new."""
    if not place.live:
        _here.set(attrs.evolve(place, live=True))


@contextmanager
def inside(task: object, path: tuple[str | int, ...]) -> Generator[None]:
    """Mark the block as the inside of a step."""
    outer = here(task)
    step = OpenStep(path)
    _here.set(TaskPlace(task, step, live=outer.live))
    try:
        yield
    finally:
        step.over = True
        _here.set(outer)


def enter_tool(task: object, tool: str) -> TaskPlace:
    """Enter a `tool_call` block; return the place to give to `leave`."""
    outer = here(task)
    _here.set(attrs.evolve(outer, tool=tool))
    return outer


def leave(outer: TaskPlace) -> None:
    """Leave the block, for the place before it."""
    _here.set(outer)


def check_name(name: object) -> None:
    """Refuse what cannot be the name of a step.

    Raises:
        TypeError, ValueError: it is not a text of 1 to 200 characters.
    """
    if not isinstance(name, str):
        raise TypeError(f"a name is a text, not {type(name).__name__}")
    if not 0 < len(name) <= MOST_NAME:
        raise ValueError(f"a name has 1 to {MOST_NAME} characters, not {len(name)}")
