"""The official Authentication classes and TLS arguments become options of librdkafka; no secret is ever shown."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.base.errors import NoCredentials
from pulsar_on_kafka.client.connection.cluster_settings import ConnectionSecurity
from pulsar_on_kafka.client.values.service_info import parse_service_url
from pulsar_on_kafka.kafka.security import Security, Token, TokenSource
from pulsar_on_kafka.kafka.settings import KafkaSettings

SECRET = "hunter2-the-secret"


def options(authentication: pulsar.Authentication | None, tls: bool = True, **more: Any) -> dict[str, str]:
    protocol = more.pop("kafka_protocol", None)
    return dict(ConnectionSecurity(authentication, **more).applied(tls=tls, kafka_protocol=protocol).options)


def jwt(**claims: Any) -> str:
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({}, claims)]
    return ".".join([*parts, "signature"])


def token_of(authentication: pulsar.Authentication) -> Token:
    tokens = authentication.security().tokens
    assert tokens is not None
    return tokens.current()


def test_tls_is_mutual_tls() -> None:
    found = options(pulsar.AuthenticationTLS("a.pem", "k.pem"), trust_certs_file_path="ca.pem")
    assert found == {
        "security.protocol": "SSL",
        "ssl.certificate.location": "a.pem",
        "ssl.key.location": "k.pem",
        "ssl.ca.location": "ca.pem",
        "ssl.endpoint.identification.algorithm": "none",
    }


def test_tls_without_tls_is_refused() -> None:
    with pytest.raises(pulsar.InvalidConfiguration, match=r"kafka\+ssl"):
        pulsar.Client("kafka://localhost:9092", authentication=pulsar.AuthenticationTLS("a", "b"))


def test_the_host_s_name_is_checked_and_certificates_are_as_officially() -> None:
    checked = options(None, validate_hostname=True)
    assert checked["ssl.endpoint.identification.algorithm"] == "https"
    careless = options(None, allow_insecure_connection=True)
    assert careless["enable.ssl.certificate.verification"] == "false"
    assert options(None, tls=False) == {"security.protocol": "PLAINTEXT"}


@pytest.mark.parametrize(
    "login",
    [
        pulsar.AuthenticationBasic("alice", SECRET),
        pulsar.AuthenticationBasic(auth_params_string=json.dumps({"username": "alice", "password": SECRET})),
        pulsar.Authentication("basic", f"alice:{SECRET}"),
        pulsar.Authentication(
            "org.apache.pulsar.client.impl.auth.AuthenticationBasic",
            json.dumps({"username": "alice", "password": SECRET}),
        ),
    ],
)
def test_basic_is_sasl_plain(login: pulsar.Authentication) -> None:
    found = options(login, tls=False)
    assert found == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": SECRET,
    }
    assert options(login)["security.protocol"] == "SASL_SSL"


@pytest.mark.parametrize(
    "make",
    [
        lambda: pulsar.AuthenticationBasic(SECRET, None),
        lambda: pulsar.AuthenticationBasic("alice", 5),  # type: ignore[arg-type]
        lambda: pulsar.AuthenticationToken(5),  # type: ignore[arg-type]
        lambda: pulsar.AuthenticationOauth2(None),  # type: ignore[arg-type]
        lambda: pulsar.AuthenticationTLS("a", None),  # type: ignore[arg-type]
        lambda: pulsar.Client("kafka://localhost:1", authentication=SECRET),  # type: ignore[arg-type]
        lambda: pulsar.Client(f"kafka://alice:{SECRET}@localhost:1"),
    ],
)
def test_a_wrong_type_is_a_value_error_that_shows_no_value(make: Any) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the official client says no more
        make()
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: pulsar.AuthenticationBasic(auth_params_string=SECRET),
        lambda: pulsar.AuthenticationBasic(auth_params_string="{}"),
        lambda: pulsar.AuthenticationOauth2(SECRET),
        lambda: pulsar.AuthenticationOauth2('{"issuer_url": "http://x"}'),
        lambda: pulsar.AuthenticationOauth2('{"private_key": "x"}'),
        lambda: pulsar.Authentication("tls", "tlsCertFile:a"),
    ],
)
def test_incomplete_parameters_are_refused_at_once(make: Any) -> None:
    with pytest.raises(pulsar.InvalidConfiguration) as refused:
        make()
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: pulsar.AuthenticationAthenz("{}"),
        lambda: pulsar.AuthenticationBasic("a", "b", "oms3.0"),
        lambda: pulsar.Authentication("/usr/lib/my.so", "x"),
    ],
)
def test_what_kafka_has_not_is_not_supported(make: Any) -> None:
    with pytest.raises(pulsar.exceptions.NotSupported):
        make()


def test_a_token_says_whose_it_is_and_how_long_it_lasts() -> None:
    expires = time.time() + 100
    login = pulsar.AuthenticationToken(jwt(sub="alice", exp=expires))
    assert token_of(login)[1:] == (expires, "alice")
    assert options(login)["sasl.mechanisms"] == "OAUTHBEARER"
    assert token_of(pulsar.AuthenticationToken("opaque")).expires_s > time.time() + 86_400
    assert token_of(pulsar.Authentication("token", "token:opaque")).value == "opaque"


def test_a_token_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "token"
    login = pulsar.Authentication("token", f"file://{file}")
    with pytest.raises(NoCredentials, match="cannot be read"):
        token_of(login)
    file.write_text("first\n")
    assert token_of(login).value == "first"


@pytest.mark.parametrize(("life_s", "used_for_s"), [(100.0, 50.0), (14.0, 4.0), (7.0, 0.0)])
def test_a_supplier_is_asked_again_while_there_is_time_to_renew(
    monkeypatch: pytest.MonkeyPatch, life_s: float, used_for_s: float
) -> None:
    now_s, asked = 1000.0, 0
    monkeypatch.setattr("pulsar_on_kafka.kafka.security.time.time", lambda: now_s)

    def supply() -> Token:
        nonlocal asked
        asked += 1
        return Token(f"t{asked}", now_s + life_s)

    tokens = TokenSource(supply, "me")
    assert tokens.current().value == "t1"
    now_s += used_for_s - 0.1
    assert tokens("")[0] == ("t1" if used_for_s else "t2")
    now_s += 0.2
    assert tokens("")[0] == ("t2" if used_for_s else "t3")


@pytest.mark.parametrize("token", [None, 5, b"x"])
def test_a_supplier_of_something_else_is_told(token: Any) -> None:
    with pytest.raises(NoCredentials, match="expected str"):
        token_of(pulsar.AuthenticationToken(lambda: token))


def test_an_expired_token_is_told_at_once() -> None:
    with pytest.raises(NoCredentials, match="expired"):
        token_of(pulsar.AuthenticationToken(jwt(exp=time.time() - 5)))


def test_equal_logins_share_a_node() -> None:
    def identity(login: pulsar.Authentication) -> object:
        return KafkaSettings("b:1", security=ConnectionSecurity(login).applied(tls=True)).identity

    assert identity(pulsar.AuthenticationToken("a")) == identity(pulsar.AuthenticationToken("a"))
    assert identity(pulsar.AuthenticationToken("a")) != identity(pulsar.AuthenticationToken("b"))
    assert identity(pulsar.AuthenticationBasic("a", "b")) != identity(pulsar.AuthenticationBasic("a", "c"))


def test_raw_options_win_and_another_mechanism_asks_for_no_token() -> None:
    login = ConnectionSecurity(pulsar.AuthenticationToken("a")).applied(tls=True)
    own = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", "sasl.password": SECRET}
    settings = KafkaSettings("b:1", own, security=login)
    found = settings.common()
    assert (found["security.protocol"], found["sasl.mechanism"]) == ("SASL_PLAINTEXT", "SCRAM-SHA-512")
    assert "sasl.mechanisms" not in found
    assert "oauth_cb" not in found
    assert KafkaSettings("b:1", security=login).common()["oauth_cb"] == login.tokens
    assert SECRET not in repr(settings)
    assert SECRET not in repr(Security({"sasl.password": SECRET}))


@pytest.mark.parametrize("kind", ["producer", "reader", "group_member"])
def test_every_kind_of_handle_logs_in(kind: str) -> None:
    security = ConnectionSecurity(pulsar.AuthenticationBasic("a", "b")).applied(tls=True)
    settings = KafkaSettings("b:1", security=security)
    made = {
        "producer": lambda: settings.producer(compression="none", message_timeout_ms=1, linger_ms=1),
        "reader": lambda: settings.reader(fetch_queue_kbytes=1),
        "group_member": lambda: settings.group_member(
            group_id="g", client_id="c", fetch_queue_kbytes=1, partitioned=False
        ),
    }[kind]()
    assert {name: made[name] for name in security.options} == security.options


def test_the_url_says_whether_it_is_tls() -> None:
    assert parse_service_url("kafka+ssl://a:1,b:2") == ("a:1,b:2", True)
    assert parse_service_url("kafka://a:1") == ("a:1", False)


# OAuth 2.0 ------------------------------------------------------------------------------------------------------------


class _Issuer(BaseHTTPRequestHandler):
    forms: list[dict[str, list[str]]]

    def do_GET(self) -> None:
        self._say(200, {"token_endpoint": f"http://127.0.0.1:{self.server.server_port}/token"})  # type: ignore[attr-defined]

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.forms.append(form)
        if form["client_secret"] == [SECRET]:
            self._say(200, {"access_token": jwt(sub="alice"), "expires_in": 300})
        else:
            self._say(401, {"error": "invalid_client"})

    def _say(self, status: int, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        return


@pytest.fixture
def issuer() -> Iterator[str]:
    _Issuer.forms = []
    with HTTPServer(("127.0.0.1", 0), _Issuer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("form", ["path", "url", "data"])
def test_oauth2_gets_its_token_from_the_issuer(issuer: str, tmp_path: Path, form: str) -> None:
    text = json.dumps({"client_id": "me", "client_secret": SECRET})
    file = tmp_path / "key.json"
    file.write_text(text)
    encoded = base64.b64encode(text.encode()).decode()
    key = {"path": str(file), "url": f"file://{file}", "data": f"data:application/json;base64,{encoded}"}[form]
    login = pulsar.AuthenticationOauth2(json.dumps({"issuer_url": issuer, "private_key": key, "audience": "kafka"}))
    token = token_of(login)
    assert token.principal == "alice"
    assert 290 < token.expires_s - time.time() <= 300
    assert _Issuer.forms == [
        {"grant_type": ["client_credentials"], "client_id": ["me"], "client_secret": [SECRET], "audience": ["kafka"]}
    ]


def test_what_fails_on_the_way_to_a_token_is_told_without_the_secret(issuer: str, tmp_path: Path) -> None:
    wrong = {"issuer_url": issuer, "client_id": "me", "client_secret": "wrong-" + SECRET}
    with pytest.raises(NoCredentials, match="401") as refused:
        token_of(pulsar.AuthenticationOauth2(json.dumps(wrong)))
    assert SECRET not in str(refused.value)
    broken = tmp_path / "broken.json"
    broken.write_text(SECRET)
    for key, issuer_url in ((str(tmp_path / "none"), issuer), (str(broken), issuer), ("x", "file:///etc/passwd")):
        fields = {"issuer_url": issuer_url, "private_key": key, "client_id": "c", "client_secret": "s"}
        with pytest.raises(NoCredentials) as failed:
            token_of(pulsar.AuthenticationOauth2(json.dumps(fields)))
        assert SECRET not in str(failed.value)
