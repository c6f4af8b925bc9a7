"""The files of the console, the page at `/`: read once, from the package, and the same for all."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

import attrs

from arcp_trio.front.pages import Page, not_allowed
from arcp_trio.front.request import Head

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".ts": "application/typescript; charset=utf-8",
}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = (
    ("Content-Security-Policy", _POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
)


@attrs.frozen
class Console:
    """The console's files by their paths. They hold nothing: all that they show needs a token."""

    _pages: Mapping[str, Page]

    @classmethod
    def load(cls) -> Console:
        """Read the files of the package."""
        pages: dict[str, Page] = {}
        for file in files("arcp_trio").joinpath("console").iterdir():
            kind = _TYPES.get("." + file.name.rpartition(".")[2])
            if kind is not None:
                path = "/" if file.name == "index.html" else f"/{file.name}"
                pages[path] = _page(file.read_text(encoding="utf-8"), kind)
        return cls(pages)

    def page_for(self, head: Head) -> Page | None:
        """Return the answer to a request for one of the files; None for any other path."""
        page = self._pages.get(head.path)
        if page is None:
            return None
        if head.method not in ("GET", "HEAD"):
            return not_allowed("GET, HEAD")
        if head.origin is not None:  # of a page that may connect, and so may have the client
            allowed = (("Access-Control-Allow-Origin", head.origin), ("Vary", "Origin"))
            page = attrs.evolve(page, headers=(*page.headers, *allowed))
        known = {tag.strip().removeprefix("W/") for tag in head.if_none_match.split(",")}
        if dict(page.headers)["ETag"] in known:
            return attrs.evolve(page, status=304, text="")
        return page


def _page(text: str, kind: str) -> Page:
    tag = f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'
    headers = (("ETag", tag), *_HEADERS)
    return Page(200, text, headers=headers, type=kind, cache="no-cache")
