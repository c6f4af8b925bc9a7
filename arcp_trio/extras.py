"""What to install for the parts of the package that need more than its own dependencies."""

from __future__ import annotations

import shlex
import sys
from importlib import metadata


def how_to_install(extra: str) -> str:
    """Return the command that installs what an extra names.

    It names the packages of the extra, and so is right however this package was installed: from a
    folder, from a file, or from an index.
    """
    try:
        declared = metadata.requires("arcp-trio") or []
    except metadata.PackageNotFoundError:
        declared = []
    wanted: list[str] = []
    for requirement in declared:
        package, _, condition = requirement.partition(";")
        if condition.split() in (["extra", "==", f"'{extra}'"], ["extra", "==", f'"{extra}"']):
            wanted.append(package.strip())
    if not wanted:  # the package is not installed, but found on the path
        return f"install what the extra {extra} of arcp-trio names"
    return shlex.join([sys.executable, "-m", "pip", "install", *wanted])
