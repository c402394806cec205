"""Who a client of the gateway is, and which tokens, keys and certificates say nothing."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa, x25519

from pulsar_on_kafka.base.errors import InvalidOption
from pulsar_on_kafka.exceptions import AuthenticationError
from pulsar_on_kafka.gateway.login.access import OPEN_ACCESS, TLS, TOKEN, GatewayAccess, Login, TokenKey

SECRET: Final = secrets.token_bytes(32)
_FAR_S: Final = 4_000_000_000
_CERTIFICATE: Final[Mapping[str, Any]] = {"subject": ((("countryName", "XX"),), (("commonName", "billing"),))}


def _token(**claims: Any) -> bytes:
    return jwt.encode({"sub": "billing", **claims}, SECRET).encode()


@pytest.fixture
def by_secret(tmp_path: Path) -> GatewayAccess:
    file = tmp_path / "secret.key"
    file.write_bytes(SECRET)
    return GatewayAccess(TokenKey.secret(str(file)))


def test_a_token_s_subject_is_the_role_and_its_expiry_the_login_s_end(by_secret: GatewayAccess) -> None:
    assert by_secret.login(TOKEN, _token(), None) == Login("billing")
    assert by_secret.login(TOKEN, _token() + b"\n", None) == Login("billing")  # as in files
    assert by_secret.login(TOKEN, _token(exp=_FAR_S, aud="x", iat=_FAR_S), None) == Login("billing", _FAR_S)


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (_token(exp=1), "Signature has expired"),
        (_token(nbf=_FAR_S), "not yet valid"),
        (_token(sub=""), "no subject"),
        (_token(sub=7), "Subject must be a string"),
        (jwt.encode({"role": "billing"}, SECRET).encode(), 'missing the "sub" claim'),
        (jwt.encode({"sub": "billing"}, secrets.token_bytes(32)).encode(), "Signature verification failed"),
        (jwt.encode({"sub": "billing"}, "", algorithm="none").encode(), "alg"),
        (b"", "Not enough segments"),
        (b"\xff\xfe", "valid"),
        (_token().replace(b".", b".\n", 1), "other characters than base64url"),
        (_token().replace(b".", b". ", 1), "other characters than base64url"),
        (b"." * 100, "valid"),
        (b"W" * 2000 + b"." + b"W" * 2000 + b".W", "valid"),
        (_token(exp="never"), "Expiration Time"),
        (_token(exp=float("inf")), "not valid"),
    ],
    ids=["ended", "not begun", "empty", "number", "no subject", "other key", "unsigned", "none", "bytes", "newline",
         "space", "dots", "long", "no time", "infinite"],
)  # fmt: skip
def test_other_tokens_name_nobody(by_secret: GatewayAccess, token: bytes, reason: str) -> None:
    with pytest.raises(AuthenticationError, match=reason):
        by_secret.login(TOKEN, token, None)


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        (rsa.generate_private_key(65537, 2048), "RS256"),
        (ec.generate_private_key(ec.SECP256R1()), "ES256"),
        (ed25519.Ed25519PrivateKey.generate(), "EdDSA"),
    ],
    ids=["rsa", "ec", "ed25519"],
)
@pytest.mark.parametrize("encoding", [serialization.Encoding.PEM, serialization.Encoding.DER], ids=["pem", "der"])
def test_a_public_key_proves_what_its_private_one_signed(
    tmp_path: Path, key: Any, algorithm: str, encoding: serialization.Encoding
) -> None:
    file = tmp_path / "public.key"
    file.write_bytes(key.public_key().public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo))
    access = GatewayAccess(TokenKey.public(str(file)))
    token = jwt.encode({"sub": "billing"}, key, algorithm=algorithm).encode()
    assert access.login(TOKEN, token, None) == Login("billing")
    with pytest.raises(AuthenticationError, match="alg"):  # the public key is no secret that signs
        access.login(TOKEN, _token(), None)


def test_keys_that_are_none_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "key"
    with pytest.raises(InvalidOption, match="cannot be read"):
        TokenKey.secret(str(file))
    file.write_bytes(b"short")
    with pytest.raises(InvalidOption, match="has 5 bytes, expected 32 or more"):
        TokenKey.secret(str(file))
    with pytest.raises(InvalidOption, match="no public key"):
        TokenKey.public(str(file))
    file.write_bytes(
        x25519.X25519PrivateKey.generate()
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    with pytest.raises(InvalidOption, match="expected an RSA, EC or Ed25519 key"):
        TokenKey.public(str(file))


def test_a_certificate_s_common_name_is_the_role(by_secret: GatewayAccess) -> None:
    access = GatewayAccess(certificates=True)
    assert access.login(TLS, b"", _CERTIFICATE) == Login("billing")
    for other in (None, {}, {"subject": ((("countryName", "XX"),),)}, {"subject": ((("commonName", "a"),),) * 2}):
        with pytest.raises(AuthenticationError, match="one common name"):
            access.login(TLS, b"", other)
    with pytest.raises(AuthenticationError, match="login by 'tls', expected token"):
        by_secret.login(TLS, b"", _CERTIFICATE)
    with pytest.raises(AuthenticationError, match="login by 'none', expected token"):
        by_secret.login("", b"", None)
    both = GatewayAccess(by_secret.tokens, certificates=True)
    assert both.login(TLS, b"", _CERTIFICATE) == both.login(TOKEN, _token(), None)
    with pytest.raises(AuthenticationError, match="expected token or tls"):
        both.login("basic", b"a:b", _CERTIFICATE)


def test_super_users_administer_and_everybody_where_nobody_logs_in(by_secret: GatewayAccess) -> None:
    assert OPEN_ACCESS.login("token", b"anything", None) == Login("")
    assert OPEN_ACCESS.may_administer("")
    access = GatewayAccess(by_secret.tokens, super_users=frozenset({"admin"}))
    assert access.may_administer("admin")
    assert not access.may_administer("billing")


def test_a_client_without_a_login_has_the_anonymous_role(by_secret: GatewayAccess) -> None:
    access = GatewayAccess(by_secret.tokens, super_users=frozenset({"admin"}), anonymous_role="anonymous")
    for method in ("", "none", "basic", TLS):  # those that are not configured
        assert access.login(method, b"a:b", _CERTIFICATE) == Login("anonymous")
    assert not access.may_administer("anonymous")
    assert access.login(TOKEN, _token(), None).role == "billing"
    with pytest.raises(AuthenticationError, match="not valid"):
        access.login(TOKEN, b"a.b.c", None)


def test_no_key_is_shown(by_secret: GatewayAccess) -> None:
    assert repr(SECRET) not in repr(by_secret)
