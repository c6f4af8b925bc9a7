"""One conversation with a real server, frame by frame, as docs/wire.md shows it.

`python -m tests.documents.conversation` has the conversation and writes its frames into the
document. Ids, tokens and times are told apart, and each is replaced by one of the same form, so
that two conversations that only differ in them are the same.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from websockets.sync.client import ClientConnection, connect

from tests.cli.processes import FRAME_SECONDS, ROOT, starter

DOCUMENT: Final = ROOT / "docs/wire.md"
BLOCK: Final = re.compile(r"^```\n((?:[→←] .*\n)+)^```$", re.MULTILINE)
"""Frames in the document: those of the client after →, those of the runtime after ←."""

_FEATURES: Final = ["ack", "heartbeat", "list_jobs", "progress", "subscribe"]
_ID: Final = re.compile(r"\b((?:[a-z]+_)?)[0-9A-HJKMNP-TV-Z]{26}\b")
_TOKEN: Final = re.compile(r"\brt_[0-9A-Za-z_-]{20,}")
_TRACE: Final = re.compile(r'(?<="trace_id":")[0-9a-f]{32}')
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


class Conversation:
    """What a client and a runtime say to each other, over one connection after the other."""

    def __init__(self, url: str) -> None:
        self.parts: list[list[str]] = []
        """Lines of frames, by the blocks of the document."""
        self._url = url
        self._sent = 0
        self._socket: ClientConnection

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Have one connection for the block."""
        with connect(self._url, compression=None) as self._socket:
            yield

    def part(self) -> None:
        """Begin another block."""
        self.parts.append([])

    def say(self, type_: str, payload: object, **more: object) -> None:
        """Send a frame."""
        self._sent += 1
        frame = {"arcp": "1.1", "id": f"c{self._sent}", "type": type_, **more, "payload": payload}
        text = json.dumps(frame, separators=(",", ":"))
        self._socket.send(text)
        self.parts[-1].append(f"→ {text}")

    def hear(self) -> dict[str, Any]:
        """Receive a frame."""
        text = self._socket.recv(timeout=FRAME_SECONDS)
        assert isinstance(text, str)
        self.parts[-1].append(f"← {text}")
        frame: dict[str, Any] = json.loads(text)
        return frame

    def hear_until(self, *types: str) -> dict[str, Any]:
        """Receive frames up to one of these types."""
        while (frame := self.hear())["type"] not in types:
            pass
        return frame


def converse(url: str) -> list[str]:
    """Have the conversation, and return the text of its blocks."""
    talk = Conversation(url)
    hello: dict[str, object] = {
        "client": {"name": "by-hand", "version": "1"},
        "auth": {"scheme": "bearer", "token": "s3cret"},
        "capabilities": {"encodings": ["json"], "features": _FEATURES},
    }
    with talk.connected():
        talk.part()
        talk.say("session.hello", hello)
        welcome = talk.hear()
        session = {"session_id": welcome["session_id"]}
        talk.part()
        count = {"n": 4, "delay": 0.2}
        talk.say(
            "job.submit",
            {"agent": "countdown", "input": count, "idempotency_key": "count-1"},
            **session,
        )
        talk.hear()
        talk.part()
        talk.hear()
        talk.hear()
    resume = {
        **session,
        "resume_token": welcome["payload"]["resume_token"],
        "last_event_seq": 2,
    }
    with talk.connected():
        talk.part()
        talk.say("session.hello", {**hello, "resume": resume})
        talk.hear()
        talk.hear_until("job.result")
        talk.part()
        talk.say("session.ack", {"last_processed_seq": 5}, **session)
        talk.say("session.list_jobs", {"limit": 10}, **session)
        talk.hear()
        talk.part()
        talk.say("job.submit", {"agent": "sleeper", "input": {}}, **session)
        slept = talk.hear()["payload"]["job_id"]
        talk.say("job.cancel", {"job_id": slept, "reason": "no longer needed"}, **session)
        talk.hear_until("job.error")
        talk.part()
        talk.say("job.submit", {"agent": "nobody"}, **session)
        talk.hear()
        talk.part()
        talk.say("session.ping", {"nonce": "p1", "sent_at": "2026-01-01T00:00:00.000Z"}, **session)
        talk.hear()
        talk.part()
        talk.say("session.close", {"reason": "done"}, **session)
        talk.hear()
    return _alike(["".join(f"{line}\n" for line in part) for part in talk.parts])


def _alike(parts: list[str]) -> list[str]:
    """Replace what differs from one conversation to the next."""
    names: dict[str, str] = {}

    def name(found: re.Match[str], form: str) -> str:
        return names.setdefault(found[0], form.format(len(names) + 1))

    text = "\0".join(parts)
    text = _TOKEN.sub(lambda found: name(found, "rt_example{:034}"), text)
    text = _ID.sub(lambda found: name(found, found[1] + "01KA{:022}"), text)
    text = _TRACE.sub(lambda found: name(found, "{:032x}"), text)
    text = _TIME.sub("2026-01-01T00:00:00.000Z", text)
    return text.split("\0")


def have_conversation(folder: Path) -> list[str]:
    """Run a server in a folder, and have the conversation with it."""
    with starter(folder) as start:
        served = start("serve", "--memory", "--port=0", "--token=alice=s3cret")
        return converse(served.url())


def main() -> None:
    """Write the frames into the document."""
    with tempfile.TemporaryDirectory() as folder:
        parts = iter(have_conversation(Path(folder)))
    document = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(BLOCK.sub(lambda _: f"```\n{next(parts)}```", document), encoding="utf-8")
    assert next(parts, None) is None, "the document has fewer blocks than the conversation"


if __name__ == "__main__":
    main()
