"""A program that gives up its privileges, if it has any, and builds a sandbox."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import trio

from tests.sandbox.inside import Inside

NOBODY = 65534


def main() -> None:
    """Write to one folder, and not to another."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("a", "b"):
            Path(folder, name).mkdir()
        lease = {"fs.read": [f"{folder}/**"], "fs.write": [f"{folder}/a/**"]}
        script = "touch a/x && echo writes; touch b/x 2>/dev/null || echo reads only"
        print(trio.run(Inside(lease=lease, cwd=folder).run, script), end="")  # noqa: T201


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
