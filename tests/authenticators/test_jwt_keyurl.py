"""Keys at a URL: when they are fetched, and what happens when they cannot be."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme
from trio.testing import MockClock, wait_all_tasks_blocked

import arcp_trio
from arcp_trio import JwtAuth, Runtime
from arcp_trio.authenticators import keyurl
from arcp_trio.authenticators.keys import MOST_BYTES
from arcp_trio.authenticators.keyurl import AGAIN_SECONDS, FETCH_SECONDS, FRESH_SECONDS, KeyUrl
from arcp_trio.testing import open_peers
from tests.authenticators.issuer import AUDIENCE, jwk, key_set, sign
from tests.authenticators.publisher import Publisher, publishing
from tests.ports import refusing_port

pytestmark = pytest.mark.real_tcp


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def keys_of(publisher: Publisher, clock: Clock) -> KeyUrl:
    """Return a publisher's keys for ES256."""
    return KeyUrl(publisher.url, ["ES256"], now=clock)


async def test_a_token_is_checked_with_the_keys_there() -> None:
    """The set is fetched for the first token and not again for the next ones."""
    async with publishing(key_set(jwk("ES256"), jwk("RS256", "r"))) as publisher:
        auth = JwtAuth(jwks=publisher.url, algorithms=["ES256", "RS256"], audience=AUDIENCE)
        assert publisher.asked == 0
        for _ in range(3):
            assert await auth(sign("ES256", kid="first")) == "alice"
            assert await auth(sign("RS256", "r", kid="r")) == "alice"
        assert publisher.asked == 1


async def test_a_new_key_is_fetched_when_a_token_names_it() -> None:
    """After a rotation, the first token with a new key causes a fetch, and old keys are dropped."""
    clock = Clock()
    async with publishing(key_set(jwk("ES256", "old"))) as publisher:
        keys = keys_of(publisher, clock)
        assert await keys.find("ES256", "old") is not None
        publisher.body = key_set(jwk("ES256", "new"))
        clock.now += AGAIN_SECONDS
        assert await keys.find("ES256", "new") is not None
        assert await keys.find("ES256", "old") is None
        assert publisher.asked == 2


async def test_unknown_names_do_not_make_a_flood() -> None:
    """Unknown key ids cause one fetch per interval, and known keys are still found."""
    clock = Clock()
    async with publishing(key_set(jwk("ES256"))) as publisher:
        keys = keys_of(publisher, clock)
        for number in range(100):
            assert await keys.find("ES256", f"made up {number}") is None
            clock.now += AGAIN_SECONDS / 200
        assert publisher.asked == 1
        clock.now += AGAIN_SECONDS
        assert await keys.find("ES256", None) is not None
        assert publisher.asked == 1
        assert await keys.find("ES256", "made up") is None
        assert publisher.asked == 2


async def test_a_key_that_was_taken_out_is_forgotten_in_time() -> None:
    """An old set is fetched again, so that a key that was removed is refused in time."""
    clock = Clock()
    async with publishing(key_set(jwk("ES256", "leaked"), jwk("ES256", "other"))) as publisher:
        keys = keys_of(publisher, clock)
        assert await keys.find("ES256", "leaked") is not None
        publisher.body = key_set(jwk("ES256", "other"))
        clock.now += FRESH_SECONDS - 1
        assert await keys.find("ES256", "leaked") is not None
        clock.now += 1
        assert await keys.find("ES256", "leaked") is None
        assert publisher.asked == 2


async def test_many_at_once_ask_once() -> None:
    """Tokens that need the set during a fetch wait for its answer."""
    async with publishing(key_set(jwk("ES256"))) as publisher:
        publisher.gate = trio.Event()
        keys = keys_of(publisher, Clock())
        found: list[object] = []

        async def find(key_id: str) -> None:
            found.append(await keys.find("ES256", key_id))

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(find, "first")
                nursery.start_soon(find, "made up")
            await publisher.arrived.wait()
            publisher.gate.set()
        assert publisher.asked == 1
        assert sorted(each is None for each in found) == [False] * 20 + [True] * 20


@pytest.mark.parametrize("known", [False, True])
async def test_who_gives_up_makes_nobody_ask_at_once(known: bool) -> None:  # noqa: FBT001
    """A cancelled fetch counts for the rate limit, and meanwhile no token is called wrong.

    Tokens with unknown keys get InternalError, and the next fetch comes after the interval, sooner
    than after a fetch that succeeded.
    """
    clock = Clock()
    async with publishing(key_set(jwk("ES256", "old"))) as publisher:
        keys = keys_of(publisher, clock)
        if known:
            await keys.find("ES256", "old")
            clock.now += FRESH_SECONDS
        publisher.body = key_set(jwk("ES256", "new"))
        publisher.gate, publisher.arrived, publisher.asked = trio.Event(), trio.Event(), 0

        async def find_none() -> None:
            with pytest.raises(arcp_trio.InternalError):
                await keys.find("ES256", "new")

        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as impatient:
                async with trio.open_nursery() as inner:
                    inner.start_soon(keys.find, "ES256", "new")
                    await publisher.arrived.wait()
                    nursery.start_soon(find_none)
                    await wait_all_tasks_blocked()
                    impatient.cancel()
            publisher.gate.set()
        for _ in range(10):
            await find_none()
            assert not known or await keys.find("ES256", "old") is not None
            clock.now += AGAIN_SECONDS / 20
        assert publisher.asked == 1
        clock.now += AGAIN_SECONDS / 2
        assert await keys.find("ES256", "old") is None
        assert await keys.find("ES256", "new") is not None
        assert publisher.asked == 2


async def test_what_is_known_does_not_wait_for_a_refresh() -> None:
    """During a fetch, keys of the old set are found without waiting."""
    clock = Clock()
    async with publishing(key_set(jwk("ES256"))) as publisher:
        keys = keys_of(publisher, clock)
        await keys.find("ES256", "first")
        publisher.gate, publisher.arrived = trio.Event(), trio.Event()
        clock.now += FRESH_SECONDS
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keys.find, "ES256", "first")
            await publisher.arrived.wait()
            with trio.CancelScope() as no_wait:
                no_wait.cancel()
                assert await keys.find("ES256", "first") is not None
            assert not no_wait.cancelled_caught
            publisher.gate.set()
        assert publisher.asked == 2


WAYS: dict[str, dict[str, Any]] = {
    "an error": {"status": "500 Oops"},
    "elsewhere": {"status": "302 Found", "headers": "Location: http://127.0.0.1:1/keys\r\n"},
    "to itself": {"status": "301 Moved", "headers": "Location: /keys.json\r\n"},
    "unchanged": {"status": "304 Not Modified"},
    "nothing": {"status": "204 No Content"},
    "huge": {"body": b" " * (MOST_BYTES + 1) + key_set(jwk("ES256", "new"))},
    "compressed": {"headers": "Content-Encoding: gzip\r\n", "body": b"\x1f\x8b\x08\x00" + bytes(9)},
    "no JSON": {"body": b"<html>"},
    "no keys": {"body": b'{"keys": []}'},
    "others' keys": {"body": key_set(jwk("RS256", "r"))},
    "no HTTP": {"status": "\r\n\x00\r\n"},
    "two lengths": {"headers": "Content-Length: 99\r\n"},
    "cut off": {"cut": True},
    "stalled": {"stall": True},
}


@pytest.mark.logs_error("keys not fetched url=http://127.0.0.1")
@pytest.mark.parametrize("how", WAYS)
async def test_keys_outlive_the_trouble_of_their_publisher(
    how: str, mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A failed fetch keeps the known keys and is logged once, and so is its end.

    The time of a fetch only passes once its answer has stopped, however busy the machine is.
    """
    caplog.set_level(logging.INFO, keyurl.__name__)
    clock = Clock()
    async with publishing(key_set(jwk("ES256"))) as publisher, trio.open_nursery() as nursery:
        nursery.start_soon(give_stalled_ones_up, publisher, mock_clock)
        keys = keys_of(publisher, clock)
        await keys.find("ES256", "first")
        publisher.body = key_set(jwk("ES256"), jwk("ES256", "new"))
        for name, value in WAYS[how].items():
            setattr(publisher, name, value)
        for _ in range(2):
            clock.now += FRESH_SECONDS
            assert await keys.find("ES256", "first") is not None
        assert publisher.asked == 3
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        publisher.status, publisher.headers = "200 OK", ""
        publisher.stall = publisher.cut = False
        publisher.body = key_set(jwk("ES256"), jwk("ES256", "new"))
        clock.now += AGAIN_SECONDS
        assert await keys.find("ES256", "new") is not None
        assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
        nursery.cancel_scope.cancel()


async def give_stalled_ones_up(publisher: Publisher, clock: MockClock) -> None:
    """Let the time of a fetch pass each time that its answer has stopped."""
    while True:
        await publisher.stalled.wait()
        publisher.stalled = trio.Event()
        clock.jump(FETCH_SECONDS)


@pytest.mark.logs_error("certificate verify failed")
async def test_over_tls_the_publisher_is_who_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over https, the certificate must be for the name in the URL, from a trusted authority."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(tls)
    async with publishing(key_set(jwk("ES256")), tls) as publisher:
        stranger = KeyUrl(publisher.url, ["ES256"])
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        assert await KeyUrl(publisher.url, ["ES256"]).find("ES256", "first") is not None
        elsewhere = KeyUrl(publisher.url.replace("localhost", "127.0.0.1"), ["ES256"])
        for keys in (stranger, elsewhere):
            with pytest.raises(arcp_trio.InternalError):
                await keys.find("ES256", "first")
        assert publisher.asked == 1


@pytest.mark.logs_error("keys not fetched url=http://127.0.0.1")
async def test_nobody_there() -> None:
    """Without any keys, InternalError is raised instead of calling the token wrong."""
    with refusing_port() as port:
        keys = KeyUrl(f"http://127.0.0.1:{port}/keys.json", ["ES256"], now=Clock())
        for _ in range(2):
            with pytest.raises(arcp_trio.InternalError):
                await keys.find("ES256", "first")


@pytest.mark.logs_error("keys not fetched url=http://127.0.0.1")
async def test_over_the_wire_trouble_is_not_the_clients() -> None:
    """Without any keys, a client gets a retryable error."""
    async with publishing(b"") as publisher:
        auth = JwtAuth(jwks=publisher.url, algorithms=["ES256"], audience=AUDIENCE)
        async with Runtime(auth=auth) as runtime, open_peers(runtime) as peers:
            peer = await peers.connect()
            with pytest.raises(arcp_trio.InternalError) as caught:
                await peer.hello(token=sign(kid="first"))
            assert caught.value.retryable


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/keys.json",
        "http://127.0.0.1.example.com/keys.json",
        "http://10.0.0.1/keys.json",
        "http://localhost.example/keys.json",
        "http://[2001:db8::1]/keys.json",
        "ftp://localhost/keys.json",
        "file:///etc/keys.json",
        "https://",
        "https://user:secret@example.com/keys.json",
        "https://example.com/keys.json#first",
        "https://example.com/keys json",
        "https://example.com:0/keys.json",
    ],
)
def test_a_url_that_could_be_forged_is_refused(url: str) -> None:
    """A URL is refused if its answer could be forged, or if it contains a secret."""
    with pytest.raises(ValueError, match="expected") as caught:
        JwtAuth(jwks=url, algorithms=["ES256"], audience=AUDIENCE)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["https://example.com/a?b=c", "http://localhost:1/", "http://127.8.9.1/", "http://[::1]:5/"],
)
def test_other_urls_are_taken(url: str) -> None:
    """An https URL is accepted, and an http URL of this machine, without a fetch."""
    JwtAuth(jwks=url, algorithms=["ES256"], audience=AUDIENCE)
