"""A model that follows a script: an HTTP server on loopback which calls one tool, and then talks.

It answers as OpenAI (`/v1/chat/completions`), Anthropic (`/v1/messages`) and Google
(`:streamGenerateContent`) do, as a stream.
A conversation that offers tools and has no result of one yet is answered with the call of a tool;
any other is answered with a text.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

Body = dict[str, Any]

TEXT: Final = "The script is over."


class Script(ThreadingHTTPServer):
    """The model: which tool it calls, and with what."""

    daemon_threads = True

    def __init__(self, tool: str, arguments: Body) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.tool = tool
        self.arguments = arguments
        self.asked: list[Body] = []
        """What it was asked, in order."""

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def scripted_model(tool: str, arguments: Body) -> Generator[Script]:
    """Have the model listen for the length of the block."""
    with Script(tool, arguments) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Answering(BaseHTTPRequestHandler):
    server: Script
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer a request."""
        asked: Body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(asked)
        path = self.path.partition("?")[0]
        if path.endswith("/count_tokens"):
            self._send("application/json", json.dumps({"input_tokens": 10}))
        elif path.endswith("/messages"):
            self._stream(_anthropic(self._calls(asked), self.server), named=True)
        elif path.endswith("/chat/completions"):
            self._stream([*_openai(self._calls(asked), self.server), None], named=False)
        elif path.endswith(":streamGenerateContent"):
            self._stream([_google(self._calls(asked), self.server)], named=False)
        elif path.endswith(":generateContent"):
            self._send("application/json", json.dumps(_google(False, self.server)))  # noqa: FBT003
        else:
            self.send_error(404)

    def _calls(self, asked: Body) -> bool:
        """Return whether the answer is the call of the tool."""
        offered = json.dumps(asked.get("tools", []))
        said = json.dumps(asked.get("messages", asked.get("contents")))
        done = any(
            word in said for word in ('"role": "tool"', '"tool_result"', '"functionResponse"')
        )
        return f'"name": "{self.server.tool}"' in offered and not done

    def _stream(self, events: list[Body | None], *, named: bool) -> None:
        lines: list[str] = []
        for event in events:
            if named and event is not None:
                lines.append(f"event: {event['type']}")
            lines += [f"data: {'[DONE]' if event is None else json.dumps(event)}", ""]
        self._send("text/event-stream", "\n".join([*lines, ""]))

    def _send(self, kind: str, text: str) -> None:
        data = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_args: object) -> None:
        """Say nothing."""


def _openai(calls: bool, script: Script) -> Iterator[Body]:  # noqa: FBT001
    chunk = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "fake"}
    if calls:
        named = {"name": script.tool, "arguments": json.dumps(script.arguments)}
        called = {"index": 0, "id": "call_1", "type": "function", "function": named}
        delta: Body = {"role": "assistant", "tool_calls": [called]}
    else:
        delta = {"role": "assistant", "content": TEXT}
    yield {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    reason = "tool_calls" if calls else "stop"
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    yield {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage}


def _google(calls: bool, script: Script) -> Body:  # noqa: FBT001
    called = {"functionCall": {"name": script.tool, "args": script.arguments}}
    content = {"role": "model", "parts": [called if calls else {"text": TEXT}]}
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    candidate = {"content": content, "finishReason": "STOP", "index": 0}
    return {"candidates": [candidate], "usageMetadata": usage}


def _anthropic(calls: bool, script: Script) -> list[Body | None]:  # noqa: FBT001
    if calls:
        block: Body = {"type": "tool_use", "id": "toolu_1", "name": script.tool, "input": {}}
        delta: Body = {"type": "input_json_delta", "partial_json": json.dumps(script.arguments)}
    else:
        block = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": TEXT}
    message: Body = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 1},
    }
    reason = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": reason, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]
