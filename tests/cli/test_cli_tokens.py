"""Where the tokens of `serve` come from."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arcp_trio.cli.errors import CommandError
from arcp_trio.cli.serve.admission import Admission
from arcp_trio.cli.serve.options import ServeOptions
from arcp_trio.cli.serve.tokens import gather, kept_key, kept_token, parse_token
from arcp_trio.log_lines import TextFormatter

SECRET = "hush-hush"


def mode(path: Path) -> int:
    """Return the permission bits of a file."""
    return stat.S_IMODE(path.stat().st_mode)


def hashed(principals: dict[str, str]) -> dict[str, str]:
    """Return the principals by the digests of their tokens."""
    return {hash_of(token): principal for token, principal in principals.items()}


def hash_of(token: str) -> str:
    """Return what `printf %s TOKEN | sha256sum` prints."""
    return hashlib.sha256(token.encode()).hexdigest()


def test_every_source_counts(tmp_path: Path) -> None:
    """Tokens of the options, the environment and the file are accepted together."""
    listed = tmp_path / "tokens"
    listed.write_text("# people\n\n  carol=t3  \r\n#dave=no\nerin=a=b==\n", encoding="utf-8")
    options = ServeOptions(token=("alice=t1", "alice=t1b"), token_file=str(listed))
    tokens = gather(options, {"ARCP_TOKENS": "bob=t2,frank=t4,"})
    assert tokens.principals == hashed(
        {
            "t1": "alice",
            "t1b": "alice",
            "t2": "bob",
            "t4": "frank",
            "t3": "carol",
            "a=b==": "erin",
        }
    )
    assert tokens.made is None
    assert "t1" not in repr(tokens)


def test_given_tokens_leave_the_disk_alone(tmp_path: Path) -> None:
    """With a token given, none is made, and no folder."""
    gather(ServeOptions(token=("alice=x",), data=str(tmp_path / "data")), {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        f"={SECRET}",
        "alice=",
        f"alice={SECRET} ",
        f"alice= {SECRET}",
        f"alice {SECRET}={SECRET}",
        f"alice={SECRET}\t",
        f"alice={SECRET}\x00",
        f"alice={SECRET}\udc80",
        "=",
        "",
    ],
)
def test_bad_syntax_is_refused_without_the_token(text: str) -> None:
    """The message says where the item is, and does not repeat the item."""
    with pytest.raises(CommandError) as caught:
        parse_token(text, "--token number 3")
    assert str(caught.value).startswith("--token number 3 ")
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.text())
def test_what_is_read_is_what_was_written(text: str) -> None:
    """Any text either splits at its first = into two words, or is refused."""
    try:
        principal, token = parse_token(text, "here")
    except CommandError:
        return
    assert f"{principal}={token}" == text
    assert "=" not in principal
    assert principal.split() == [principal]
    assert token.split() == [token]


def test_the_line_of_a_file_is_named(tmp_path: Path) -> None:
    """The message about a bad line has its number."""
    listed = tmp_path / "tokens"
    listed.write_text(f"# one\nalice=x\n{SECRET}\n", encoding="utf-8")
    with pytest.raises(CommandError, match=r"tokens line 3 has no '='"):
        gather(ServeOptions(token_file=str(listed)), {})


def test_one_token_is_one_principal() -> None:
    """Two principals with the same token are refused; the same pair twice is not."""
    assert gather(ServeOptions(token=("a=x", "a=x")), {}).principals == hashed({"x": "a"})
    with pytest.raises(CommandError, match="b has the same token as a") as caught:
        gather(ServeOptions(token=(f"a={SECRET}",)), {"ARCP_TOKENS": f"b={SECRET}"})
    assert SECRET not in str(caught.value)


def test_a_token_may_be_given_by_its_hash(tmp_path: Path) -> None:
    """In any source, sha256: and 64 digits stand for the token with this digest."""
    listed = tmp_path / "tokens"
    listed.write_text(f"carol=sha256:{hash_of('t3').upper()}\n", encoding="utf-8")
    options = ServeOptions(token=(f"alice=sha256:{hash_of('t1')}",), token_file=str(listed))
    tokens = gather(options, {"ARCP_TOKENS": f"bob=sha256:{hash_of('t2')}"})
    assert tokens.principals == hashed({"t1": "alice", "t2": "bob", "t3": "carol"})


@pytest.mark.parametrize("digest", ["", "00", "g" * 64, "0" * 63, "0" * 65, "sha256:" + "0" * 64])
def test_what_cannot_be_a_hash_is_refused(digest: str) -> None:
    """A malformed digest is refused."""
    with pytest.raises(CommandError, match="--token number 1 is not the SHA-256") as caught:
        gather(ServeOptions(token=(f"alice=sha256:{digest}",)), {})
    assert digest[-60:] == "" or digest[-60:] not in str(caught.value)


def test_a_token_and_its_hash_are_the_same_token() -> None:
    """Two principals cannot share a token, however it is given."""
    options = ServeOptions(token=(f"a={SECRET}", f"b=sha256:{hash_of(SECRET)}"))
    with pytest.raises(CommandError, match="b has the same token as a"):
        gather(options, {})


def test_beside_signed_tokens_none_is_made(tmp_path: Path) -> None:
    """Beside --jwt-keys no token is made."""
    options = ServeOptions(jwt_keys="keys.json", data=str(tmp_path / "data"))
    tokens = gather(options, {})
    assert (tokens.principals, tokens.made) == ({}, None)
    assert list(tmp_path.iterdir()) == []


def test_in_memory_the_made_token_stays(tmp_path: Path) -> None:
    """With --memory, gathering again keeps the token that was made."""
    options = ServeOptions(memory=True)
    first = gather(options, {})
    assert gather(options, {}, made=first.made) == first


def test_a_token_file_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing file and one that is not text are one line each."""
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff")
    for path in (tmp_path / "missing", tmp_path, binary):
        with pytest.raises(CommandError, match=str(path)):
            gather(ServeOptions(token_file=str(path)), {})


def test_no_token_is_made_for_an_empty_token_file(tmp_path: Path) -> None:
    """An empty token file is refused; beside other tokens it may be empty."""
    empty = tmp_path / "tokens"
    empty.write_text("# all gone\n")
    with pytest.raises(CommandError, match="has no token in it"):
        gather(ServeOptions(token_file=str(empty), memory=True), {})
    others = gather(ServeOptions(token_file=str(empty), token=("alice=t1",)), {})
    assert others.principals == hashed({"t1": "alice"})


def test_a_token_is_made_once(tmp_path: Path) -> None:
    """Without a token, one is made for local, kept for its owner alone, and reused."""
    options = ServeOptions(data=str(tmp_path / "a" / "data"))
    first, second = gather(options, {"ARCP_TOKENS": ""}), gather(options, {})
    assert first.made == second.made
    assert first.made is not None
    assert len(first.made) >= 43
    assert first.principals == hashed({first.made: "local"})
    folder = tmp_path / "a" / "data"
    assert [path.name for path in folder.iterdir()] == ["token"]
    assert (mode(folder), mode(folder / "token")) == (0o700, 0o600)
    assert (folder / "token").read_text(encoding="utf-8").strip() == first.made


def test_the_mode_does_not_depend_on_the_umask(tmp_path: Path) -> None:
    """The modes of folder and file do not depend on the umask."""
    before = os.umask(0)
    try:
        kept_token(tmp_path / "data")
    finally:
        os.umask(before)
    assert (mode(tmp_path / "data"), mode(tmp_path / "data" / "token")) == (0o700, 0o600)


def test_in_memory_nothing_is_written(tmp_path: Path) -> None:
    """With --memory the token is new at each start and not written."""
    options = ServeOptions(memory=True, data=str(tmp_path / "data"))
    assert gather(options, {}).made != gather(options, {}).made
    assert list(tmp_path.iterdir()) == []


def test_two_that_start_at_once_agree(tmp_path: Path) -> None:
    """Processes that make the token at the same time end up with the same one."""
    found: list[str] = []
    line = threading.Barrier(8)

    def start() -> None:
        line.wait()
        found.append(kept_token(tmp_path / "data"))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["token"]


def test_an_open_token_file_is_closed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file that others can read is closed to them, and the log says so without the token."""
    token = kept_token(tmp_path)
    (tmp_path / "token").chmod(0o644)
    assert kept_token(tmp_path) == token
    assert mode(tmp_path / "token") == 0o600
    (line,) = (TextFormatter().format(record) for record in caplog.records)
    assert "was open to others" in line
    assert str(tmp_path / "token") in line
    assert token not in line


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"two words", b"two\nlines", b"\xff\xfe", b"a\x00b"]
)
def test_a_file_without_a_token_is_refused(tmp_path: Path, content: bytes) -> None:
    """A malformed file is refused with advice, and stays as it is."""
    path = tmp_path / "token"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(CommandError, match="does not hold a token; delete it"):
        kept_token(tmp_path)
    assert path.read_bytes() == content


def test_what_is_not_a_plain_file_is_refused(tmp_path: Path) -> None:
    """A folder, a pipe or a dangling link is refused, and neither read nor replaced."""
    for name in ("folder", "pipe", "link"):
        (tmp_path / name).mkdir()
    (tmp_path / "folder" / "token").mkdir()
    os.mkfifo(tmp_path / "pipe" / "token")
    (tmp_path / "link" / "token").symlink_to("nowhere")
    for name in ("folder", "pipe", "link"):
        with pytest.raises(CommandError, match=str(tmp_path / name / "token")):
            kept_token(tmp_path / name)


def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of another user is refused and stays as it is."""
    token = kept_token(tmp_path)
    path = tmp_path / "token"
    path.chmod(0o644)
    if os.geteuid() == 0:
        os.chown(path, 1, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(CommandError, match="belongs to another user") as caught:
        kept_token(tmp_path)
    assert token not in str(caught.value)
    assert (mode(path), path.read_text(encoding="utf-8").strip()) == (0o644, token)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """A file in the place of the folder is one line with advice."""
    (tmp_path / "data").touch()
    with pytest.raises(CommandError, match="choose another --data"):
        kept_token(tmp_path / "data")


@pytest.mark.parametrize("mode", [0o602, 0o620, 0o666, 0o777])
def test_a_file_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    """A token file that other users can write is refused with the command that helps."""
    listed = tmp_path / "tokens"
    listed.write_text(f"alice={SECRET}", encoding="utf-8")
    listed.chmod(mode)
    with pytest.raises(CommandError, match=r"can be written by other users; use chmod go-w ") as e:
        gather(ServeOptions(token_file=str(listed)), {})
    assert SECRET not in str(e.value)
    listed.chmod(0o644)
    assert gather(ServeOptions(token_file=str(listed)), {}).principals


def test_short_tokens_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """A token of fewer than 16 characters leads to a warning that names its principal only."""
    long = "x" * 16
    tokens = (f"alice={SECRET}", f"bob={long}", f"carol=sha256:{hash_of(long + 'x')}", "dave=1")
    Admission(ServeOptions(token=tokens)).show()
    [record] = caplog.records
    line = TextFormatter().format(record)
    assert "short tokens can be guessed" in line
    assert "alice, dave" in line
    assert SECRET not in line


def test_the_signing_key_is_kept(tmp_path: Path) -> None:
    """The key is made once, for its owner alone; one that is too short is refused."""
    key = kept_key(tmp_path)
    path = tmp_path / "signing-key"
    assert mode(path) == 0o600
    assert kept_key(tmp_path) == key
    assert kept_token(tmp_path).encode() != key
    path.write_text("short", encoding="utf-8")
    with pytest.raises(CommandError, match="signing-key is too short; delete it, and a new key"):
        kept_key(tmp_path)
    path.write_text("", encoding="utf-8")
    with pytest.raises(CommandError, match="does not hold a key; delete it, and a new one is made"):
        kept_key(tmp_path)
