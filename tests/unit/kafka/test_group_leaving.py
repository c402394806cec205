"""librdkafka's options in kafka-python's words."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from pulsar_on_kafka.base.errors import NotSupportedYet
from pulsar_on_kafka.kafka.groups.leave_group import connection
from pulsar_on_kafka.kafka.security import Security, Token, TokenSource
from pulsar_on_kafka.kafka.settings import KafkaSettings
from tests.certificates import Authority


def of(security: dict[str, str], tokens: TokenSource | None = None) -> dict[str, object]:
    settings = KafkaSettings("a:1, b:2", {"client.rack": "r"}, security=Security(security, tokens))
    return connection(settings.common())


def test_plain() -> None:
    assert of({}) == {
        "bootstrap_servers": ["a:1", "b:2"], "client_id": "pulsar-on-kafka", "security_protocol": "PLAINTEXT",
    }  # fmt: skip


def test_names_and_passwords() -> None:
    login = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "SCRAM-SHA-256"}
    found = of({**login, "sasl.username": "u", "sasl.password": "p"})
    assert found["security_protocol"] == "SASL_PLAINTEXT"
    assert found["sasl_mechanism"] == "SCRAM-SHA-256"
    assert (found["sasl_plain_username"], found["sasl_plain_password"]) == ("u", "p")


def test_tokens() -> None:
    source = TokenSource(lambda: Token("a-token", 1e12), "id")
    found = of({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "OAUTHBEARER"}, source)
    assert found["sasl_oauth_token_provider"].token() == "a-token"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "checks_name", "checks"),
    [
        ({}, True, ssl.CERT_REQUIRED),
        ({"ssl.endpoint.identification.algorithm": "none"}, False, ssl.CERT_REQUIRED),
        ({"enable.ssl.certificate.verification": "false"}, False, ssl.CERT_NONE),
    ],
)
def test_tls_checks_what_librdkafka_checks(
    tmp_path: Path, options: dict[str, str], checks_name: bool, checks: ssl.VerifyMode
) -> None:
    authority = Authority(tmp_path)
    alice = authority.issue("alice")
    files = {
        "ssl.ca.location": str(authority.file),
        "ssl.certificate.location": str(alice.certificate),
        "ssl.key.location": str(alice.key),
    }
    context = of({"security.protocol": "SSL", **files, **options})["ssl_context"]
    assert isinstance(context, ssl.SSLContext)
    assert (context.check_hostname, context.verify_mode) == (checks_name, checks)
    assert len(context.get_ca_certs()) == 1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"security.protocol": "SASL_SSL", "sasl.mechanisms": "GSSAPI"}, "GSSAPI"),
        ({"security.protocol": "SASL_SSL"}, "GSSAPI"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "OAUTHBEARER"}, "librdkafka"),
        ({"security.protocol": "SSL", "ssl.keystore.location": "a.p12"}, "ssl.keystore.location"),
        ({"security.protocol": "SSL", "ssl.ca.location": "/nowhere"}, "TLS"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "PLAIN", "sasl.kerberos.kinit.cmd": "x"}, "kinit"),
    ],
)
def test_what_it_lacks_is_told(options: dict[str, str], told: str) -> None:
    with pytest.raises(NotSupportedYet, match=told):
        of(options)
