"""An ACP agent whose prompt is a list of steps, in JSON; a program of the standard library alone.

Each step is a list: its name, and what it takes. The prompt is answered with `end_turn` after the
last step, unless a step says otherwise. The program's argument, if there is one, is an object:
`version`, `info` and `capabilities` of its answer to `initialize`, `silent` methods that it does
not answer, `errors` by method, `first`, the steps to do before anything is read, the frames
`before_session` and `after_session`, which are written together with the answer to `session/new`,
`store`, a folder in which its sessions are kept, and `replays`, the methods that tell the history
of a session.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

Frame = dict[str, Any]

OPTIONS: Frame = json.loads(sys.argv[1]) if sys.argv[1:] else {}
KINDS = ["allow_always", "allow_once", "reject_once", "reject_always"]
STORE = Path(OPTIONS["store"]) if "store" in OPTIONS else None
SLEEPER = [sys.executable, "-c", "import time; time.sleep(100)"]

unread: list[Frame] = []
ids = itertools.count()
session = "s-1"
prompt_id: Any = None


class Answered(Exception):  # noqa: N818 - no error
    """The prompt has its answer; its further steps are not done."""


# -- frames


def write(*frames: Frame) -> None:
    """Write frames in one write."""
    raw("".join(json.dumps({"jsonrpc": "2.0", **frame}) + "\n" for frame in frames))


def raw(text: str) -> None:
    """Write what may be no frame at all."""
    data = text.encode("utf-8", "surrogatepass")
    while data:
        data = data[os.write(1, data) :]


def read() -> Frame:
    """Return the next frame of the client; end at the end of the input."""
    line = sys.stdin.buffer.readline()
    if not line:
        sys.exit(0)
    frame: Frame = json.loads(line)
    return frame


def notification(raw_update: Any, session_id: str | None = None) -> Frame:
    """Return an update, whatever it is."""
    return {
        "method": "session/update",
        "params": {"sessionId": session_id or session, "update": raw_update},
    }


def update(sort: str, **fields: Any) -> Frame:
    """Return an update of the session."""
    return notification({"sessionUpdate": sort, **fields})


def said(text: str, kind: str = "agent_message_chunk") -> Frame:
    """Return a chunk of a message."""
    return update(kind, content={"type": "text", "text": text})


def sent(method: str, params: Frame) -> Any:
    """Send a request, and return its id."""
    id_ = next(ids)
    write({"id": id_, "method": method, "params": {"sessionId": session, **params}})
    return id_


def answer_to(id_: Any) -> Any:
    """Wait for the answer to a request; other frames wait."""
    for frame in unread:
        if "method" not in frame and frame.get("id") == id_:
            unread.remove(frame)
            return frame.get("result", frame.get("error"))
    while True:
        frame = read()
        if "method" not in frame and frame.get("id") == id_:
            return frame.get("result", frame.get("error"))
        unread.append(frame)


def ask(method: str, params: Frame) -> Any:
    """Send a request, and wait for its answer."""
    return answer_to(sent(method, params))


def permission(call: Frame, kinds: list[str] = KINDS) -> Frame:
    """Return the params of a request for permission."""
    options = [{"optionId": f"o-{each}", "name": each, "kind": each} for each in kinds]
    return {"toolCall": {"toolCallId": "pending", **call}, "options": options}


def tell(value: Any) -> None:
    """Say a value, as JSON."""
    write(said(json.dumps(value)))


# -- steps: words


def say(*texts: str) -> None:
    """Say texts, in one write."""
    write(*map(said, texts))


def think(*texts: str) -> None:
    """Tell thoughts, in one write."""
    write(*(said(text, "agent_thought_chunk") for text in texts))


def updates(*raw_updates: Frame) -> None:
    """Send updates as they are, in one write."""
    write(*(notification(each) for each in raw_updates))


def large(raw_update: Frame, field: str, size: int) -> None:
    """Send an update with a long text in a field, of its content if it has one."""
    raw_update.get("content", raw_update)[field] = "é" * size
    updates(raw_update)


def elsewhere(text: str) -> None:
    """Say a text in a session that there is not."""
    write(notification(said(text)["params"]["update"], "s-2"))


def burst(count: int) -> NoReturn:
    """Say numbers, answer, and say one thing more, all in one write."""
    frames = [said(f"{number} ") for number in range(count)]
    write(*frames, {"id": prompt_id, "result": {"stopReason": "end_turn"}}, said("late"))
    raise Answered


def flood(count: int, size: int) -> None:
    """Send many updates of a size, each in a write of its own."""
    for number in range(count):
        write(said(f"{number} ".ljust(size, "x")))


def calls(count: int) -> None:
    """Tell of tool calls, each of which ends."""
    for number in range(count):
        named = {"toolCallId": f"c{number}"}
        write(
            update("tool_call", **named, title="t", kind="read", status="pending"),
            update("tool_call_update", **named, status="completed", rawOutput=number),
        )


def cost(amount: Any, currency: str = "USD", used: int = 100, size: int = 1000) -> None:
    """Tell what the session has cost so far."""
    told = {"amount": amount, "currency": currency}
    write(update("usage_update", used=used, size=size, cost=told))


def history() -> None:
    """Say what the session was prompted with so far, one list of names of steps for each prompt."""
    tell([[name for name, *_ in json.loads(text)] for text in prompts()])


def pid() -> None:
    """Say the number of this process."""
    tell(os.getpid())


def environment() -> None:
    """Say the variables and the folder of this process."""
    tell({"variables": {**os.environ}, "cwd": str(Path.cwd())})


def run(script: str) -> None:
    """Run a shell's script in this process, without asking, and say what it writes."""
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True)  # noqa: PLW1510
    tell(done.stdout + done.stderr)


def dial(port: int, text: str, host: str = "127.0.0.1") -> None:
    """Connect to a port, send a text, and say what comes back, or why nothing does."""
    try:
        with socket.create_connection((host, port), timeout=50) as peer:
            peer.sendall(text.encode())
            parts = iter(lambda: peer.recv(65536), b"")
            tell(b"".join(parts).decode())
    except OSError as error:
        tell(f"{type(error).__name__}: {error}")


def fetch(url: str, body: str | None = None) -> None:
    """Fetch a URL as Python does, and say the status and the body, or what is wrong."""
    data = body.encode() if body else None
    try:
        with urllib.request.urlopen(url, data, timeout=50) as answer:
            tell([answer.status, answer.read().decode()])
    except urllib.error.HTTPError as error:
        tell([error.code, error.read().decode()])
    except OSError as error:
        tell([0, str(error)])


def garbage(count: int, size: int, end: str = "\n") -> None:
    """Write lines, or one long line, that are not frames."""
    for _ in range(count):
        raw("x" * size + end)


def errors(count: int, size: int) -> None:
    """Write to standard error."""
    for _ in range(count):
        os.write(2, b"e" * size)
    os.write(2, b"\nthe last words\n")


# -- steps: requests


def call(method: str, params: Frame) -> None:
    """Send a request, and say its answer."""
    tell(ask(method, params))


def take_back() -> None:
    """Ask for permission, take the request back once it was seen, and say the answer."""
    id_ = sent("session/request_permission", permission({"kind": "think"}))
    ask("fs/read_text_file", {"path": "/"})  # decided after it
    write({"method": "$/cancel_request", "params": {"requestId": id_}})
    tell(answer_to(id_))


def send(method: str, params: Frame, count: int = 1) -> None:
    """Send requests, and wait for no answer."""
    for _ in range(count):
        sent(method, params)


def send_long(count: int, size: int) -> None:
    """Send requests whose answers are long, as each repeats its id; read no answer."""
    for number in range(count):
        id_ = str(number).ljust(size, "x")
        write({"id": id_, "method": "fs/delete", "params": {"sessionId": session}})


def may(tool: Frame, kinds: list[str] = KINDS) -> None:
    """Ask for permission, and say the answer."""
    call("session/request_permission", permission(tool, kinds))


def ask_long(count: int, size: int, tool: Frame, field: str) -> None:
    """Ask for permission for tool calls with long ids, of which it tells, or with long input."""
    for number in range(count):
        text = str(number).ljust(size, "x")
        if field == "toolCallId":
            fields = {**tool, field: text}
            write(update("tool_call", **fields))
        else:
            fields = {**tool, "toolCallId": str(number)}
            fields["rawInput"] = {**tool.get("rawInput", {}), field: text}
        ask("session/request_permission", permission(fields))


def read_file(path: str, **place: Any) -> None:
    """Have a file read, and say the answer."""
    call("fs/read_text_file", {"path": path, **place})


def write_file(path: str, content: str) -> None:
    """Have a file written, and say the answer."""
    call("fs/write_text_file", {"path": path, "content": content})


def terminal(command: str, args: list[str] = [], **fields: Any) -> None:  # noqa: B006 - read only
    """Run a command, and say how it was created, how it ended, and its output."""
    created = ask("terminal/create", {"command": command, "args": args, **fields})
    tell(created)
    if "terminalId" in created:
        named = {"terminalId": created["terminalId"]}
        tell(ask("terminal/wait_for_exit", named))
        tell(ask("terminal/output", named))
        tell(ask("terminal/release", named))


def left(command: str, args: list[str] = []) -> None:  # noqa: B006 - read only
    """Run a command, say how it was created, and do not release it once it has ended."""
    created = ask("terminal/create", {"command": command, "args": args})
    ask("terminal/wait_for_exit", {"terminalId": created["terminalId"]})
    tell(created)


def killed(command: str, args: list[str] = []) -> None:  # noqa: B006 - read only
    """Kill a command, say what is known of it before and after, and after it is released."""
    named = ask("terminal/create", {"command": command, "args": args})
    tell(ask("terminal/output", named))
    tell(ask("terminal/kill", named))
    tell(ask("terminal/wait_for_exit", named))
    tell(ask("terminal/output", named))
    tell(ask("terminal/release", named))
    tell(ask("terminal/output", named))
    other = ask("terminal/create", {"command": command, "args": args})
    tell(ask("terminal/release", other))
    tell(ask("terminal/wait_for_exit", other))


# -- steps: time and ends


def wait() -> NoReturn:
    """Wait for a cancel, and end the turn."""
    while (unread.pop(0) if unread else read()).get("method") != "session/cancel":
        pass
    end("cancelled")


def on_cancel(*steps: list[Any]) -> None:
    """Wait for a cancel, and then do steps."""
    while (unread.pop(0) if unread else read()).get("method") != "session/cancel":
        pass
    do(*steps)


def ignore() -> None:
    """Ignore SIGTERM, the end of the input and everything else."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(1)


def deaf() -> NoReturn:
    """Answer the prompt, and then ignore SIGTERM, the end of the input and everything else."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    write({"id": prompt_id, "result": {"stopReason": "end_turn"}})
    while True:
        time.sleep(1)


def end(reason: str) -> NoReturn:
    """Answer the prompt."""
    write({"id": prompt_id, "result": {"stopReason": reason}})
    raise Answered


def answer_twice(*reasons: str) -> NoReturn:
    """Answer the prompt several times, in one write."""
    write(*({"id": prompt_id, "result": {"stopReason": reason}} for reason in reasons))
    raise Answered


def fail(code: int, message: str) -> NoReturn:
    """Answer the prompt with an error."""
    write({"id": prompt_id, "error": {"code": code, "message": message}})
    raise Answered


def close() -> None:
    """Close the output, and live on."""
    os.close(1)
    while True:
        time.sleep(1)


def fork(*, setsid: bool = False) -> None:
    """Start a process that holds the streams open, and say its number."""
    tell(subprocess.Popen(SLEEPER, start_new_session=setsid).pid)


def setsid() -> None:
    """Start a process that leaves the group, and say its number."""
    fork(setsid=True)


def kill(number: int) -> None:
    """End this process by a signal."""
    os.kill(os.getpid(), number)
    time.sleep(100)


STEPS: Mapping[str, Callable[..., None]] = {
    each.__name__: each
    for each in (
        *(say, think, updates, large, elsewhere, burst, flood, calls, cost, history, pid),
        *(environment, run, garbage, errors, raw, call, send, send_long, ask_long),
        *(terminal, wait, on_cancel, ignore, left, killed, take_back),
        *(deaf, answer_twice, end, fail, close, fork, setsid, dial, fetch),
    )
} | {
    "ask": may,
    "read": read_file,
    "write": write_file,
    "signal": kill,
    "sleep": time.sleep,
    "exit": os._exit,
}


def do(*steps: list[Any]) -> None:
    """Do steps; an object at the end of one has arguments with names."""
    for name, *args in steps:
        named: Frame = args.pop() if name in NAMED and args and isinstance(args[-1], dict) else {}
        STEPS[name](*args, **named)


NAMED = {"read", "terminal", "fork"}


# -- the protocol


def prompts() -> list[str]:
    """Return what the session was prompted with so far."""
    assert STORE is not None
    return (STORE / session).read_text().splitlines()


def begun() -> Frame:
    """Begin a session."""
    global session  # noqa: PLW0603 - a program of one session
    if STORE is not None:
        session = f"s-{uuid.uuid4().hex}"
        STORE.mkdir(exist_ok=True)
        (STORE / session).touch()
    return {"sessionId": session}


def gone_on_with(method: str, session_id: str) -> Frame:
    """Go on with a session of an earlier process."""
    global session  # noqa: PLW0603 - a program of one session
    session = session_id
    if method in OPTIONS.get("replays", ["session/load"]):
        for text in prompts():
            write(said(text, "user_message_chunk"), said(f"again: {text}"))
    return {}


def prompted(frame: Frame) -> None:
    """Do the steps of a prompt, and answer it."""
    global prompt_id  # noqa: PLW0603 - a program of one session
    prompt_id = frame["id"]
    text = frame["params"]["prompt"][0]["text"]
    if STORE is not None:
        with (STORE / session).open("a") as file:
            file.write(f"{text}\n")
    try:
        do(*json.loads(text))
        end("end_turn")
    except Answered:
        pass


def answered(method: str, params: Frame) -> Any:
    """Return the answer to any other request."""
    match method:
        case "initialize":
            return {
                "protocolVersion": OPTIONS.get("version", 1),
                "agentInfo": OPTIONS.get("info", {"name": "scripted", "version": "1"}),
                "agentCapabilities": OPTIONS.get("capabilities", {}),
                "authMethods": OPTIONS.get("logins", []),
            }
        case "session/new":
            return begun()
        case "session/load" | "session/resume":
            return gone_on_with(method, params["sessionId"])
        case _:
            return {}


def main() -> None:
    """Answer one frame after the other."""
    do(*OPTIONS.get("first", []))
    while True:
        frame = unread.pop(0) if unread else read()
        method = frame.get("method")
        if method is None or "id" not in frame or method in OPTIONS.get("silent", []):
            continue
        if method in OPTIONS.get("errors", {}):
            write({"id": frame["id"], "error": OPTIONS["errors"][method]})
        elif method == "session/prompt":
            prompted(frame)
        else:
            answer = {"id": frame["id"], "result": answered(method, frame["params"])}
            around = method == "session/new"
            before: list[Frame] = OPTIONS.get("before_session", []) if around else []
            after: list[Frame] = OPTIONS.get("after_session", []) if around else []
            write(*before, answer, *after)


if __name__ == "__main__":
    main()
