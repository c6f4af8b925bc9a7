"""A program that gives up its privileges, if it has any, and builds a sandbox."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import trio

from arcp_trio.sandbox.opening import OpenFolder
from tests.sandbox.inside import Inside

NOBODY = 65534


def main() -> None:
    """Write to one folder, and not to another."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("a", "b"):
            Path(folder, name).mkdir()
        lease = {"fs.read": [f"{folder}/**"], "fs.write": [f"{folder}/a/**"]}
        script = "touch a/x && echo writes; touch b/x 2>/dev/null || echo reads only"
        inside = Inside(lease=lease, cwd=folder)
        print(trio.run(inside.run, script), end="")  # noqa: T201
        print(trio.run(edited, inside, f"{folder}/b"), end="")  # noqa: T201


async def edited(inside: Inside, folder: str) -> str:
    """Return what a file has that is put into a folder that can only be read, and what is there."""
    script = f"read go; cd {folder}; echo replaced > t; mv t x; echo done; read go; echo late > x"
    async with inside.started("sh", "-c", script) as process:
        assert process.sandbox is not None
        assert process.stdin is not None
        opened = await OpenFolder.open(process.sandbox, folder, "x")
        await opened.add("x")
        await process.stdin.send_all(b"go\n")
        assert await process.stdout.receive_some() == b"done\n"
        data = await opened.read("x") or b""
        others = await opened.close()
        await process.stdin.send_all(b"go\n")
        refusal = b"".join([part async for part in process.stdout]).decode()
    assert "Read-only" in refusal
    return f"{data.decode()}{others}{os.listdir(folder)}\n"  # noqa: PTH208


if os.getuid() == 0:
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
# A Python that root has for itself cannot be started again, as entering a network needs.
found = [each for each in (sys.executable, "/usr/bin/python3") if os.access(each, os.X_OK)]
if found:
    sys.executable = found[0]
    main()
else:
    print("no Python for nobody")  # noqa: T201
