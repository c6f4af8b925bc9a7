"""Commands that talk to a runtime, as processes with pipes, and one real runtime for them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import frozen

from tests.cli.processes import LIFETIME_SECONDS, ROOT, starter

TOKEN = "s3cret"
_FILE_SECONDS = 300.0
"""The time that the tests of one file may take together."""
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x9b5A\r\x08\u202egnp.exe\x00 漢"
"""Text that sets the title, clears, colours, moves the cursor, overwrites and reverses."""

AGENTS = """
import os
import arcp_trio, trio

agents = arcp_trio.Agents()

@agents.agent("parrot", version="1")
async def parrot(job):
    await job.log(job.input)
    await job.thought(job.input)
    await job.status(job.input)
    await job.progress(1, total=2, units=job.input)
    return job.input

@agents.agent("waiting", version="1", default=False)
async def earlier(job): ...

@agents.agent("waiting", version="2", default=True)
async def waiting(job):
    await job.log("begun")
    await job.progress(1, total=4, units="steps")
    await job.status("waiting", "for you")
    await trio.sleep_forever()

@agents.agent("stepper")
async def stepper(job):
    for step in range(1, 5):
        await job.progress(step, total=4, units="steps")
        while not os.path.exists(f"{job.input}/{step}"):
            await trio.sleep(0.01)
    return {"done": 4}

@agents.agent("stubborn")
async def stubborn(job):
    await job.log("begun")
    try:
        await trio.sleep_forever()
    finally:
        with trio.move_on_after(20, shield=True):
            await job.log("not yet", level="warn")
            await trio.sleep_forever()

@agents.agent("failing")
async def failing(job):
    raise arcp_trio.JobError("no \\x1b[5mluck", details={"tries": 3})

@agents.agent("binary")
async def binary(job):
    async with job.stream_result(encoding="base64") as out:
        await out.write(bytes(range(256)))

@agents.agent("caller")
async def caller(job):
    async with job.tool_call("copy", job.input) as call:
        call.result = job.input

@agents.agent("typist")
async def typist(job):
    chunks = [word for word in job.input["words"] if word != "log"]
    place = 0
    for word in job.input["words"]:
        if word == "log":
            await job.log("log")
            continue
        more = place < len(chunks) - 1
        body = {"data": word, "result_id": "r", "encoding": "utf8", "chunk_seq": place}
        await job.emit("result_chunk", {**body, "more": more or job.input["hang"]})
        place += 1
        await trio.sleep(0.05)
    if job.input["hang"]:
        await trio.sleep_forever()

@agents.agent("novelist")
async def novelist(job):
    async with job.stream_result() as out:
        await out.write("It was a dark night.")
        await trio.sleep_forever()

@agents.agent("picky", input_schema={"type": "object", "required": ["name"], "title": "ab"})
async def picky(job):
    return job.input

FORM = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string"},
        "size": {"type": "integer"},
        "kind": {"enum": ["a", "b"]},
        "loud": {"type": "boolean"},
        "share": {"type": ["number", "null"], "minimum": 0, "maximum": 1, "default": 0.5},
        "tags": {"type": "array", "items": {"type": "string"}, "default": ["new"]},
        "place": {"type": "object", "properties": {"x": {"type": "integer"}}},
        "either": {"type": ["integer", "string"]},
        "pace": {"enum": ["slow", "fast"], "default": "fast"},
    },
}

@agents.agent("formal", input_schema=FORM)
async def formal(job):
    return job.input

@agents.agent("monster")
async def monster(job):
    await job.log("x" * 1_000_000)
    await job.emit("x-vendor.acme.keys", {f"{n:x}": 0 for n in range(100_000)})
    await job.emit("x-vendor.acme.depth", {"a": [[[[[["deep"]]]]]]})
    await job.artifact("javascript:alert(1)", "text/html")
    await job.artifact("https://example.com/a?b=<i>", "<b>bold</b>")
    return {"__proto__": {"polluted": True}, "constructor": None}

@agents.agent("spender")
async def spender(job):
    for each in job.input:
        await job.metric("cost.search", each, unit="USD")
    await job.metric("speed", 0.1 + 0.2, unit="m/s")

@agents.agent("speaker")
async def speaker(job):
    await job.log("first\\nsecond", level="warn")
    await job.thought("perhaps")
    async with job.tool_call("search.web", {"q": 1}) as call:
        call.result = {"hits": 3}
    await job.metric("cost.search", 0.25, unit="USD")
    await job.metric("speed", 3, unit="m/s")
    await job.artifact("file:///a.png", "image/png", byte_size=7)
    await job.emit("x-vendor.acme.note", {"a": 1})
    return "done"
"""


@frozen
class Done:
    """A command that has ended."""

    code: int
    raw: bytes
    err: str

    @property
    def out(self) -> str:
        """Standard output as text."""
        return self.raw.decode()

    @property
    def objects(self) -> list[dict[str, Any]]:
        """The lines of standard output, a JSON object each."""
        return [json.loads(line) for line in self.out.splitlines()]


@frozen
class Commands:
    """Runs commands for alice, in a folder of their own."""

    url: str
    folder: Path
    token: str | None = TOKEN

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment of a command's process."""
        own = ("ARCP_", "NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
        token = {} if self.token is None else {"ARCP_TOKEN": self.token}
        places = {"XDG_DATA_HOME": str(self.folder / "data-home"), "PYTHONPATH": str(ROOT)}
        url = {"ARCP_URL": self.url} if self.url else {}
        return {**kept, **token, **url, **places, **more}

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start a command whose output is read while it runs."""
        return subprocess.Popen(
            [sys.executable, "-m", "arcp_trio", *arguments],
            cwd=self.folder,
            env=self.environment(**environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, stdin: str = "", **environment: str) -> Done:
        """Run a command to its end."""
        done = subprocess.run(
            [sys.executable, "-m", "arcp_trio", *arguments],
            cwd=self.folder,
            env=self.environment(**environment),
            input=stdin.encode(),
            capture_output=True,
            check=False,
            timeout=LIFETIME_SECONDS,
        )
        return Done(done.returncode, done.stdout, done.stderr.decode())

    def refused(self, code: int, *arguments: str, **environment: str) -> str:
        """Run a command that fails with one line, and return the line."""
        done = self.run(*arguments, **environment)
        assert (done.code, done.out) == (code, ""), done
        assert done.err.startswith("arcp-trio: "), done
        assert done.err.count("\n") == 1, done
        return done.err.removeprefix("arcp-trio: ").rstrip()

    def stepping(self, folder: Path) -> tuple[str, ...]:
        """Return the command of a job that takes four steps: see `go_on`."""
        return ("submit", "stepper", "--input", json.dumps(str(folder)))

    def detached(self, agent: str, *arguments: str) -> str:
        """Submit a job with --detach, and return its id."""
        done = self.run("submit", agent, "--detach", *arguments)
        assert (done.code, done.err) == (0, "")
        return done.out.rstrip()


def go_on(folder: Path, *steps: int) -> None:
    """Have the job that looks into this folder leave these of its four steps."""
    for step in steps:
        (folder / str(step)).touch()


@contextmanager
def served(folder: Path, *arguments: str, demo_agents: bool = True) -> Iterator[Commands]:
    """Serve the agents above for the block, in memory, and return commands that talk to them."""
    (folder / "client_agents.py").write_text(AGENTS, encoding="utf-8")
    with starter(folder, lifetime=_FILE_SECONDS) as start:
        options = ("--port=0", "--memory", f"--token=alice={TOKEN}", "--agents=client_agents")
        if demo_agents:
            arguments += ("--demo-agents",)
        # Only errors are logged, because nothing reads the pipe of standard error.
        serve = start("serve", *options, "--log-level=error", *arguments)
        yield Commands(serve.url(), folder)
