"""The TLS certificate, which can be replaced while connections go on."""

from __future__ import annotations

import ssl
from pathlib import Path

from arcp_trio.plainfile import open_plain


class UnusableCertificate(Exception):  # noqa: N818 - says what it is
    """The certificate and its key cannot be used; the message says why."""


class Tls:
    """TLS 1.2 or newer with the certificate chain and the private key of two PEM files."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Read the files.

        Raises:
            UnusableCertificate: the files cannot be used.
        """
        self._certificate = certificate
        self._key = key
        self._context = self._load()

    def current(self) -> ssl.SSLContext:
        """Return the context for the next connection; open connections keep theirs."""
        return self._context

    def reload(self) -> None:
        """Read the files again, for new connections.

        Raises:
            UnusableCertificate: the files cannot be used; the certificate in use stays.
        """
        self._context = self._load()

    def _load(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        for path in (self._certificate, self._key):
            _check_readable(path)
        try:
            context.load_cert_chain(self._certificate, self._key, password=_no_password)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise UnusableCertificate(self._explain(error)) from error
        return context

    def _explain(self, error: Exception) -> str:
        if isinstance(error, _NeedsPassword):
            return f"the key {self._key} is protected by a password; store it without one"
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            return f"the key {self._key} does not belong to the certificate {self._certificate}"
        return (
            f"{self._certificate} and {self._key} are not a certificate chain and its private key"
            " in PEM form"
        )


class _NeedsPassword(ValueError):  # noqa: N818 - never leaves this module
    pass


def _no_password() -> str:
    # Without this callback OpenSSL asks for the password on the terminal.
    raise _NeedsPassword


def _check_readable(path: Path) -> None:
    # OpenSSL opens the files by name, and its errors say little.
    try:
        open_plain(path).close()
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise UnusableCertificate(f"cannot read {path}: {why}") from error
