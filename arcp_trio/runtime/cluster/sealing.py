"""Sealing: what one node says to another through the store, and only that one can read.

This is HPKE (RFC 9180): X25519, HKDF with SHA-256, and ChaCha20-Poly1305. It needs `cryptography`,
which the extra `sealed` installs.
"""

from __future__ import annotations

from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

_SUITE: Final = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)


class NodeKey:
    """A node's key pair. The private half is in memory only, and gone with the node."""

    def __init__(self) -> None:
        self._private = X25519PrivateKey.generate()
        self.public: Final = self._private.public_key().public_bytes_raw()

    def open(self, sealed: bytes, about: bytes) -> bytes:
        """Return what was sealed to this key, and about just this.

        Raises:
            ValueError: it was sealed to another key, about something else, or not at all.
        """
        try:
            return _SUITE.decrypt(sealed, self._private, about)
        except InvalidTag:
            raise ValueError("this is not sealed to this node, or about something else") from None


def seal(secret: bytes, public_key: bytes, about: bytes) -> bytes:
    """Seal a secret so that only the node with this public key can open it.

    Args:
        secret: to be sealed.
        public_key: as the node has shown it.
        about: what it is and for whom. It is not part of what is sealed; the one that opens it has
            to name the same.

    Raises:
        ValueError: this is not a public key.
    """
    return _SUITE.encrypt(secret, X25519PublicKey.from_public_bytes(public_key), about)
