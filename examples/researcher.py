"""An agent with tools, and a budget that ends its work.

    arcp-trio serve --agents examples.researcher
    arcp-trio submit researcher --input '"tides"' --lease 'tool.call=web.*' --budget USD:0.50

The lease allows the tools whose names begin with `web.`. Each search costs money: when the budget
is used up, the next call is refused, and the agent returns what it has found so far.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

import trio

import arcp_trio

PRICE: Final = Decimal("0.20")
QUESTIONS: Final = ("what is it", "who studies it", "since when", "what is not known")

agents = arcp_trio.Agents()


@agents.agent("researcher")
async def researcher(job: arcp_trio.JobContext) -> arcp_trio.Json:
    """Search the web for answers about the job's input."""
    if not isinstance(job.input, str):
        raise arcp_trio.InvalidInput("the input must be a text: the subject")
    found: list[arcp_trio.Json] = []
    stopped_by = None
    for number, question in enumerate(QUESTIONS, 1):
        try:
            async with job.tool_call("web.search", {"q": f"{job.input}: {question}?"}) as call:
                call.result = await search(job.input, question)
        except arcp_trio.BudgetExhausted as refusal:
            stopped_by = refusal.message
            break
        await job.metric("cost.search", PRICE, unit="USD")
        await job.progress(number, total=len(QUESTIONS), units="questions")
        found.append(call.result)
    return {"found": found, "stopped_by": stopped_by}


async def search(subject: str, question: str) -> arcp_trio.Json:
    """Stand in for a search engine."""
    await trio.sleep(0.1)
    return {"title": f"{subject}, {question}", "url": "https://example.com/"}
