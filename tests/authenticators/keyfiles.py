"""Key sets in files."""

from __future__ import annotations

from pathlib import Path

from arcp_trio import JwtAuth
from tests.authenticators.issuer import AUDIENCE


def file_auth(path: Path, *algorithms: str) -> JwtAuth:
    """Return an authenticator that knows the keys in a file."""
    return JwtAuth(jwks=path, algorithms=algorithms or ["ES256"], audience=AUDIENCE)


def write(path: Path, content: bytes) -> None:
    """Write the file in place."""
    path.write_bytes(content)


def replace(path: Path, content: bytes | None) -> None:
    """Replace the file by another one, as an atomic write does, or remove it."""
    if content is None:
        path.unlink()
        return
    draft = path.with_suffix(".new")
    draft.write_bytes(content)
    draft.replace(path)
