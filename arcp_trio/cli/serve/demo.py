"""Small agents to try things with; `serve` has them if no other agent is named."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

import trio

from arcp_trio import Agents, ArcpError, InvalidInput, JobContext
from arcp_trio.wire.json import JsonObject, JsonValue, is_list, is_object

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


def demo_agents(taken: Container[str] = ()) -> Agents:
    """Return the demo agents whose names are not taken."""
    agents = Agents()
    for function in (echo, countdown, chatty, report, shopper, team, sleeper, cook, hiker):
        if function.__name__ not in taken:
            durable = function is hiker
            agents.agent(function.__name__, version=_VERSION, durable=durable)(function)
    return agents


async def echo(job: JobContext) -> JsonObject:
    """Return the input."""
    return {"echo": job.input}


async def countdown(job: JobContext) -> JsonObject:
    """Report n steps of progress, one every `delay` seconds."""
    settings = _settings(job, '{"n": 5, "delay": 0.2}')
    n = _whole(settings, "n", 5)
    delay = _number(settings, "delay", 0.2)
    for step in range(1, n + 1):
        await trio.sleep(delay)
        await job.progress(step, total=n, units="steps")
    return {"done": n}


async def chatty(job: JobContext) -> JsonObject:
    """Log n messages of `size` characters as fast as the runtime takes them."""
    settings = _settings(job, '{"n": 1000, "size": 100}')
    n = _whole(settings, "n", 1000)
    size = _whole(settings, "size", 100)
    if size > _LONGEST_MESSAGE:
        raise InvalidInput(f'"size" must be at most {_LONGEST_MESSAGE}')
    news = _NEWS * (size // len(_NEWS) + 1)
    for number in range(1, n + 1):
        await job.log(f"message {number}: {news}"[:size])
    return {"n": n}


async def report(job: JobContext) -> None:
    """Stream a weather diary of `size` characters as the result."""
    left = _whole(_settings(job, '{"size": 1600}'), "size", _SCREENFUL)
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
    settings = _settings(job, '{"most": 3, "price": 0.35}')
    price = _number(settings, "price", 0.35)
    currency = str(settings.get("currency", "USD"))
    most = _whole(settings, "most", 100)
    bought = 0
    while bought < most:
        try:
            item = _GOODS[bought % len(_GOODS)]
            async with job.tool_call("shop.buy", {"item": item}) as call:
                call.result = {"receipt": bought + 1}
        except ArcpError as refusal:
            return {"bought": bought, "stopped_by": refusal.code}
        bought += 1
        await job.metric("cost.shopping", price, unit=currency)
    return {"bought": bought, "stopped_by": None}


async def team(job: JobContext) -> JsonObject:
    """Delegate each item of a list to `echo`, all at the same time, and collect the results."""
    given: JsonValue = job.input
    items = given if is_list(given) else [given]
    children = [await job.delegate("echo", item) for item in items]
    return {"results": [await child.result() for child in children]}


async def sleeper(job: JobContext) -> JsonObject:
    """Do nothing for `seconds`."""
    seconds = _number(_settings(job, '{"seconds": 60}'), "seconds", 60)
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
    settings = _settings(job, '{"stages": 5}')
    stages = _whole(settings, "stages", 5)
    seconds = _number(settings, "seconds", 2)
    for stage in range(1, stages + 1):
        await job.step("walk", trio.sleep, seconds)
        await job.log(f"stage {stage} of {stages}")
    return {"stages": stages, "runs": job.run}


def _settings(job: JobContext, example: str) -> JsonObject:
    given: JsonValue = job.input
    if given is None:
        return {}
    if not is_object(given):
        raise InvalidInput(f"the input must be an object, such as {example}")
    return given


def _whole(settings: JsonObject, key: str, default: int) -> int:
    value = settings.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidInput(f'"{key}" must be a whole number, 0 or more')
    return value


def _number(settings: JsonObject, key: str, default: float) -> float:
    value = settings.get(key, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or value < 0:
        raise InvalidInput(f'"{key}" must be a number, 0 or more')
    return value
