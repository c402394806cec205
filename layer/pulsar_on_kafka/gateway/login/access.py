"""Access to a gateway is granted to a role: the subject of a token, or the common name of a certificate.

Source: Pulsar's AuthenticationProviderToken and AuthenticationProviderTls, 4.0.7. Needs the extra `gateway`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from pulsar_on_kafka.base.errors import InvalidOption
from pulsar_on_kafka.exceptions import AuthenticationError

TOKEN: Final = "token"  # noqa: S105 - no password
TLS: Final = "tls"
"""The names of the login methods in the protocol."""
_MIN_SECRET_BYTES: Final = 32
"""Shorter secrets can be guessed; Pulsar rejects them, too."""
_SECRET: Final = ("HS256", "HS384", "HS512")
_ALGORITHMS: Final[tuple[tuple[type, tuple[str, ...]], ...]] = (
    (RSAPublicKey, ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
    (EllipticCurvePublicKey, ("ES256", "ES384", "ES512")),
    (Ed25519PublicKey, ("EdDSA",)),
)


class Login(NamedTuple):
    """`ends_s`: the Unix time at which the login expires; None: it does not expire."""

    role: str
    ends_s: float | None = None


@dataclass(frozen=True, slots=True)
class TokenKey:
    """The key that tokens (JWT) are signed with, or its public part."""

    key: Any = field(repr=False)
    algorithms: tuple[str, ...]

    @staticmethod
    def secret(path: str) -> TokenKey:
        """The bytes of a file, as `pulsar tokens create-secret-key` writes them. Raises InvalidOption: it cannot be
        read, or is shorter than 32 bytes."""
        key = _read(path)
        if len(key) < _MIN_SECRET_BYTES:
            raise InvalidOption(f"the secret key {path} has {len(key)} bytes, expected {_MIN_SECRET_BYTES} or more")
        return TokenKey(key, _SECRET)

    @staticmethod
    def public(path: str) -> TokenKey:
        """An RSA, EC or Ed25519 key, PEM or DER. Raises InvalidOption: it cannot be read, or is none of these."""
        data = _read(path)
        pem = data.lstrip().startswith(b"-----")
        try:
            key = serialization.load_pem_public_key(data) if pem else serialization.load_der_public_key(data)
        except (ValueError, UnsupportedAlgorithm) as failure:
            raise InvalidOption(f"{path} is no public key, PEM or DER: {failure}") from failure
        algorithms = next((names for kind, names in _ALGORITHMS if isinstance(key, kind)), None)
        if algorithms is None:
            raise InvalidOption(f"{path} is a {type(key).__name__}, expected an RSA, EC or Ed25519 key")
        return TokenKey(key, algorithms)

    def login(self, token: bytes) -> Login:
        """The login of a token. White space around it is removed, as in Pulsar: files of tokens end with a newline.
        Other characters that the decoder would skip are rejected, so that a login has one text.

        Raises:
            AuthenticationError: the token is not signed with this key, has expired, has not begun, or has no subject.
        """
        token = token.strip()
        if token and _OTHER_CHARACTERS.search(token):
            raise AuthenticationError("the token is not valid: it has other characters than base64url and dots")
        try:
            claims = jwt.decode(
                token,
                self.key,
                algorithms=self.algorithms,
                options={"require": ["sub"], "verify_aud": False, "verify_iat": False},
            )
        except (jwt.PyJWTError, ArithmeticError, RecursionError, ValueError) as failure:
            raise AuthenticationError(f"the token is not valid: {failure}") from failure
        if not claims["sub"]:
            raise AuthenticationError("the token has no subject: its `sub` is empty")
        return Login(claims["sub"], None if claims.get("exp") is None else float(claims["exp"]))


@dataclass(frozen=True, slots=True)
class GatewayAccess:
    """The roles that may connect, and those that may administer over REST.

    Args:
        tokens: the key of tokens; None: clients cannot log in by a token.
        certificates: clients may log in by a certificate that a trusted authority signed.
        super_users: roles that may administer. Without logins, every client may.
        authorization: other roles may do only what they were granted (`Authorization`). Otherwise each role that may
            connect may produce and consume everything.
        anonymous_role: the role of clients without a login by a token or a certificate; '': they may not connect.
            Source: Pulsar's `anonymousUserRole`.
    """

    tokens: TokenKey | None = None
    certificates: bool = False
    super_users: frozenset[str] = frozenset()
    authorization: bool = False
    anonymous_role: str = ""

    @property
    def requires_login(self) -> bool:
        """Whether clients have to log in."""
        return self.tokens is not None or self.certificates

    def login(self, method: str, data: bytes, certificate: Mapping[str, Any] | None) -> Login:
        """The login of a client that logs in by this method. `certificate`: what the socket has of it
        (`SSLSocket.getpeercert`), which its handshake has proven.

        Raises:
            AuthenticationError: the client may not connect.
        """
        if not self.requires_login:
            return Login("")
        if method == TOKEN and self.tokens is not None:
            return self.tokens.login(data)
        if method == TLS and self.certificates:
            return Login(_common_name(certificate or {}))
        if self.anonymous_role:  # as in Pulsar, also by a method that is not configured here
            return Login(self.anonymous_role)
        ways = " or ".join(
            name for name, there in ((TOKEN, self.tokens is not None), (TLS, self.certificates)) if there
        )
        raise AuthenticationError(f"login by {method or 'none'!r:.60}, expected {ways}")

    def may_administer(self, role: str) -> bool:
        return not self.requires_login or role in self.super_users


_OTHER_CHARACTERS: Final = re.compile(rb"[^A-Za-z0-9_.-]")
OPEN_ACCESS: Final = GatewayAccess()
"""Access without a login."""


def _common_name(certificate: Mapping[str, Any]) -> str:
    names = [value for pairs in certificate.get("subject", ()) for key, value in pairs if key == "commonName"]
    if len(names) != 1 or not names[0]:
        raise AuthenticationError(f"login by tls needs a certificate with one common name, got {names}")
    return str(names[0])


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as failure:
        raise InvalidOption(f"the key {path} cannot be read: {failure}") from failure
