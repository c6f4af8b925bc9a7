"""Commands that an agent has its client run: ACP calls them terminals."""

from __future__ import annotations

import os
import posixpath
import shutil
import signal
import subprocess
from codecs import getincrementaldecoder
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs
import trio

from arcp_trio import acp
from arcp_trio.proxies.acp.calls import Calls
from arcp_trio.proxies.acp.named import (
    SHELL,
    Need,
    absolute,
    line_of,
    needed_for_command,
    runs_others,
    words_of,
)
from arcp_trio.proxies.acp.operation import Clearance, Operation
from arcp_trio.proxies.acp.workplace import Workplace
from arcp_trio.runtime.limits import Limits, limit_hit
from arcp_trio.transport.base import GONE
from arcp_trio.transport.starting import StartedProcess
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.json import JsonObject, JsonValue, is_list, object_in

if TYPE_CHECKING:
    from arcp_trio.runtime.job.context import JobContext

LAST_OUTPUT_SECONDS: Final = 2.0
"""How long output is read after a command has ended: what it has started may hold the pipe open."""

_READ_BYTES: Final = 64 * 1024
_NOT_PASSED_ON: Final = "LD_"
_CONTINUES: Final = range(0x80, 0xC0)
"""Bytes that continue a character of UTF-8."""


class AgentTerminal:
    """A command, from its start on, with the newest of its output."""

    def __init__(self, process: StartedProcess, most_bytes: int) -> None:
        self.id: Final = new_id("term_")
        self.over: Final = trio.Event()
        """Set once the command has ended and its result is told."""
        self._process = process
        self._most = most_bytes
        self._kept = bytearray()
        self._is_cut = False
        self._read_all = trio.Event()

    async def run(self) -> None:
        """Keep the output until the command has ended, and end what it has left behind."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read, name="output of a command")
                await self._process.wait()
                with trio.move_on_after(LAST_OUTPUT_SECONDS):
                    await self._read_all.wait()
                nursery.cancel_scope.cancel(reason="the command has ended")
        finally:
            await self._process.kill()  # noqa: ASYNC102 - bounds and shields itself
            await self._process.close()  # noqa: ASYNC102 - shields itself, and does not wait

    def kill(self) -> None:
        """Kill the command and all that it has started and that is in its group."""
        self._process.signal(signal.SIGKILL)

    @property
    def exit(self) -> JsonObject:
        """How the command has ended, in ACP's form."""
        code = self._process.returncode
        if code is None:
            return {"exitCode": None, "signal": signal.SIGKILL.name}
        return {"exitCode": code if code >= 0 else None, "signal": _signal_name(code)}

    def output(self) -> JsonObject:
        """Return the newest output as text, and how the command has ended if it has."""
        kept, is_cut = self._kept[-self._most :] if self._most else b"", self._is_cut
        if len(self._kept) > len(kept):
            is_cut = True
        if is_cut:
            start = next((at for at, byte in enumerate(kept[:4]) if byte not in _CONTINUES), 0)
            kept = kept[start:]
        decode = getincrementaldecoder("utf-8")("replace").decode
        told: JsonObject = {"output": decode(kept, self.over.is_set()), "truncated": is_cut}
        return {**told, "exitStatus": self.exit} if self.over.is_set() else told

    async def _read(self) -> None:
        with suppress(*GONE):
            async for data in self._process.stdout:
                self._kept += data
                if len(self._kept) > 2 * max(self._most, _READ_BYTES):
                    del self._kept[: len(self._kept) - self._most]
                    self._is_cut = True
        self._read_all.set()


@attrs.frozen
class _CommandToRun:
    """What a terminal is to run."""

    words: Sequence[str]
    line: str
    """The words as a shell reads them."""
    cwd: str
    elsewhere: bool
    """Whether it runs in another folder than the agent."""
    environment: Mapping[str, str]
    needs_shell: bool
    """Whether the lease is asked about it as about a shell."""
    most_bytes: int


class Terminals:
    """The commands of one job's agent."""

    def __init__(self, job: JobContext, calls: Calls, place: Workplace, limits: Limits) -> None:
        self._job = job
        self._calls = calls
        self._place = place
        self._limits = limits
        self._terminals: dict[str, AgentTerminal] = {}
        self._starting = 0
        self._closed = False

    def operation(self, request: acp.Request) -> Operation:
        """Return what a request for a new terminal asks for.

        Raises:
            ValueError: it asks for nothing that can be done.
        """
        params = request.params
        name, args = params.get("command"), params.get("args")
        texts = args if is_list(args) else [] if args is None else [None]
        if not isinstance(name, str) or not name or not all(isinstance(a, str) for a in texts):
            raise ValueError("the command is not a string with a list of strings as its args")
        words = [name, *map(str, texts)]
        if any("\0" in word for word in words):
            raise ValueError("a word of the command has a NUL in it")
        variables = _variables(params.get("env"))
        need = needed_for_command(words, variables)
        command = self._command(words, variables, params, needs_shell=need.targets[0] == SHELL)
        needs = [need, Need("fs.read", [command.cwd])] if command.elsewhere else [need]
        told: JsonObject = {"command": name, "args": [*texts], "cwd": command.cwd}
        if variables:
            told["env"] = {**variables}
        shown: JsonObject = {"cwd": command.cwd, "command": command.line}
        perform = partial(self._create, request, command)
        return Operation(args=told, shown=shown, needs=needs, perform=perform)

    def _command(
        self,
        words: Sequence[str],
        variables: Mapping[str, str],
        params: JsonObject,
        *,
        needs_shell: bool,
    ) -> _CommandToRun:
        own, asked = self._place.cwd, params.get("cwd")
        if asked is not None and not isinstance(asked, str):
            raise ValueError("the cwd is not a string")
        cwd = own if asked is None else absolute(asked, own)
        elsewhere = posixpath.normpath(cwd) != posixpath.normpath(own)
        limit = params.get("outputByteLimit")
        most = self._limits.terminal_bytes
        return _CommandToRun(
            words=words_of(words[0], words[1:]),
            line=line_of(words[0], words[1:]),
            cwd=cwd if elsewhere else own,
            elsewhere=elsewhere,
            environment={**self._place.environment, **variables},
            needs_shell=needs_shell,
            most_bytes=min(limit, most) if type(limit) is int and limit >= 0 else most,
        )

    def find(self, terminal_id: str | None) -> AgentTerminal | None:
        """Return the terminal of this job with this id, unless it was released."""
        return None if terminal_id is None else self._terminals.get(terminal_id)

    def release(self, terminal: AgentTerminal) -> None:
        """Kill a command, and forget it."""
        terminal.kill()
        del self._terminals[terminal.id]

    def kill_all(self) -> None:
        """Kill all commands, also those that are being started."""
        self._closed = True
        for terminal in self._terminals.values():
            terminal.kill()

    async def _create(
        self, request: acp.Request, command: _CommandToRun, cleared: Clearance
    ) -> None:
        self._make_room()
        self._starting += 1
        try:
            words, cwd = await self._resolved(command)
            process = await self._place.start(
                words,
                cwd=cwd,
                environment=command.environment,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.STDOUT,
            )
            terminal = AgentTerminal(process, command.most_bytes)
            self._terminals[terminal.id] = terminal
        finally:
            self._starting -= 1
        if self._closed:
            terminal.kill()
        request.answer({"terminalId": terminal.id})
        await terminal.run()
        await self._calls.end(cleared.call_id, {**terminal.exit, **cleared.decision})
        terminal.over.set()

    def _make_room(self) -> None:
        """Forget the oldest command that has ended, as many agents never release any.

        Raises:
            InternalError: too many run.
        """
        most = self._limits.terminals_per_job
        if len(self._terminals) + self._starting < most:
            return
        over = next((each for each in self._terminals.values() if each.over.is_set()), None)
        if over is None:
            raise limit_hit("terminals_per_job", most, what_helps="wait for the end of a command")
        del self._terminals[over.id]

    async def _resolved(self, command: _CommandToRun) -> tuple[Sequence[str], str]:
        """Return the words and the folder with which to start, once links have been looked at.

        Raises:
            OSError: there is no such program.
            ArcpError: a link leads to what the lease does not allow.
        """
        find = partial(_find, command)
        program, real_program, real_cwd = await trio.to_thread.run_sync(find)
        is_shell = runs_others(real_program) and not real_program.endswith("/busybox")
        if is_shell and not command.needs_shell:
            self._job.authorize("tool.call", SHELL)
        if command.elsewhere and real_cwd != posixpath.normpath(command.cwd):
            self._job.authorize("fs.read", real_cwd)
        if not await trio.to_thread.run_sync(os.path.isdir, real_cwd):
            raise FileNotFoundError(2, "there is no such folder", command.cwd)
        return [program, *command.words[1:]], real_cwd if command.elsewhere else command.cwd


def _find(command: _CommandToRun) -> tuple[str, str, str]:
    """Return the program, its real path, and the real path of the folder."""
    name = command.words[0]
    if "/" in name:
        program: str | None = posixpath.join(command.cwd, name)
    else:
        program = shutil.which(name, path=command.environment.get("PATH"))
    if program is None or not os.access(program, os.X_OK):
        raise FileNotFoundError(2, "there is no such program", name)
    return program, os.path.realpath(program), os.path.realpath(command.cwd)


def _variables(value: JsonValue) -> dict[str, str]:
    """Return the variables that a request adds, but for those of the dynamic linker."""
    added: dict[str, str] = {}
    for each in value if is_list(value) else []:
        fields = object_in(each)
        name, text = fields.get("name"), fields.get("value")
        if not isinstance(name, str) or not isinstance(text, str) or not name:
            raise ValueError("a variable is not an object with name and value")
        if "=" in name or "\0" in name + text:
            raise ValueError("a variable has = in its name, or a NUL")
        if not name.startswith(_NOT_PASSED_ON):
            added[name] = text
    return added


def _signal_name(code: int) -> str | None:
    if code >= 0:
        return None
    known = -code in {each.value for each in signal.Signals}
    return signal.Signals(-code).name if known else str(-code)
