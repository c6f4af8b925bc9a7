"""A LangGraph agent: a graph of asyncio functions, run as a job.

    pip install langgraph
    arcp-trio serve --agents examples.langgraph_agent
    arcp-trio submit planner --input '"a picnic"' --lease 'tool.call=model.*' --budget USD:1

The agent says `loop="asyncio"`, so the graph runs as LangGraph expects. Each node that ends is an
event, and each call of the model is a tool call within the job's lease and budget. A cancelled job
cancels the graph.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
from __future__ import annotations

import asyncio
from typing import TypedDict

from langgraph.graph import END, START, StateGraph

import arcp_trio

agents = arcp_trio.Agents()


class Plan(TypedDict):
    """The state that the graph's nodes hand on."""

    subject: str
    steps: list[str]
    summary: str


@agents.agent("planner", loop="asyncio")
async def planner(job: arcp_trio.AsyncioContext) -> arcp_trio.Json:
    """Plan what the input says, in two steps."""

    async def ask(question: str) -> str:
        async with job.tool_call("model.ask", {"question": question}) as call:
            await asyncio.sleep(0.1)  # a model would think here
            call.result = f"what there is to say: {question}"
        await job.metric("cost.model", 0.01, unit="USD")
        return f"{call.result}"

    async def draft(state: Plan) -> dict[str, list[str]]:
        return {"steps": [await ask(f"{state['subject']}, part {part}") for part in (1, 2)]}

    async def summarise(state: Plan) -> dict[str, str]:
        return {"summary": await ask(" and ".join(state["steps"]))}

    graph = StateGraph(Plan)
    graph.add_node("draft", draft)
    graph.add_node("summarise", summarise)
    graph.add_edge(START, "draft")
    graph.add_edge("draft", "summarise")
    graph.add_edge("summarise", END)

    plan: dict[str, arcp_trio.Json] = {}
    begin = Plan(subject=str(job.input), steps=[], summary="")
    async for update in graph.compile().astream(begin):
        for node, change in update.items():
            await job.status(node, "done")
            plan |= change
    return plan
