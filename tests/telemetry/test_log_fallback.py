"""What a program sees of the log that has set up no logging."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.processes import LIFETIME_SECONDS, ROOT

PROGRAM = """
import logging, sys
import trio
import arcp_trio
from arcp_trio.testing import open_pair, open_peers

{set_up}

async def main():
    runtime = arcp_trio.Runtime(auth=arcp_trio.StaticTokens({{"s3cret": "alice"}}))

    @runtime.agent("broken")
    async def broken(job):
        raise ValueError("a defect")

    async with runtime:
        async with open_pair(runtime, token="s3cret") as client:
            job = await client.submit("broken")
            try:
                await job.result()
            except arcp_trio.ArcpError:
                print(job.id)
        try:
            async with open_pair(runtime, token="wrong"):
                pass
        except arcp_trio.Unauthenticated:
            pass

trio.run(main)
"""

CLOSING = """
import io
log, before = logging.getLogger("arcp_trio.program"), sys.stderr
buffer = io.TextIOWrapper(io.BytesIO())
sys.stderr = buffer
log.warning("kept")
sys.stderr = before
{closed}.close()
log.warning("said once more")
"""
"""Closes a stream to which the log was written."""


def run(set_up: str = "") -> tuple[str, str]:
    """Run the program with this line in it; return its job's id and its standard error."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(set_up=set_up)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=LIFETIME_SECONDS,
    )
    return done.stdout.strip(), done.stderr


def test_faults_say_which_job_and_why() -> None:
    """Without any logging set up, a fault and a refusal are written with what is known of them."""
    job_id, err = run()
    assert f"agent failed job_id={job_id} agent=broken@1.0.0 principal=alice" in err
    assert "  | ValueError: a defect\n" in err
    assert "session refused peer=memory code=UNAUTHENTICATED error=" in err
    assert "job ended" not in err


@pytest.mark.parametrize(
    "set_up",
    [
        'logging.basicConfig(format="mine: %(message)s", level="INFO")',
        'logging.getLogger("arcp_trio").addHandler(logging.StreamHandler())',
    ],
)
def test_a_program_with_logging_decides(set_up: str) -> None:
    """Where the program has set up logging, each line is written by its handlers alone."""
    _, err = run(set_up)
    assert err.count("agent failed") == 1
    assert "job_id=" not in err


def test_a_program_may_silence_it() -> None:
    """A handler that writes nothing, or a level, is respected."""
    assert run('logging.getLogger("arcp_trio").addHandler(logging.NullHandler())')[1] == ""
    assert run('logging.getLogger("arcp_trio").setLevel(logging.CRITICAL)')[1] == ""


@pytest.mark.parametrize("closed", ["buffer", "sys.stderr"])
def test_a_closed_standard_error_harms_nobody(closed: str) -> None:
    """A warning raises nothing if standard error is closed, or was replaced since the last one."""
    job_id, _ = run(CLOSING.format(closed=closed))
    assert job_id.startswith("job_")
