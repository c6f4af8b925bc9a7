"""Small agents to try things with; `serve` has them if no other agent is named."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, Final

import trio

from arcp_trio import Agents, ArcpError, JobContext
from arcp_trio.wire.json import JsonObject, JsonValue, is_list

_VERSION: Final = "1.0.0"
_LONGEST_MESSAGE: Final = 1_000_000
"""The number of characters in a message whose event still fits into a frame."""
_LINE: Final = 80
_PAGE_LINES: Final = 50
_SCREENFUL: Final = 20 * _LINE
_GOODS: Final = ("apples", "bread", "coffee", "dates", "eggs", "flour", "ginger", "honey")
_NEWS: Final = (
    "The ferry left on time with forty passengers and two bicycles. "
    "Rain is on its way from the west and should reach the harbour by noon. "
    "The baker has sold the last of the rye bread. "
    "A seal was seen on the breakwater again and did not mind the children. "
    "The library lends umbrellas now. "
)
_SKIES: Final = ("clear", "a few clouds", "overcast", "light rain", "showers", "fog until nine")
_WINDS: Final = ("north", "north-east", "east", "south", "south-west", "west", "north-west")


def _whole(default: int, meaning: str, **more: int) -> JsonObject:
    return {"type": "integer", "minimum": 0, **more, "default": default, "description": meaning}


def _number(default: float, meaning: str) -> JsonObject:
    return {"type": "number", "minimum": 0, "default": default, "description": meaning}


_SETTINGS: Final[Mapping[str, Mapping[str, Mapping[str, Any]]]] = {
    "countdown": {"n": _whole(5, "steps"), "delay": _number(0.2, "seconds before each step")},
    "chatty": {
        "n": _whole(1000, "messages"),
        "size": _whole(100, "characters in a message", maximum=_LONGEST_MESSAGE),
    },
    "report": {"size": _whole(_SCREENFUL, "characters")},
    "shopper": {
        "most": _whole(100, "things to buy"),
        "price": _number(0.35, "what each costs"),
        "currency": {"type": "string", "default": "USD", "description": "the currency of prices"},
    },
    "sleeper": {"seconds": _number(60, "how long to sleep")},
    "hiker": {"stages": _whole(5, "stages"), "seconds": _number(2, "how long each one takes")},
}
"""The properties of the inputs of the agents that have settings, each with its default."""


def demo_agents(taken: Container[str] = ()) -> Agents:
    """Return the demo agents whose names are not taken."""
    agents = Agents()
    for function in (echo, countdown, chatty, report, shopper, team, sleeper, cook, hiker):
        name = function.__name__
        if name not in taken:
            agents.agent(
                name, version=_VERSION, durable=function is hiker, input_schema=_input_schema(name)
            )(function)
    return agents


def _input_schema(name: str) -> Mapping[str, Any] | None:
    """Return the schema of an agent's input, which may be left out; None if it has no settings."""
    if name not in _SETTINGS:
        return None
    return {"type": ["object", "null"], "properties": _SETTINGS[name]}


def _settings(name: str, job: JobContext) -> dict[str, Any]:
    """Return the settings of a job of this agent: those of its input, and defaults."""
    usual = {key: each["default"] for key, each in _SETTINGS[name].items()}
    return usual | (job.input or {})


async def echo(job: JobContext) -> JsonObject:
    """Return the input."""
    return {"echo": job.input}


async def countdown(job: JobContext) -> JsonObject:
    """Report n steps of progress, one every `delay` seconds."""
    settings = _settings("countdown", job)
    n = int(settings["n"])
    for step in range(1, n + 1):
        await trio.sleep(settings["delay"])
        await job.progress(step, total=n, units="steps")
    return {"done": n}


async def chatty(job: JobContext) -> JsonObject:
    """Log n messages of `size` characters as fast as the runtime takes them."""
    settings = _settings("chatty", job)
    n, size = int(settings["n"]), int(settings["size"])
    news = _NEWS * (size // len(_NEWS) + 1)
    for number in range(1, n + 1):
        await job.log(f"message {number}: {news}"[:size])
    return {"n": n}


async def report(job: JobContext) -> None:
    """Stream a weather diary of `size` characters as the result."""
    left = int(_settings("report", job)["size"])
    page = 0
    async with job.stream_result() as out:
        while left:
            page += 1
            text = _page(page)[:left]
            await out.write(text)
            left -= len(text)


def _page(number: int) -> str:
    """Return a page of the diary, whose lines are equally long: a heading, and a line a day."""
    first = (number - 1) * (_PAGE_LINES - 1) + 1
    lines = [f"Page {number}", *map(_day, range(first, first + _PAGE_LINES - 1))]
    return "".join(f"{line:{_LINE - 1}}\n" for line in lines)


def _day(day: int) -> str:
    low, span, force = 4 + day * 7 % 9, 5 + day * 5 % 8, 1 + day * 3 % 7
    sky, wind = _SKIES[day * 11 % len(_SKIES)], _WINDS[day * 4 % len(_WINDS)]
    return f"Day {day}: {low} to {low + span} degrees, {sky}; wind from the {wind}, force {force}."


async def shopper(job: JobContext) -> JsonObject:
    """Buy groceries at `price` each, through the tool `shop.buy`, until a call is refused."""
    settings = _settings("shopper", job)
    bought = 0
    while bought < settings["most"]:
        try:
            item = _GOODS[bought % len(_GOODS)]
            async with job.tool_call("shop.buy", {"item": item}) as call:
                call.result = {"receipt": bought + 1}
        except ArcpError as refusal:
            return {"bought": bought, "stopped_by": refusal.code}
        bought += 1
        await job.metric("cost.shopping", settings["price"], unit=settings["currency"])
    return {"bought": bought, "stopped_by": None}


async def team(job: JobContext) -> JsonObject:
    """Delegate each item of a list to `echo`, all at the same time, and collect the results."""
    given: JsonValue = job.input
    items = given if is_list(given) else [given]
    children = [await job.delegate("echo", item) for item in items]
    return {"results": [await child.result() for child in children]}


async def sleeper(job: JobContext) -> JsonObject:
    """Do nothing for `seconds`."""
    seconds: float = _settings("sleeper", job)["seconds"]
    await trio.sleep(seconds)
    return {"slept": seconds}


async def cook(job: JobContext) -> JsonObject:
    """Ask people what to cook and for how many, through the tool `human.ask`."""
    dish = await job.ask("What shall I cook?", options=["soup", "stew", "pancakes"])
    number = {"type": "integer", "minimum": 1, "maximum": 12}
    people = await job.ask("For how many?", schema=number)
    return {"dish": dish, "people": people}


async def hiker(job: JobContext) -> JsonValue:
    """Walk stages of `seconds` each; a restart of the runtime costs a part of one of them."""
    settings = _settings("hiker", job)
    stages = int(settings["stages"])
    for stage in range(1, stages + 1):
        await job.step("walk", trio.sleep, settings["seconds"])
        await job.log(f"stage {stage} of {stages}")
    return {"stages": stages, "runs": job.run}
