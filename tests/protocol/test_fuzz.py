"""Thousands of mutated frames to one session, and as first frames."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest
from trio.testing import MockClock

from arcp_trio import Limits
from arcp_trio.testing import Peer, open_peer, open_peers
from arcp_trio.transport import TransportClosed
from arcp_trio.wire.json import Json, JsonObject
from tests.protocol.support import VALID
from tests.stage import make_runtime

FRAMES = 400
"""Frames in each run."""
PROBE = 20


ODD: list[Json] = [
    None,
    True,
    False,
    0,
    -1,
    1.5,
    2**63,
    -(2**63) - 1,
    10**400,
    float("nan"),
    float("-inf"),
    "",
    " ",
    "\ud800",
    "\u0000",
    "é" * 300,
    "x" * 5_000,
    "job_",
    "../..",
    [],
    {},
    [[]],
    [None],
    {"": None},
    {"a": {"b": {"c": []}}},
]


class Mutator:
    """Makes frames, each from a valid one by a few changes that its seed decides."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def frame(self, valid: list[tuple[str, JsonObject]]) -> str | bytes:
        """Return the next frame, with changed values and perhaps a changed text."""
        chance = self._random
        kind, payload = chance.choice(valid)
        frame: JsonObject = json.loads(json.dumps({"payload": payload}))
        frame |= {"arcp": "1.1", "id": f"frame {chance.random()}", "type": kind}
        for _ in range(chance.choice((0, 1, 1, 1, 2, 4))):
            self._change_value(frame)
        text = json.dumps(frame, ensure_ascii=chance.random() < 0.9)
        for _ in range(chance.choice((0, 0, 0, 0, 0, 0, 1, 3))):
            text = self._change_text(text)
        # A text frame has to be Unicode, so lone surrogates go into binary frames.
        return text if chance.random() < 0.95 and _sendable(text) else text.encode(errors="replace")

    def _change_value(self, frame: JsonObject) -> None:
        """Replace, drop, double or wrap something at some depth."""
        chance = self._random
        within: Json = frame
        while True:
            steps = list(within) if isinstance(within, dict) else list(range(len(within)))
            if not steps:
                return
            step = chance.choice(steps)
            if isinstance(within[step], dict | list) and chance.random() < 0.7:
                within = within[step]
                continue
            break
        changes: list[Callable[[], object]] = [
            lambda: within.__setitem__(step, chance.choice(ODD)),
            lambda: within.__setitem__(step, [within[step]]),
            lambda: within.__setitem__(step, {"value": within[step]}),
            lambda: within.__setitem__(step, str(within[step])),
            lambda: within.__delitem__(step),
        ]
        if isinstance(within, dict):
            changes.append(lambda: within.__setitem__(f"{step}x", within[step]))
        chance.choice(changes)()

    def _change_text(self, text: str) -> str:
        """Cut or repeat a part, or insert text that JSON does not allow."""
        chance = self._random
        at = chance.randrange(len(text) + 1)
        end = min(len(text), at + chance.randrange(8))
        middle = chance.choice(
            ("", text[at:end] * 2, '"', "\\", "{", "}", "[", "]", ",", ":", "\\ud800", "\x00", "é")
        )
        return chance.choice((text[:at] + middle + text[end:], text[:at]))


def _sendable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


async def probe(peer: Peer, label: str) -> None:
    """Check that the session answers in order, reading everything that came before."""
    job = await peer.submit("echo", label)
    end = await peer.until_terminal(job["job_id"])
    assert end["payload"]["result"] == label


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.spec("12-5", "5-2", "8.3-1")
async def test_a_session_minds_no_frame(seed: int, autojump_clock: MockClock) -> None:
    """Between two good submits a session gets only valid answers to mutated frames."""
    limits = {"malformed_frames": 2 * FRAMES, "jobs_per_principal": 2 * FRAMES}
    mutator = Mutator(seed)
    async with make_runtime(limits=Limits(**limits)) as runtime, open_peer(runtime) as peer:
        await peer.hello()
        running = (await peer.submit("sleeper"))["job_id"]
        for n in range(FRAMES):
            await peer.send_raw(mutator.frame(VALID))
            if n % PROBE == 0:
                await probe(peer, f"probe {n}")
        await probe(peer, "last")
        answered = [f["payload"].get("request_id", "") for f in peer.seen]
        answered = [request for request in answered if len(request) > len("frame 0.123456")]
        assert len(answered) == len(set(answered)) > FRAMES // 4
        codes = {f["payload"]["code"] for f in peer.seen if f["type"] == "session.error"}
        assert "INVALID_REQUEST" in codes
        assert "INTERNAL_ERROR" not in codes
        await peer.send("job.cancel", {"job_id": running})
        assert (await peer.until_terminal(running))["payload"]["code"] == "CANCELLED"
        await peer.send("session.close")
        await peer.expect("session.closed")


HELLOS: list[tuple[str, JsonObject]] = [
    (
        "session.hello",
        {
            "client": {"name": "c", "version": "1"},
            "auth": {"scheme": "bearer", "token": "test-token"},
            "capabilities": {"encodings": ["json"], "features": ["heartbeat", "ack"]},
            "resume": {"session_id": "sess_x", "resume_token": "rt_x", "last_event_seq": 1},
        },
    ),
    (
        "session.hello",
        {"client": {"name": "c"}, "auth": {"token": "test-token"}, "resume_token": "rt_x"},
    ),
    ("session.hello", {"client": {"name": "c"}, "auth": {"token": "test-token"}}),
    ("session.resume", {"resume_token": "rt_x", "last_event_seq": 0}),
    *VALID,
]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.spec("6.1-1", "12-6")
async def test_a_runtime_minds_no_first_frame(seed: int, autojump_clock: MockClock) -> None:
    """Each mutated first frame is welcomed, or refused with a reason and a Close."""
    mutator = Mutator(1_000 + seed)
    async with (
        make_runtime(limits=Limits(handshake_seconds=5)) as runtime,
        open_peers(runtime) as peers,
    ):
        witness = await peers.connect()
        await witness.hello()
        for n in range(200):
            peer = await peers.connect()
            await peer.send_raw(mutator.frame(HELLOS))
            answer = await peer.receive()
            assert answer["type"] in {"session.welcome", "session.error"}
            if answer["type"] == "session.error":
                with pytest.raises(TransportClosed) as closed:
                    await peer.receive()
                assert closed.value.code == 1008
            await peer.drop()
            if n % PROBE == 0:
                await probe(witness, f"probe {n}")
