"""A key set in a file that changes."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from arcp_trio.authenticators.keys import MOST_BYTES
from tests.authenticators.issuer import jwk, key_set, sign
from tests.authenticators.keyfiles import file_auth, replace, write


async def test_a_changed_file_is_read_again(file: Path) -> None:
    """Keys that are added to the file, or removed, take effect at once."""
    check = file_auth(file)
    old, new = sign(kid="first"), sign("ES256", "new", kid="new")
    assert (await check(old), await check(new)) == ("alice", None)
    replace(file, key_set(jwk("ES256"), jwk("ES256", "new")))
    assert (await check(old), await check(new)) == ("alice", "alice")
    write(file, key_set(jwk("ES256", "new")))
    assert (await check(old), await check(new)) == (None, "alice")


@pytest.mark.logs_error("keys not reloaded path=.*keys.json")
@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"keys":[]}', key_set(jwk("RS256")), b" " * (MOST_BYTES + 1), None]
)
async def test_a_bad_file_takes_no_key_away(
    content: bytes | None, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A bad file is logged once and changes no key, and a good one after it is used."""
    check = file_auth(file)
    replace(file, content)
    for _ in range(3):
        assert await check(sign(kid="first")) == "alice"
    assert len(caplog.records) == 1
    replace(file, key_set(jwk("ES256", "new")))
    assert await check(sign("ES256", "new", kid="new")) == "alice"
    assert await check(sign(kid="first")) is None


@pytest.mark.logs_error("keys not reloaded path=.*keys.json")
async def test_trouble_with_reading_does_not_outlast_itself(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that could not be read is read when that is possible, though it has not changed."""
    check = file_auth(file)
    replace(file, key_set(jwk("ES256", "new")))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        for _ in range(3):
            assert await check(sign(kid="first")) == "alice"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(caplog.records) == 1
    assert await check(sign("ES256", "new", kid="new")) == "alice"
    assert await check(sign(kid="first")) is None


@pytest.mark.logs_error("not a plain file")
async def test_a_pipe_in_its_place_holds_nothing_up(file: Path) -> None:
    """A pipe in the place of the file is not read, and blocks nothing."""
    check = file_auth(file)
    replace(file, None)
    os.mkfifo(file)
    assert await check(sign(kid="first")) == "alice"
    with pytest.raises(ValueError, match="not a plain file"):
        file_auth(file)


def test_a_missing_file_is_an_error_at_the_start(tmp_path: Path) -> None:
    """A missing file is an error at the start."""
    with pytest.raises(FileNotFoundError):
        file_auth(tmp_path / "missing.json")
