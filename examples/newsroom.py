"""A team: an editor gives each section of an article to a writer, with a part of its own budget.

    arcp-trio serve --agents examples.newsroom
    arcp-trio submit editor --input '["tides", "moon"]' --lease agent.delegate=writer --budget USD:1

The writers work at the same time. If the editor's job is cancelled, theirs are, too.
"""

from __future__ import annotations

from decimal import ROUND_DOWN, Decimal

import trio

import arcp_trio

agents = arcp_trio.Agents()


@agents.agent("writer")
async def writer(job: arcp_trio.JobContext) -> arcp_trio.Json:
    """Write about the job's input, word by word."""
    words = f"What there is to say about {job.input}.".split()
    async with job.stream_result() as out:
        for word in words:
            await trio.sleep(0.05)
            await out.write(f"{word} ")
            await job.metric("cost.words", Decimal("0.01"), unit="USD")
    return None


@agents.agent("editor")
async def editor(job: arcp_trio.JobContext) -> arcp_trio.Json:
    """Have each section of a list written, and put them together."""
    given: object = job.input
    if not isinstance(given, list) or not given:
        raise arcp_trio.InvalidInput("the input must be a list of sections")
    sections: list[str] = job.input
    share = {
        currency: (amount / len(sections)).quantize(Decimal("0.01"), ROUND_DOWN)
        for currency, amount in job.budget.items()
    }
    texts: list[arcp_trio.Json] = [None] * len(sections)

    async def assign(place: int, section: str) -> None:
        child = await job.delegate("writer", section, budget=share)
        texts[place] = await child.result()
        await job.log(f"section {place + 1} of {len(sections)} is written")

    async with trio.open_nursery() as nursery:
        for place, section in enumerate(sections):
            nursery.start_soon(assign, place, section)
    left = {currency: str(amount) for currency, amount in job.budget.items()}
    return {"article": texts, "left": left}
