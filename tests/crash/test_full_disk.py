"""The real server on a full disk: what its clients are told, and how it recovers."""

from __future__ import annotations

import itertools
import resource
import signal
import time
from pathlib import Path
from typing import Final

import pytest
from websockets.exceptions import ConnectionClosed

from tests.cli.processes import Peer, peer, starter

pytestmark = pytest.mark.real_tcp

STEPS: Final = 20

RECOVERY_SECONDS: Final = 30.0


def set_largest_file(process: int, size: int) -> None:
    """Limit the size of files that a process may write."""
    _, hard = resource.prlimit(process, resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (size, hard))


def test_work_waits_for_the_disk_and_goes_on_by_itself(tmp_path: Path) -> None:
    """On a full disk clients are told and submits refused; with room again, work goes on."""
    with starter(tmp_path) as start:
        agents = ("--agents=tests.crash.agents", "--demo-agents")
        served = start("serve", "--port=0", "--token=alice=x", *agents)
        url = served.url()
        with peer(url, "x") as idle:
            with peer(url, "x") as busy:
                busy.submit("gated", STEPS)
                busy.receive()
                set_largest_file(served.process.pid, 0)
                (tmp_path / "go on").touch()
                seen, error = until_told(busy)
            assert_worth_a_retry(error)
            served.line("store in trouble, everything waits for it")
            assert_worth_a_retry(idle.submit("echo", 1))

            set_largest_file(served.process.pid, resource.RLIM_INFINITY)
            began = time.monotonic()
            served.line("store works again")
            assert idle.submit("echo", 1)["type"] == "job.accepted"
            assert time.monotonic() - began < RECOVERY_SECONDS
            with peer(url, "x", busy.resume_from(seen)) as again:
                rest = again.until_terminal()
        assert [frame["event_seq"] for frame in rest] == list(range(seen + 1, STEPS + 2))
        steps = [frame["payload"]["body"]["current"] for frame in rest[:-1]]
        assert steps == list(range(seen + 1, STEPS + 1))
        assert rest[-1]["type"] == "job.result"
        served.send_signal(signal.SIGTERM)
        code, _, err = served.end()
        assert code == 0
        assert ("".join(served.said) + err).count("in trouble") == 1


def until_told(session: Peer) -> tuple[int, dict[str, object]]:
    """Read to the close; return the last number and the last error."""
    frames: list[dict[str, object]] = []
    with pytest.raises(ConnectionClosed) as closed:
        frames.extend(session.receive() for _ in itertools.count())
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1011
    (error,) = [frame for frame in frames if frame["type"] == "session.error"]
    return max([1, *[int(str(f["event_seq"])) for f in frames if "event_seq" in f]]), error


def assert_worth_a_retry(answer: dict[str, object]) -> None:
    """Check that an error is retryable."""
    assert answer["type"] == "session.error", answer
    payload = answer["payload"]
    assert isinstance(payload, dict)
    assert (payload["code"], payload["retryable"]) == ("INTERNAL_ERROR", True)
