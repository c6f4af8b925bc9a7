"""Agents that ask, or need approvals, for each place where an agent runs."""

from __future__ import annotations

import asyncio
from threading import Thread

import trio

from arcp_trio import (
    Agents,
    AsyncioContext,
    BlockingContext,
    JobContext,
    Json,
    PermissionDenied,
    Unanswered,
)

agents = Agents()


@agents.agent("trio")
@agents.agent("trio-process", process=True)
async def on_trio(job: JobContext) -> Json:
    """Ask twice: once for an answer, and once for nothing."""
    first = await job.ask("Sure?", options=["yes", "no"], name="first")
    try:
        await job.ask("Still?", expires_in=0.2)
    except Unanswered as late:
        return [first, late.code]
    return first


@agents.agent("thread")
@agents.agent("thread-process", process=True)
def in_a_thread(job: BlockingContext) -> Json:
    """Ask twice: once for an answer, and once for nothing."""
    first = job.ask("Sure?", options=["yes", "no"], name="first")
    try:
        job.ask("Still?", expires_in=0.2)
    except Unanswered as late:
        return [first, late.code]
    return first


@agents.agent("asyncio", loop="asyncio")
@agents.agent("asyncio-process", loop="asyncio", process=True)
async def under_asyncio(job: AsyncioContext) -> Json:
    """Ask twice: once for an answer, and once for nothing."""
    first = await job.ask("Sure?", options=["yes", "no"], name="first")
    try:
        await job.ask("Still?", expires_in=0.2)
    except Unanswered as late:
        return [first, late.code]
    return first


@agents.agent("trio-doer")
@agents.agent("trio-doer-process", process=True)
async def doer_on_trio(job: JobContext) -> Json:
    """Do what people have to allow, in each way, and talk while it waits for them."""
    done: list[Json] = []

    async def send(to: str) -> str:
        return f"sent to {to}"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(job.log, "meanwhile")
        async with job.tool_call("mail.send", {"to": "ada"}) as call:
            call.result = "sent"
    done.append(call.result)
    done.append(await job.call_tool("mail.copy", send, to="bob"))
    async with job.open(job.input, "w") as file:
        done.append(await file.write("written"))
    await job.authorize_or_ask("net.fetch", "https://h.example/a")
    done.append(await (await job.delegate("echo", "to the child")).result())
    try:
        async with job.tool_call("mail.delete"):
            done.append("deleted")
    except PermissionDenied as denied:
        done.append(denied.details["by"])
    return done


@agents.agent("thread-doer")
@agents.agent("thread-doer-process", process=True)
def doer_in_a_thread(job: BlockingContext) -> Json:
    """Do what people have to allow, in each way, and talk while it waits for them."""
    done: list[Json] = []

    def send(to: str) -> str:
        return f"sent to {to}"

    other = Thread(target=job.log, args=["meanwhile"])
    other.start()
    with job.tool_call("mail.send", {"to": "ada"}) as call:
        call.result = "sent"
    other.join()
    done.append(call.result)
    done.append(job.call_tool("mail.copy", send, to="bob"))
    with job.open(job.input, "w") as file:
        done.append(file.write("written"))
    job.authorize("net.fetch", "https://h.example/a")
    done.append(job.delegate("echo", "to the child").result())
    try:
        with job.tool_call("mail.delete"):
            done.append("deleted")
    except PermissionDenied as denied:
        done.append(denied.details["by"])
    return done


@agents.agent("asyncio-doer", loop="asyncio")
@agents.agent("asyncio-doer-process", loop="asyncio", process=True)
async def doer_under_asyncio(job: AsyncioContext) -> Json:
    """Do what people have to allow, in each way, and talk while it waits for them."""
    done: list[Json] = []

    async def send(to: str) -> str:
        return f"sent to {to}"

    async with asyncio.TaskGroup() as group:
        group.create_task(job.log("meanwhile"))
        async with job.tool_call("mail.send", {"to": "ada"}) as call:
            call.result = "sent"
    done.append(call.result)
    done.append(await job.call_tool("mail.copy", send, to="bob"))
    async with job.open(job.input, "w") as file:
        done.append(await file.write("written"))
    await job.authorize_or_ask("net.fetch", "https://h.example/a")
    done.append(await (await job.delegate("echo", "to the child")).result())
    try:
        async with job.tool_call("mail.delete"):
            done.append("deleted")
    except PermissionDenied as denied:
        done.append(denied.details["by"])
    return done
