"""An ACP agent whose prompts are lists of steps, in JSON; a program of the standard library alone.

Each step is a list: its name, and what it takes. The prompt is answered with `end_turn` after the
last step, unless a step says otherwise.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

unread: list[dict[str, Any]] = []
ids = itertools.count()
session = "s-1"


def write(*frames: dict[str, Any]) -> None:
    """Write frames in one write."""
    raw("".join(json.dumps({"jsonrpc": "2.0", **frame}) + "\n" for frame in frames))


def raw(text: str) -> None:
    """Write what may be no frame at all."""
    data = text.encode("utf-8", "surrogatepass")
    while data:
        data = data[os.write(1, data) :]


def read() -> dict[str, Any]:
    """Return the next frame of the client; end at the end of the input."""
    line = sys.stdin.buffer.readline()
    if not line:
        sys.exit(0)
    frame: dict[str, Any] = json.loads(line)
    return frame


def update(kind: str, **fields: Any) -> dict[str, Any]:
    """Return an update of the session."""
    return {
        "method": "session/update",
        "params": {"sessionId": session, "update": {"sessionUpdate": kind, **fields}},
    }


def said(text: str) -> dict[str, Any]:
    """Return a chunk of the agent's message."""
    return update("agent_message_chunk", content={"type": "text", "text": text})


def ask(method: str, params: dict[str, Any]) -> Any:
    """Send a request, and wait for its answer; other frames wait."""
    id_ = next(ids)
    write({"id": id_, "method": method, "params": {"sessionId": session, **params}})
    while True:
        frame = read()
        if "method" not in frame and frame.get("id") == id_:
            return frame.get("result", frame.get("error"))
        unread.append(frame)


def permission(kind: str) -> Any:
    """Ask for permission for a call of one kind."""
    kinds = ["allow_always", "allow_once", "reject_once", "reject_always"]
    return ask(
        "session/request_permission",
        {
            "toolCall": {"toolCallId": "pending", "kind": kind, "title": f"do {kind}"},
            "options": [{"optionId": f"o-{each}", "name": each, "kind": each} for each in kinds],
        },
    )


def step(prompt_id: Any, name: str, *args: Any) -> str | None:  # noqa: C901, PLR0912 - a table
    """Do one step; a text that it returns ends the turn, with that as the stop reason."""
    match name:
        case "say":
            write(*(said(text) for text in args))
        case "burst":  # with the answer in the same write, and a line after it
            frames = [said(str(number)) for number in range(args[0])]
            write(*frames, {"id": prompt_id, "result": {"stopReason": "end_turn"}}, said("late"))
            return ""
        case "ask":
            write(said(json.dumps(permission(args[0]))))
        case "call":
            write(said(json.dumps(ask(args[0], args[1]))))
        case "raw":
            raw(args[0])
        case "sleep":
            time.sleep(args[0])
        case "flood":
            for _ in range(args[0]):
                write(said("x" * args[1]))
        case "garbage":
            for _ in range(args[0]):
                raw("x" * args[1] + args[2])
        case "errors":
            for _ in range(args[0]):
                os.write(2, b"e" * args[1])
            os.write(2, b"\nthe last words\n")
        case "exit":
            os._exit(args[0])
        case "signal":
            os.kill(os.getpid(), args[0])
        case "close":
            os.close(1)
            time.sleep(100)
        case "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            write(said(str(os.getpid())))
            time.sleep(100)
        case "leave":  # a process that holds the output open
            sleeping = [sys.executable, "-c", "import time; time.sleep(100)"]
            child = subprocess.Popen(sleeping, start_new_session=args[0])
            write(said(str(child.pid)))
            os._exit(5)
        case "environment":
            write(said(json.dumps({**os.environ, "cwd": str(Path.cwd())})))
        case "wait":  # for a cancel
            while (unread.pop(0) if unread else read()).get("method") != "session/cancel":
                pass
            return "cancelled"
    return None


def prompted(frame: dict[str, Any]) -> None:
    """Do the steps of a prompt, and answer it."""
    for each in json.loads(frame["params"]["prompt"][0]["text"]):
        reason = step(frame["id"], *each)
        if reason is not None:
            break
    else:
        reason = "end_turn"
    if reason:
        write({"id": frame["id"], "result": {"stopReason": reason}})


def main() -> None:
    """Answer one frame after the other."""
    if sys.argv[1:]:
        step(None, *json.loads(sys.argv[1]))
    while True:
        frame = unread.pop(0) if unread else read()
        match frame.get("method"):
            case "initialize":
                info = {"name": "scripted", "version": "1"}
                write({"id": frame["id"], "result": {"protocolVersion": 1, "agentInfo": info}})
            case "session/new":
                write({"id": frame["id"], "result": {"sessionId": session}})
            case "session/prompt":
                prompted(frame)


main()
