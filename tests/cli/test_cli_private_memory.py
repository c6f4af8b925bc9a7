"""What a program that `serve` starts can see of `serve` itself."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from tests.cli.processes import Starter, peer

PROGRAM = """
import os
import arcp_trio

agents = arcp_trio.Agents()

@agents.agent("peek")
async def peek(job):
    found = {}
    for name in ("environ", "mem", "maps"):
        try:
            with open(f"/proc/{os.getppid()}/{name}", "rb") as file:
                found[name] = name == "mem" or bool(file.read())
        except OSError as error:
            found[name] = error.strerror
    return found
"""
FILES = ("environ", "mem", "maps")
DENIED = "Permission denied"

pytestmark = [
    pytest.mark.real_tcp,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc"),
]


def test_programs_cannot_look_into_their_parent(start: Starter, tmp_path: Path) -> None:
    """A `stdio:` program reads neither the environment nor the memory of `serve`."""
    (tmp_path / "peeking.py").write_text(PROGRAM)
    program = [sys.executable, "-m", "arcp_trio", "serve", "--stdio", "--memory"]
    command = shlex.join([*program, "--agents", "peeking"])
    served = start(
        *("serve", "--memory", "--port", "0", "--token", "me=s3cret"),
        *("--agent", f"peek=stdio:{command}"),
        program=("tests.cli.without_privileges",),
    )
    with peer(served.url(), "s3cret") as client:
        result = client.run("peek")[-1]
        assert result["payload"].get("result") == dict.fromkeys(FILES, DENIED), result
