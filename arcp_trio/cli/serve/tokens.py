"""The tokens that `serve` accepts: those that are given, or else one that is made once and kept."""

from __future__ import annotations

import logging
import os
import secrets
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

from arcp_trio.cli.data_folder import key_path, token_path
from arcp_trio.cli.errors import CommandError, reason
from arcp_trio.cli.serve.config import ReadFile
from arcp_trio.cli.serve.options import TOKENS_VARIABLE, ServeOptions
from arcp_trio.plainfile import NotPlain, open_plain
from arcp_trio.runtime.views import LEAST_KEY_BYTES
from arcp_trio.wire.ids import is_sha256, token_digest

LOCAL: Final = "local"
"""The principal of the token that `serve` makes."""

_HASHED: Final = "sha256:"
_OWNER_ONLY: Final = 0o600
_OWNER_ONLY_FOLDER: Final = 0o700
_OTHERS: Final = 0o077
_OTHERS_WRITE: Final = 0o022
_SHORT: Final = 16
"""Characters; 16 that a generator makes cannot be guessed."""

log = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class Tokens:
    """The tokens that are accepted."""

    principals: Mapping[str, str]
    """The principal of each token, by the digest of the token in hexadecimal."""
    short: tuple[str, ...] = ()
    """The principals whose tokens are short enough to be guessed."""
    made: str | None = attrs.field(default=None, repr=False)
    """The token that was made, which has to be shown; None if tokens were given."""


def gather(
    options: ServeOptions,
    environment: Mapping[str, str],
    *,
    made: str | None = None,
    read: ReadFile = Path.read_bytes,
) -> Tokens:
    """Return the tokens of all sources or, without any source, the token that is made.

    Args:
        made: the token that was made before; with --memory it is kept nowhere else.
    """
    return given_tokens(options, environment, read) or make_token(options, made)


def given_tokens(
    options: ServeOptions, environment: Mapping[str, str], read: ReadFile = Path.read_bytes
) -> Tokens | None:
    """Return the tokens of all sources, or None if a token has to be made.

    No token is made beside --jwt-keys, where signed tokens are accepted.

    Raises:
        CommandError: a source cannot be read, or has a mistake in it.
    """
    principals: dict[str, str] = {}
    short: dict[str, None] = {}
    for where, text in _given(options, environment, read):
        principal, token = parse_token(text, where)
        if len(token) < _SHORT:
            short[principal] = None
        digest = _digest_of(token, where)
        if principals.setdefault(digest, principal) != principal:
            raise CommandError(
                f"{where}: {principal} has the same token as {principals[digest]}; "
                "give each principal its own"
            )
    if principals or options.jwt_keys is not None:
        return Tokens(principals=principals, short=tuple(short))
    if options.token_file is not None:
        # The file may be in the middle of being rewritten. A token that is made would replace the
        # tokens of all principals in it.
        raise CommandError(f"the token file {options.token_file} has no token in it; add one")
    return None


def make_token(options: ServeOptions, made: str | None = None) -> Tokens:
    """Return the token that was made before, or a new one, which is kept if there is a folder.

    Raises:
        CommandError: the token cannot be kept, or other nodes would not take it.
    """
    if options.store is not None:
        raise CommandError(
            "nodes that share a store take the same tokens, so none is made here: give every node"
            f" the same --token, --token-file or {TOKENS_VARIABLE}"
        )
    if options.folder is not None:
        made = kept_token(options.folder)
    elif made is None:
        made = _new_token()
    return Tokens(principals={_digest(made): LOCAL}, made=made)


# -- tokens that are given


def _given(
    options: ServeOptions, environment: Mapping[str, str], read: ReadFile
) -> Iterator[tuple[str, str]]:
    """Yield each item and, before it, where it was found."""
    yield from _numbered("--token", options.token)
    listed = environment.get(TOKENS_VARIABLE, "").split(",")
    yield from _numbered(TOKENS_VARIABLE, (item for item in listed if item))
    if options.token_file is not None:
        yield from _file_lines(Path(options.token_file), read)


def _numbered(source: str, items: Iterable[str]) -> Iterator[tuple[str, str]]:
    for number, item in enumerate(items, start=1):
        yield f"{source} number {number}", item


def _file_lines(path: Path, read: ReadFile) -> Iterator[tuple[str, str]]:
    try:
        _check_not_writable(path)
        lines = read(path).decode().splitlines()
    except OSError as error:
        raise CommandError(f"cannot read the token file {path}: {reason(error)}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"the token file {path} is not UTF-8 text") from error
    for number, line in enumerate(map(str.strip, lines), start=1):
        if line and not line.startswith("#"):
            yield f"{path} line {number}", line


def _check_not_writable(path: Path) -> None:
    """Refuse a file that others may write: they could give themselves any principal."""
    facts = path.stat()
    if stat.S_ISREG(facts.st_mode) and stat.S_IMODE(facts.st_mode) & _OTHERS_WRITE:
        raise CommandError(
            f"the token file {path} can be written by other users; use chmod go-w {path}"
        )


def parse_token(text: str, where: str) -> tuple[str, str]:
    """Return the two parts of `principal=token`.

    Raises:
        CommandError: the text has another form. The message has `where` and not the text, which
            may be a secret.
    """
    principal, equals, token = text.partition("=")
    if not equals:
        problem = "has no '='"
    elif not principal:
        problem = "has no principal before the '='"
    elif not token:
        problem = "has no token after the '='"
    elif not (_is_word(principal) and _is_word(token)):
        problem = "has whitespace or an unprintable character in it"
    else:
        return principal, token
    raise CommandError(f"{where} {problem}; write principal=token")


def _digest_of(token: str, where: str) -> str:
    """Return the digest of a token, which may be given as its digest."""
    prefix, colon, digest = token.partition(":")
    if prefix + colon != _HASHED:
        return _digest(token)
    if not is_sha256(digest):
        raise CommandError(
            f"{where} is not the SHA-256 of a token; write {_HASHED} and 64 digits 0-9a-f"
        )
    return digest.lower()


def _digest(token: str) -> str:
    return token_digest(token).hex()


def _is_word(text: str) -> bool:
    # str.isprintable accepts the space, and no other whitespace.
    return bool(text) and text.isprintable() and " " not in text


# -- the token that is made


def _new_token() -> str:
    return secrets.token_urlsafe(32)


def kept_token(folder: str | Path) -> str:
    """Return the token that is kept in the folder; make one if the folder has no token.

    Raises:
        CommandError: the token cannot be kept, or what is there is not a token.
    """
    return _kept_secret(token_path(folder), "token", advice=", or give a --token")


def kept_key(folder: str | Path) -> bytes:
    """Return the key for short-lived tokens that is kept in the folder; make one if it has no key.

    Raises:
        CommandError: the key cannot be kept, or what is there is not a key.
    """
    key = _kept_secret(key_path(folder), "key").encode()
    if len(key) < LEAST_KEY_BYTES:
        raise CommandError(f"{key_path(folder)} is too short; delete it, and a new key is made")
    return key


def _kept_secret(path: Path, what: str, *, advice: str = "") -> str:
    try:
        if not path.exists():
            _keep(_new_token(), path)
        return _read_kept(path, what, advice)
    except NotPlain as error:
        raise CommandError(
            f"{path} is {reason(error)}; move it away, and a new {what} is made"
        ) from error
    except OSError as error:
        raise CommandError(
            f"cannot keep a {what} in {path}: {reason(error)}; "
            f"choose another --data, or --memory{advice}"
        ) from error


def _keep(token: str, path: Path) -> None:
    """Write the whole file or nothing; if the file exists by then, leave it as it is."""
    path.parent.mkdir(mode=_OWNER_ONLY_FOLDER, parents=True, exist_ok=True)
    # A temporary file has the mode 0600. A link, unlike a rename, does not replace a file that
    # another process has made at the same time.
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".token-") as draft:
        draft.write(token + "\n")
        draft.flush()
        os.fsync(draft.fileno())
        with suppress(FileExistsError):
            os.link(draft.name, path)


def _read_kept(path: Path, what: str, advice: str) -> str:
    with open_plain(path) as file:
        facts = os.fstat(file.fileno())
        if facts.st_uid != os.geteuid():
            raise CommandError(
                f"{path} belongs to another user, who knows the {what}; "
                f"choose another --data{advice}"
            )
        if stat.S_IMODE(facts.st_mode) & _OTHERS:
            os.fchmod(file.fileno(), _OWNER_ONLY)
            warning = f"{what} was open to others: delete it for a new one"
            log.warning(warning, extra={"path": str(path)})
        text = file.read().decode("utf-8", "replace").strip()
    if not _is_word(text) or not text.isascii():
        raise CommandError(f"{path} does not hold a {what}; delete it, and a new one is made")
    return text
