"""Signed tokens with `serve`, alone and beside its own tokens."""

from __future__ import annotations

import io
import logging
import sys
from pathlib import Path

import attrs
import pytest

from arcp_trio.cli.errors import CommandError
from arcp_trio.cli.serve.admission import Admission
from arcp_trio.cli.serve.options import ServeOptions
from tests.authenticators.issuer import AUDIENCE, jwk, key_set, sign
from tests.cli.processes import Starter, peer


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """Return a file with the issuer's keys."""
    path = tmp_path / "keys.json"
    path.write_bytes(key_set(jwk("ES256"), jwk("RS256", "rsa")))
    return path


def test_the_made_token_is_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The token is written in one piece, since the log may be written at the same time."""
    writes: list[str] = []

    class Stream(io.StringIO):
        """A stream that records each write."""

        def write(self, text: str, /) -> int:
            writes.append(text)
            return len(text)

    monkeypatch.setattr(sys, "stderr", Stream())
    options = ServeOptions(memory=True)
    admission = Admission(options)
    admission.complete(options)
    admission.show()
    assert writes == [f"token for local: {admission.made}\n"]


@pytest.mark.real_tcp
def test_signed_tokens_open_sessions(start: Starter, keys: Path) -> None:
    """A good signed token opens a session; one with another audience or issuer does not."""
    served = start(
        "serve",
        "--port=0",
        "--memory",
        f"--jwt-keys={keys}",
        "--jwt-algorithm=RS256",
        "--jwt-algorithm=ES256",
        f"--jwt-audience={AUDIENCE}",
        "--jwt-issuer=me",
    )
    url = served.url()
    good = [sign(kid="first", iss="me"), sign("RS256", "rsa", kid="rsa", iss="me")]
    bad = [sign(kid="first"), sign(kid="first", iss="me", aud="other"), sign("HS256", iss="me")]
    for tokens, expected in ((good, "session.welcome"), (bad, "session.error")):
        for token in tokens:
            with peer(url, token) as session:
                assert session.answer["type"] == expected
    served.process.terminate()
    code, _, err = served.end()
    assert code == 0
    assert "token for local" not in err
    assert not any(token in err for token in (*good, *bad))


async def test_given_tokens_and_signed_ones_go_together(
    keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A given token is accepted without a signature, beside signed tokens."""
    monkeypatch.delenv("ARCP_TOKENS", raising=False)
    admission = Admission(
        ServeOptions(
            token=("carol=plain",),
            jwt_keys=str(keys),
            jwt_algorithm=("ES256",),
            jwt_audience=AUDIENCE,
        )
    )
    carol, alice = await admission("plain"), await admission(sign(kid="first"))
    assert (carol, alice) == ("carol", "alice")
    assert carol is not None
    assert alice is not None
    assert await admission("other") is None
    assert await admission.still_good(carol)
    assert await admission.still_good(alice)


async def test_a_signed_token_is_for_nobody_with_a_static_one(
    keys: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The issuer cannot sign for a principal that has a token of `serve`, or gets one later."""
    monkeypatch.delenv("ARCP_TOKENS", raising=False)
    caplog.set_level(logging.INFO)
    options = ServeOptions(
        token=("alice=plain",),
        jwt_keys=str(keys),
        jwt_algorithm=("ES256",),
        jwt_audience=AUDIENCE,
    )
    admission = Admission(options)
    assert await admission(sign(kid="first")) is None
    assert "has a static token" in str(caplog.records[-1].__dict__["why"])
    bob = await admission(sign(kid="first", sub="bob"))
    assert bob == "bob"
    assert bob is not None
    admission.gather_again(attrs.evolve(options, token=("bob=plain",)))
    assert not await admission.still_good(bob)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"jwt_keys": None}, "give --jwt-keys"),
        ({"jwt_keys": None, "jwt_audience": None}, "give --jwt-keys"),
        ({"jwt_audience": None}, "needs --jwt-audience"),
        ({"jwt_algorithm": ()}, "--jwt-algorithm such as RS256"),
        ({"jwt_algorithm": ("none",)}, "algorithms must be some of"),
        ({"jwt_algorithm": ("HS256",)}, "a set of keys is public"),
        ({"jwt_algorithm": ("EdDSA",)}, "it has no key for EdDSA"),
        ({"jwt_keys": "missing.json"}, "cannot read the keys in missing.json: no such file"),
        ({"jwt_keys": "/"}, "not a plain file"),
        ({"jwt_keys": "http://example.com/keys"}, "expected https"),
    ],
)
def test_what_cannot_be_checked_keeps_it_from_starting(
    changes: dict[str, object], complaint: str, keys: Path
) -> None:
    """An option that is missing or wrong is one line."""
    settings: dict[str, object] = {
        "jwt_keys": str(keys),
        "jwt_algorithm": ("ES256",),
        "jwt_audience": AUDIENCE,
    }
    with pytest.raises(CommandError, match=complaint) as caught:
        Admission(ServeOptions(**(settings | changes), memory=True))  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_without_the_extra_it_says_what_to_install(
    keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without PyJWT the line has the command that installs it."""
    monkeypatch.setitem(sys.modules, "jwt", None)
    monkeypatch.delitem(sys.modules, "arcp_trio.authenticators.jwt", raising=False)
    options = ServeOptions(
        jwt_keys=str(keys), jwt_algorithm=("ES256",), jwt_audience=AUDIENCE, memory=True
    )
    with pytest.raises(CommandError, match="pip install 'pyjwt"):
        Admission(options)
