"""A durable job that does everything a durable job can do, and what it does to the world."""

from __future__ import annotations

from collections import Counter

import trio

from arcp_trio import Agents, JobContext, Json

LEASE = {"tool.call": ["*"], "agent.delegate": ["*"]}
ANSWER = "yes"
BUDGET = {"cost.budget": ["USD:10"]}


class World:
    """The agents of one script, and how often each of their side effects has happened."""

    seconds = 1.0
    """How long everything takes."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.agents = Agents()
        self.agents.agent("script", durable=True)(self.script)
        self.agents.agent("child", durable=True)(self.child)

    async def effect(self, what: str) -> Json:
        """Take a second, and have an effect."""
        await trio.sleep(self.seconds)
        self.done[what] += 1
        return {"did": what}

    async def script(self, job: JobContext) -> None:
        """Use tools, nested steps, a child, a sleep, a question, money and a streamed result."""

        async def outer() -> Json:
            await job.log("in outer")
            await job.step("inner", self.effect, "inner")
            await job.metric("cost.inner", 1, unit="USD")
            await trio.sleep(self.seconds)
            return "outer is done"

        await job.log("begin")
        first = await job.call_tool("search.web", self.effect, what="first tool")
        await job.metric("cost.search", 2, unit="USD")
        nested = await job.step("outer", outer)
        child = await job.delegate("child", {"n": 1}, lease={"tool.call": ["*"]})
        await job.status("sleeping")
        await job.sleep(5 * self.seconds)
        answer = await job.ask("Go on?", options=[ANSWER, "no"])
        second = await job.call_tool("search.web", self.effect, what="second tool")
        async with trio.open_nursery() as nursery:
            for n in range(2):
                nursery.start_soon(self.side, job, n)
        got = await child.result()
        async with job.stream_result() as out:
            await out.write(f"{first} {nested} {answer} {second} ")
            await trio.sleep(self.seconds)
            await out.write(f"{got}")

    async def side(self, job: JobContext, number: int) -> None:
        """Work beside another task, under names of its own."""
        await job.log(f"side {number}")
        await job.step(f"side {number}", self.effect, f"side {number}")
        await job.log(f"side {number} is done")

    async def child(self, job: JobContext) -> Json:
        """Log, do a step, log."""
        await job.log("child begins")
        await job.step("work", self.effect, "child's work")
        await job.log("child ends")
        return "from the child"


EFFECTS = {"first tool", "inner", "second tool", "side 0", "side 1", "child's work"}
RESULT = "{'did': 'first tool'} outer is done yes {'did': 'second tool'} from the child"
