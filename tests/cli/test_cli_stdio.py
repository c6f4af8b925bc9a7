"""`serve --stdio`: real processes, spoken to by hand, by our client and by the vendor's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from arcp_trio import Unauthenticated, connect
from tests.cli.processes import LIFETIME_SECONDS, ROOT
from tests.cli.stdio_program import HELLO, SERVE, environment, program

NOISY = """
import os, subprocess, sys
import arcp_trio

agents = arcp_trio.Agents()
print("printed while it is imported")

@agents.agent("noisy")
async def noisy(job):
    print("printed", flush=True)
    sys.__stdout__.write("written to the other one\\n")
    os.write(1, b"written to 1\\n")
    subprocess.run(["sh", "-c", "echo echoed; cat"], check=True)
    await job.log("é漢😀")
    print("left behind in a buffer", end="")
    return sys.stdin.read()
"""


@pytest.mark.spec("4-2")
def test_a_session(tmp_path: Path) -> None:
    """A session runs jobs, standard output has frames only, and the end of input ends it with 0."""
    with program(tmp_path, "--memory") as serve:
        serve.hello()
        accepted, result = serve.submit("echo", "é漢😀")
        assert accepted["type"] == "job.accepted"
        assert result["payload"]["result"] == {"echo": "é漢😀"}
        code, frames, err = serve.end()
    assert (code, frames) == (0, [])
    assert "Traceback" not in err
    assert "listening on" not in err


@pytest.mark.spec("1.0/4.2-1")
@pytest.mark.parametrize("how", [{"LC_ALL": "C"}, {"PYTHONIOENCODING": "latin1", "LANG": "C"}])
def test_only_frames_on_standard_output(tmp_path: Path, how: dict[str, str]) -> None:
    """Neither the log nor an agent writes to standard output; frames are UTF-8 in any locale."""
    (tmp_path / "noisy.py").write_text(NOISY, encoding="utf-8")
    arguments = ("--memory", "--agents", "noisy", "--log-level", "debug")
    with program(tmp_path, *arguments, more=how) as serve:
        serve.hello()
        frames = serve.submit("noisy")
        assert frames[1]["payload"]["body"]["message"] == "é漢😀"
        assert frames[-1]["payload"]["result"] == ""
        code, rest, err = serve.end()
    assert (code, rest) == (0, [])
    for words in ("while it is imported", "printed", "the other one", "written to 1", "echoed"):
        assert words in err
    assert "left behind in a buffer" in err
    assert "runtime started" in err


def test_lines_of_other_systems(tmp_path: Path) -> None:
    """Blank lines are skipped, and a line may end in CRLF."""
    with program(tmp_path, "--memory") as serve:
        serve.write(b"\n\r\n  \n")
        serve.send("session.hello", HELLO, end=b"\r\n\r\n")
        assert serve.receive()["type"] == "session.welcome"
        assert serve.submit("echo", 1)[-1]["payload"]["result"] == {"echo": 1}


@pytest.mark.parametrize("line", [b"garbage", b"\xff\xfe", b"[1]", b'{"arcp":"1.1"'])
def test_what_is_no_frame(tmp_path: Path, line: bytes) -> None:
    """A malformed line is refused, before the session and in it, and changes nothing."""
    with program(tmp_path, "--memory") as serve:
        for _ in range(2):
            serve.write(line + b"\n")
            refusal = serve.receive()
            assert refusal["type"] == "session.error"
            assert refusal["payload"]["code"] == "INVALID_REQUEST"
        serve.hello()
        serve.write(line + b"\n")
        assert serve.receive()["payload"]["code"] == "INVALID_REQUEST"
        assert serve.submit("echo", 1)[-1]["payload"]["result"] == {"echo": 1}


def test_large_frames(tmp_path: Path) -> None:
    """A line may be as large as any frame; a larger one is refused and ends the session."""
    with program(tmp_path, "--memory") as serve:
        serve.hello()
        text = "x" * 900_000
        assert serve.submit("echo", text)[-1]["payload"]["result"] == {"echo": text}
        serve.write(b'{"arcp":"' + b"x" * 4 * 1024 * 1024)
        refusal = serve.receive()
        assert refusal["payload"]["code"] == "INTERNAL_ERROR"
        assert refusal["payload"]["details"]["limit"] == "frame_bytes_in"
        code, frames, _ = serve.end(close=False)
    assert (code, frames) == (0, [])


def test_an_endless_line(tmp_path: Path) -> None:
    """A line without an end is refused before the session, too, and not kept."""
    with program(tmp_path, "--memory") as serve:
        serve.write(b"x" * 4 * 1024 * 1024 + b"x")
        assert serve.receive()["payload"]["details"]["limit"] == "first_frame_bytes"
        assert serve.end(close=False)[0] == 0


def test_a_wrong_token(tmp_path: Path) -> None:
    """The parent process needs a good token, too."""
    with program(tmp_path, "--memory", more={"ARCP_TOKENS": "alice=other"}) as serve:
        serve.send("session.hello", HELLO)
        assert serve.receive()["payload"]["code"] == "UNAUTHENTICATED"
        assert serve.end(close=False)[0] == 0


def test_a_token_that_is_made(tmp_path: Path) -> None:
    """The token that is made is shown on standard error and is accepted."""
    with program(tmp_path, "--memory", more={"ARCP_TOKENS": ""}) as serve:
        assert serve.process.stderr is not None
        line = b""
        while b"token for local: " not in line:
            line = serve.process.stderr.readline()
            assert line
        token = line.decode().partition("token for local: ")[2].strip()
        serve.send("session.hello", HELLO | {"auth": {"scheme": "bearer", "token": token}})
        assert serve.receive()["type"] == "session.welcome"


# -- clients


async def test_our_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client of this project starts the process by itself, and reports a wrong token."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("ARCP_TOKENS", "alice=tok")
    monkeypatch.chdir(tmp_path)
    with trio.fail_after(LIFETIME_SECONDS):
        async with connect([*SERVE, "--memory"], token="tok") as client:
            assert await (await client.submit("echo", 1)).result() == {"echo": 1}
            big = await client.submit("report", {"size": 1_000_000})
            assert len(str(await big.result())) == 1_000_000
            events = [event async for event in big.events()]
            assert max(len(event.body["data"]) for event in events) <= 32 * 1024
        with pytest.raises(Unauthenticated):
            async with connect([*SERVE, "--memory"], token="wrong"):
                pytest.fail("it connected")


def test_the_vendors_client(tmp_path: Path) -> None:
    """The vendor's Python SDK over the pipes of a process runs jobs, streamed results too."""
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("vendor_stdio_client.py"), *SERVE, "--memory"],
        cwd=tmp_path,
        env=environment({}),
        stdout=subprocess.PIPE,
        timeout=LIFETIME_SECONDS,
        check=True,
    )
    said = json.loads(done.stdout)
    assert said == {"echo": {"echo": {"text": "é漢😀"}}, "report": 1_000_000, "code": 0}
