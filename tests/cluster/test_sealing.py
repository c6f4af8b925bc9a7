"""What is sealed to one node, and about one thing, is opened by that node as just that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arcp_trio.runtime.cluster.sealing import NodeKey, seal


@given(secret=st.binary(), about=st.binary())
def test_what_is_sealed_is_opened(secret: bytes, about: bytes) -> None:
    """The node with the key gets what was sealed, if it names what that is about."""
    key = NodeKey()
    assert key.open(seal(secret, key.public, about), about) == secret


@given(secret=st.binary(), about=st.binary(), other=st.binary(), place=st.integers(0))
def test_nothing_else_is_opened(secret: bytes, about: bytes, other: bytes, place: int) -> None:
    """Another key, another thing that it is about, or another byte anywhere: nothing is opened."""
    key = NodeKey()
    sealed = seal(secret, key.public, about)
    changed = bytearray(sealed)
    changed[place % len(changed)] ^= 1
    with pytest.raises(ValueError, match="not sealed to this node"):
        NodeKey().open(sealed, about)
    with pytest.raises(ValueError, match="not sealed to this node"):
        key.open(bytes(changed), about)
    if other != about:
        with pytest.raises(ValueError, match="not sealed to this node"):
            key.open(sealed, other)


@given(st.binary())
def test_what_is_not_sealed_at_all(anything: bytes) -> None:
    """Any bytes that the database may have are refused in the same way."""
    with pytest.raises(ValueError, match="not sealed to this node"):
        NodeKey().open(anything, b"")


@pytest.mark.parametrize("wrong", [b"", b"short", bytes(32), bytes(33)])
def test_what_is_not_a_public_key(wrong: bytes) -> None:
    """Nothing is sealed to bytes that are not a key, or to one whose secret everybody knows."""
    with pytest.raises(ValueError, match=r"32 bytes|shared key"):
        seal(b"secret", wrong, b"")


def test_the_same_secret_is_sealed_anew() -> None:
    """Two seals of one secret have nothing in common by which to tell that they are the same."""
    key = NodeKey()
    assert seal(b"secret", key.public, b"") != seal(b"secret", key.public, b"")
