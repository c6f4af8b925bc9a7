"""docs/wire.md: its frames are those of a real conversation, with a real `serve`, over two sockets.

`python -m tests.documents.test_wire` writes the frames into the document again.
"""

from __future__ import annotations

import json
import re
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from websockets.sync.client import ClientConnection, connect

from tests.cli.processes import FRAME_SECONDS, ROOT, starter

DOCUMENT: Final = ROOT / "docs" / "wire.md"
BLOCK: Final = re.compile(r"^```json\n(.*?)^```$", re.MULTILINE | re.DOTALL)
URL: Final = "ws://127.0.0.1:7777/arcp"

_VOLATILE: Final = (
    (re.compile(r"sess_\w{26}"), "sess_01M7W1RE0000000000000000{}"),
    (re.compile(r"job_\w{26}"), "job_01M7W1RE00000000000000000{}"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "2026-11-19T12:00:0{}.000Z"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "0123456789abcdef0123456789abcde{}"),
    (re.compile(r"\b01[0-9A-Z]{24}\b"), "r{}"),
)
"""What differs from run to run, and what stands for it."""

HELLO: Final = {
    "client": {"name": "my-client", "version": "1.0"},
    "auth": {"scheme": "bearer", "token": "s3cret"},
    "capabilities": {
        "encodings": ["json"],
        "features": ["ack", "list_jobs", "subscribe", "progress", "result_chunk", "agent_versions"],
    },
}


class Conversation:
    """Frames that are sent and received, with what differs from run to run replaced."""

    def __init__(self) -> None:
        self.frames: list[str] = []
        self._known: dict[str, str] = {}
        self._count: dict[str, int] = {}
        self._session: str | None = None

    def say(
        self,
        socket: ClientConnection,
        kind: str,
        payload: dict[str, Any],
        job_id: str | None = None,
        *,
        shown: bool = True,
    ) -> None:
        """Send a frame."""
        frame: dict[str, Any] = {"arcp": "1.1", "id": f"c{len(self.frames) + 1}", "type": kind}
        if self._session is not None and kind != "session.hello":
            frame["session_id"] = self._session
        if job_id is not None:
            frame["job_id"] = job_id
        frame["payload"] = payload
        socket.send(json.dumps(frame))
        self._note(frame, shown=shown)

    def hear(self, socket: ClientConnection, kind: str, *, shown: bool = True) -> dict[str, Any]:
        """Receive a frame of a type."""
        frame: dict[str, Any] = json.loads(socket.recv(timeout=FRAME_SECONDS))
        assert frame["type"] == kind, frame
        if kind == "session.welcome":
            self._session = frame["session_id"]
            token = frame["payload"]["resume_token"]
            self._known[token] = f"resume-token-{self._next('token')}"
        self._note(frame, shown=shown)
        return frame

    def _note(self, frame: dict[str, Any], *, shown: bool) -> None:
        text = json.dumps(frame, indent=2)
        for token in [each for each in self._known if each in text]:
            text = text.replace(token, self._known[token])
        for pattern, stand_in in _VOLATILE:
            text = pattern.sub(partial(self._stand_in, stand_in), text)
        if not shown:
            return
        self.frames.append(re.sub(r"\[\s+((?:\"[^\"]*\",?\s*)+)\]", _in_a_line, text))

    def _stand_in(self, form: str, found: re.Match[str]) -> str:
        value = found[0]
        if form.startswith("2026"):
            return form.format(0)  # the times of a run may be equal or not
        if value in self._known.values():
            return value
        if value not in self._known:
            self._known[value] = form.format(self._next(form))
        return self._known[value]

    def _next(self, form: str) -> int:
        self._count[form] = self._count.get(form, 0) + 1
        return self._count[form]


def _in_a_line(found: re.Match[str]) -> str:
    return f"[{' '.join(found[1].split())}]"


def recorded(url: str) -> list[str]:
    """Have the conversation of the document, and return its frames."""
    said = Conversation()
    with connect(url, compression=None) as socket:
        said.say(socket, "session.hello", HELLO)
        welcome = said.hear(socket, "session.welcome")
        submit = {"agent": "countdown", "input": {"n": 3, "delay": 0.5}, "idempotency_key": "k1"}
        said.say(socket, "job.submit", submit)
        job_id = said.hear(socket, "job.accepted")["job_id"]
        said.hear(socket, "job.event")
        said.say(socket, "session.ack", {"last_processed_seq": 1})
    resume = {
        "session_id": welcome["session_id"],
        "resume_token": welcome["payload"]["resume_token"],
        "last_event_seq": 1,
    }
    with connect(url, compression=None) as socket:
        said.say(socket, "session.hello", {**HELLO, "resume": resume})
        said.hear(socket, "session.welcome")
        for kind in ("job.event", "job.event", "job.result"):
            said.hear(socket, kind)
        said.say(socket, "job.submit", {"agent": "nobody"})
        said.hear(socket, "session.error")
        submit = {"agent": "countdown", "input": {"delay": 60}}
        said.say(socket, "job.submit", submit, shown=False)
        running = said.hear(socket, "job.accepted", shown=False)["job_id"]
        said.say(socket, "job.cancel", {"job_id": running, "reason": "no longer needed"}, running)
        said.hear(socket, "job.cancelled")
        said.hear(socket, "job.error")
        said.say(socket, "session.list_jobs", {"filter": {"status": ["success"]}})
        said.hear(socket, "session.jobs")
        said.say(socket, "session.close", {"reason": "done"})
        said.hear(socket, "session.closed")
    with connect(url, compression=None) as socket:
        said.say(socket, "session.hello", HELLO, shown=False)
        said.hear(socket, "session.welcome", shown=False)
        said.say(socket, "job.subscribe", {"job_id": job_id, "history": True}, job_id)
        said.hear(socket, "job.subscribed")
        said.hear(socket, "job.event")
    return said.frames


def record(folder: Path) -> list[str]:
    """Serve one agent, and have the conversation with it."""
    with starter(folder) as start:
        agent = "--agent=countdown=arcp_trio.cli.serve.demo:countdown"
        options = ("--port=0", "--memory", "--token=alice=s3cret", "--log-level=error", agent)
        return recorded(start("serve", *options).url())


@pytest.mark.real_tcp
def test_the_conversation_is_a_real_one(tmp_path: Path) -> None:
    """A real conversation has the frames that the document shows, in the same order."""
    assert BLOCK.findall(DOCUMENT.read_text(encoding="utf-8")) == [
        f"{frame}\n" for frame in record(tmp_path)
    ]


def main() -> None:
    """Write the frames of a real conversation into the document."""
    with tempfile.TemporaryDirectory() as folder:
        frames = iter(record(Path(folder)))
    text = BLOCK.sub(
        lambda _: f"```json\n{next(frames)}\n```", DOCUMENT.read_text(encoding="utf-8")
    )
    DOCUMENT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
