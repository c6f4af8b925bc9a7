"""The page of the package: README.md, with links that lead somewhere from another place, too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE_LINK = re.compile(r"\[([^]]+)\]\((?![a-z]+:|#)([^)]+)\)")
PICTURE = re.compile(r"^!\[[^]]*\]\([^)]+\)\n\n", re.MULTILINE)


def page(readme: str, files: str) -> str:
    """Return the readme for readers who do not have the files beside it.

    With the address of the files, its links lead there. Without one, they are text that names the
    file, which is in the source distribution. Pictures are left out.
    """

    def link(found: re.Match[str]) -> str:
        text, path = found.groups()
        if files:
            return f"[{text}]({files}/{path})"
        return text if text == path else f"{text} ({path})"

    return RELATIVE_LINK.sub(link, PICTURE.sub("", readme))


def urls(files: str) -> dict[str, str]:
    """Return the addresses that the metadata of the package names."""
    if not files:
        return {}
    return {
        "Source": files,
        "Documentation": f"{files}/README.md",
        "Changelog": f"{files}/CHANGELOG.md",
    }


class PageHook(MetadataHookInterface):
    """Fills in the page and the addresses when the package is built."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `readme` and `urls`."""
        files = self.config["files"].rstrip("/")
        text = page(Path(self.root, "README.md").read_text(encoding="utf-8"), files)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = urls(files)
