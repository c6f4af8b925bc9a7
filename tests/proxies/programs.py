"""The agents of the programs that the tests start, as `serve --stdio --agents programs`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import trio
from trio.testing import wait_all_tasks_blocked

from arcp_trio import (
    Agents,
    ApprovalNeeded,
    ArcpError,
    BudgetExhausted,
    InvalidInput,
    JobContext,
    JobError,
    Json,
)

agents = Agents()


def _start(*command: str) -> int:
    return subprocess.Popen(command).pid


@agents.agent("mirror", version="1.2.0")
async def mirror(job: JobContext) -> Json:
    """Return all that the job was given."""
    return {
        "agent": f"{job.agent}@{job.version}",
        "input": job.input,
        "lease": dict(job.lease),
        "budget": {currency: str(left) for currency, left in job.budget.items()},
        "expires_at": job.expires_at,
        "seconds": None if job.deadline is None else job.deadline - trio.current_time(),
        "trace_id": job.trace_id,
        "environment": dict(os.environ),
        "pid": os.getpid(),
        "group": os.getpgid(0),
    }


@agents.agent("talker")
async def talker(job: JobContext) -> Json:
    """Emit an event of each kind."""
    await job.status("working", "on it")
    await job.log("a line", level="warn")
    await job.thought("é漢😀")
    async with job.tool_call("search.web", {"q": 1}) as call:
        call.result = [1]
    await job.progress(1, total=2)
    await job.metric("latency", 0.5, unit="s")
    await job.artifact("file:///a", "text/plain", byte_size=3)
    await job.emit("x-vendor.tests.note", {"free": ["form"]})
    return None


@agents.agent("curious")
async def curious(job: JobContext) -> Json:
    """Ask what the input says, and return the answer, or the code of the error."""
    try:
        return {"answer": await job.ask(**job.input)}
    except ArcpError as error:
        return {"code": error.code}


@agents.agent("careful")
async def careful(job: JobContext) -> list[Json]:
    """Write the files that the input names, if the lease allows it or a person does."""
    decisions: list[Json] = []
    for number, path in enumerate(job.input):
        call_id, args = f"write-{number}", {"path": path}
        await job.emit("tool_call", {"tool": "write", "call_id": call_id, "args": args})
        try:
            try:
                job.authorize("fs.write", path)
                told: Json = {"decision": "allow"}
            except ApprovalNeeded:
                await job.ask_approval(call_id, "write", args, "fs.write", [path])
                told = await job.decision(call_id)
            await job.emit("tool_result", {"call_id": call_id, "result": {**told, "bytes": 1}})
        except ArcpError as error:
            told = {"decision": error.code}
            await job.emit("tool_result", {"call_id": call_id, "error": error.payload()})
        decisions.append(told["decision"])
    return decisions


@agents.agent("sender")
async def sender(job: JobContext) -> Json:
    """Make a tool call that people may have to allow."""
    async with job.tool_call("mail.send", job.input) as call:
        call.result = "sent"
    return call.result


@agents.agent("counter")
async def counter(job: JobContext) -> Json:
    """Log numbers as fast as possible."""
    for number in range(job.input):
        await job.log(str(number))
    return "done"


@agents.agent("author")
async def author(job: JobContext) -> None:
    """Stream a text."""
    async with job.stream_result() as out:
        for _ in range(job.input):
            await out.write("x" * 100_000)


@agents.agent("teller")
async def teller(job: JobContext) -> None:
    """Stream a few words, and wait after each for a file in a folder."""
    async with job.stream_result() as out:
        for number in range(4):
            await out.write(f"word {number} ")
            while not Path(job.input, str(number)).exists():  # noqa: ASYNC110, ASYNC240 - another process makes it
                await trio.sleep(0.01)


@agents.agent("loud")
async def loud(job: JobContext) -> Json:
    """Write to standard output and standard error, in this process and in another."""
    print("printed")  # noqa: T201
    os.write(1, b"written\n")
    await trio.run_process(["echo", "echoed"])
    sys.stderr.write("x" * 100_000 + "\nlast words")
    sys.stderr.flush()
    return job.input


@agents.agent("patient")
async def patient(job: JobContext) -> Json:
    """Start another process and wait for ever; clean up when cancelled."""
    await job.log(f"{os.getpid()} {_start('sleep', '600')}")
    try:
        await trio.sleep_forever()
    finally:
        with trio.CancelScope(shield=True):
            await job.log("cleaned up")


@agents.agent("stubborn")
async def stubborn(job: JobContext) -> Json:
    """Ignore signals and cancellation."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # processes that it starts ignore them, too
    await job.log(f"{os.getpid()} {_start('sleep', '600')}")
    await wait_all_tasks_blocked(0.02)  # until the event is sent; from here on nothing is read
    while True:
        time.sleep(1)  # noqa: ASYNC251 - on purpose


@agents.agent("crash")
async def crash(job: JobContext) -> Json:
    """Exit in the middle of the job."""
    await job.log("before")
    await wait_all_tasks_blocked(0.02)  # until the event is sent
    os.write(2, b"a secret of the program\n")
    os._exit(job.input)


@agents.agent("failing")
async def failing(job: JobContext) -> Json:
    """Fail with an error that a client may read, or with one that it may not."""
    match job.input:
        case "words":
            raise JobError("these are the words", {"detail": 1})
        case "code":
            raise BudgetExhausted("USD budget exhausted")
        case "input":
            raise InvalidInput("the input has no name")
        case _:
            raise RuntimeError("a secret")


@agents.agent("spender")
async def spender(job: JobContext) -> Json:
    """Spend the amounts of the input, and authorize each step."""
    for cost in job.input:
        job.authorize("tool.call", "shop.buy")
        await job.metric("cost.shopping", cost, unit="USD")
    return "bought"


@agents.agent("boss")
async def boss(job: JobContext) -> Json:
    """Delegate to another agent that spends."""
    child = await job.delegate(
        "spender", job.input, lease={"tool.call": ["shop.*"]}, budget={"USD": 5}
    )
    return await child.result()
