"""librdkafka's options of security, TLS, SASL's mechanisms, and logins that are renewed."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from hashlib import pbkdf2_hmac
from pathlib import Path
from typing import Any

import pytest

from pulsar_on_kafka.base.errors import ConnectFailed, NoCredentials, NotAuthenticated, NotSupportedYet, TlsFailed
from pulsar_on_kafka.kafka.security import Security, Token, TokenSource
from pulsar_on_kafka.kafka.settings import KafkaSettings
from pulsar_on_kafka.kafka.wire.fields import int32, sized, string
from pulsar_on_kafka.kafka.wire.group_messages import HeartbeatRequest
from pulsar_on_kafka.kafka.wire.login import Conversation, KafkaLogin, connect, scram
from pulsar_on_kafka.kafka.wire.sasl_messages import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.certificates import Authority
from tests.stand_in_broker import FINE, Answer, StandInBroker

HEARTBEAT, HANDSHAKE, AUTHENTICATE = (
    kind.API.key for kind in (HeartbeatRequest, SaslHandshakeRequest, SaslAuthenticateRequest)
)
LONG_S = 60.0


def of(security: Mapping[str, str], tokens: TokenSource | None = None) -> KafkaLogin:
    settings = KafkaSettings("a:1, b:2", {"client.rack": "r"}, security=Security(security, tokens))
    return KafkaLogin(settings.common())


# Options --------------------------------------------------------------------------------------------------------------


def test_plain() -> None:
    login = of({})
    assert (login.tls, login.mechanism) == (None, "")


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
    context = of({"security.protocol": "SSL", **files, **options}).tls
    assert context is not None
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


# Mechanisms -----------------------------------------------------------------------------------------------------------


def talk(conversation: Conversation, *answers: bytes) -> list[bytes]:
    """What the client says. The conversation ends with the last answer."""
    said = [next(conversation)]
    for answer in answers[:-1]:
        said.append(conversation.send(answer))
    with pytest.raises(StopIteration):
        conversation.send(answers[-1])
    return said


def token_of(tokens: TokenSource) -> KafkaLogin:
    return of({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "OAUTHBEARER"}, tokens)


def password(mechanism: str) -> KafkaLogin:
    login = {"sasl.mechanisms": mechanism, "sasl.username": "user", "sasl.password": "pencil"}
    return of({"security.protocol": "SASL_PLAINTEXT", **login})


SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def example_of_rfc_7677() -> Conversation:
    return scram("sha256", "user", lambda *args: pbkdf2_hmac(args[0], b"pencil", *args[1:]), "rOprNGfwEbeRWgbNEkqO")


def test_scram_as_in_rfc_7677() -> None:
    assert talk(example_of_rfc_7677(), SERVER_FIRST, SERVER_FINAL) == [
        b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    ]


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ([b"r=other,s=AAAA,i=1"], "nonce"),
        ([b"r=rOprNGfwEbeRWgbNEkqO,s=AAAA,i=1"], "nonce"),
        ([b"r=rOprNGfwEbeRWgbNEkqOx,s=?,i=1"], "expected salt and iterations"),
        ([b"r=rOprNGfwEbeRWgbNEkqOx,i=1"], "expected salt and iterations"),
        ([b"r=rOprNGfwEbeRWgbNEkqOx,s=AAAA,i=many"], "expected salt and iterations"),
        ([b"r=rOprNGfwEbeRWgbNEkqOx,s=AAAA,i=2000000000"], "2000000000 iterations, expected 1 to 1000000"),
        ([b"\xff"], "expected short ASCII"),
        ([b"r" * 20_000], "expected short ASCII"),
        ([SERVER_FIRST, b"e=other-error"], "does not know the password other-error"),
        ([SERVER_FIRST, b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5="], "does not know the password"),
    ],
)
def test_a_server_that_breaks_scram_is_not_believed(answers: list[bytes], told: str) -> None:
    with pytest.raises(NotAuthenticated, match=told):
        talk(example_of_rfc_7677(), *answers, b"")


def test_plain_sends_name_and_password() -> None:
    assert talk(asyncio.run(password("PLAIN").conversation()), b"") == [b"\0user\0pencil"]


def test_a_token_is_sent_and_a_refusal_names_the_reason() -> None:
    login = token_of(TokenSource(lambda: Token("a-token", 1e12), "id"))
    assert talk(asyncio.run(login.conversation()), b"") == [b"n,,\1auth=Bearer a-token\1\1"]
    conversation = asyncio.run(login.conversation())
    next(conversation)
    assert conversation.send(b'{"status":"invalid_token"}') == b"\1"
    with pytest.raises(NotAuthenticated, match="invalid_token"):
        conversation.send(b"")


def test_without_a_token_there_is_no_login() -> None:
    def supply() -> Token:
        raise ValueError("a secret")

    with pytest.raises(NoCredentials, match="the token supplier raised ValueError"):
        asyncio.run(token_of(TokenSource(supply, "id")).conversation())


# Connections ----------------------------------------------------------------------------------------------------------


def handshake_of(*mechanisms: str) -> Answer:
    def answer(received: Any) -> bytes:
        known = received.body == string(mechanisms[0])
        return (b"\0\0" if known else b"\0\x21") + int32(len(mechanisms)) + b"".join(map(string, mechanisms))

    return answer


def authenticated(lifetime_ms: int = 0) -> bytes:
    return b"\0\0\xff\xff" + sized(b"") + lifetime_ms.to_bytes(8, "big")


def served(answers: Mapping[int, Answer], login: KafkaLogin, steps: Callable[..., Any]) -> StandInBroker:
    async def run() -> StandInBroker:
        async with StandInBroker({HEARTBEAT: lambda _: FINE, **answers}) as broker:
            connection = await connect("127.0.0.1", broker.port, login, "c", LONG_S)
            try:
                await steps(connection, broker)
            finally:
                connection.close()
            return broker

    return asyncio.run(run())


async def one_beat(connection: Any, _: StandInBroker) -> None:
    assert (await connection.send(HeartbeatRequest("g", 1, "m"), "c", LONG_S)).error_code == 0


def test_a_password_goes_out_once_for_a_login_without_an_end() -> None:
    answers = {HANDSHAKE: handshake_of("PLAIN"), AUTHENTICATE: lambda _: authenticated()}
    broker = served(answers, password("PLAIN"), one_beat)
    assert [each.api_key for each in broker.received] == [18, HANDSHAKE, AUTHENTICATE, HEARTBEAT]
    assert broker.of(SaslAuthenticateRequest.API)[0].body == sized(b"\0user\0pencil")


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ({HANDSHAKE: handshake_of("GSSAPI", "PLAIN")}, r"PLAIN \(UNSUPPORTED_SASL_MECHANISM\), it has GSSAPI, PLAIN"),
        (
            {
                HANDSHAKE: handshake_of("PLAIN"),
                AUTHENTICATE: lambda _: b"\0\x3a" + string("Invalid username or password") + sized(b"") + bytes(8),
            },
            "Invalid username or password",
        ),
    ],
)
def test_a_refused_login_names_the_broker_s_reason(answers: Mapping[int, Answer], told: str) -> None:
    with pytest.raises(NotAuthenticated, match=told) as refused:
        served(answers, password("PLAIN"), one_beat)
    assert "pencil" not in str(refused.value)


def test_a_login_is_renewed_before_its_end_and_no_other_request_is_within_it() -> None:
    answers = {HANDSHAKE: handshake_of("PLAIN"), AUTHENTICATE: lambda _: authenticated(200)}

    async def steps(connection: Any, broker: StandInBroker) -> None:
        while len(broker.of(SaslAuthenticateRequest.API)) < 4:
            await one_beat(connection, broker)

    broker = served(answers, password("PLAIN"), steps)
    assert broker.connections == 1
    keys = [each.api_key for each in broker.received]
    begun = [at for at, key in enumerate(keys) if key == HANDSHAKE]
    assert len(begun) >= 4
    assert {keys[at + 1] for at in begun[:3]} == {AUTHENTICATE}


def test_a_connection_whose_login_is_not_renewed_is_closed() -> None:
    logins: list[int] = []

    def answer(_: Any) -> bytes:
        logins.append(0)
        return authenticated(50) if len(logins) == 1 else b"\0\x3a" + string("revoked") + sized(b"") + bytes(8)

    async def steps(connection: Any, _: StandInBroker) -> None:
        while connection.is_open:
            await asyncio.sleep(0.001)
        with pytest.raises(ConnectFailed, match="revoked"):
            connection.send(HeartbeatRequest("g", 1, "m"), "c", LONG_S)

    served({HANDSHAKE: handshake_of("PLAIN"), AUTHENTICATE: answer}, password("PLAIN"), steps)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> ssl.SSLContext:
    identity = authority.issue("broker", address="127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)
    return context


def over_tls(server: ssl.SSLContext | None, host: str = "127.0.0.1", **options: str) -> None:
    async def run() -> None:
        async with StandInBroker({HEARTBEAT: lambda _: FINE}, server) as broker:
            login = of({"security.protocol": "SSL", **options})
            connection = await connect(host, broker.port, login, "c", LONG_S)
            await one_beat(connection, broker)
            connection.close()

    asyncio.run(run())


def test_tls_with_a_trusted_broker(authority: Authority, server: ssl.SSLContext) -> None:
    over_tls(server, **{"ssl.ca.location": str(authority.file)})


def test_tls_with_another_authority_s_broker(tmp_path: Path, server: ssl.SSLContext) -> None:
    with pytest.raises(TlsFailed, match=r"127\.0\.0\.1:.* CERTIFICATE_VERIFY_FAILED"):
        over_tls(server, **{"ssl.ca.location": str(Authority(tmp_path, "other").file)})


def test_tls_with_another_host_s_certificate(authority: Authority, server: ssl.SSLContext) -> None:
    with pytest.raises(TlsFailed, match="localhost"):
        over_tls(server, "localhost", **{"ssl.ca.location": str(authority.file)})


def test_tls_with_a_broker_that_refuses_clients_without_a_certificate(authority: Authority) -> None:
    identity = authority.issue("strict", address="127.0.0.1")
    strict = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    strict.load_cert_chain(identity.certificate, identity.key)
    strict.load_verify_locations(authority.file)
    strict.verify_mode = ssl.CERT_REQUIRED
    with pytest.raises((TlsFailed, ConnectFailed)):
        over_tls(strict, **{"ssl.ca.location": str(authority.file)})
    alice = authority.issue("alice")
    over_tls(
        strict,
        **{
            "ssl.ca.location": str(authority.file),
            "ssl.certificate.location": str(alice.certificate),
            "ssl.key.location": str(alice.key),
        },
    )
