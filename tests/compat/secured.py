"""A Pulsar and a Kafka with TLS, logins by token and authorization, for the scenarios about security.

Pulsar has its token and authorization providers, Kafka OAUTHBEARER and ACLs (those of docs/acls.md), and a gateway to a
Kafka without logins has tokens and permissions. What all know of each role is `tests.compat.harness.secured.ROLES`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
import ssl
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import pulsar_on_kafka
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.http_server import ServerTls
from pulsar_on_kafka.embedded import BrokerOptions, EmbeddedBroker, SecureListeners
from pulsar_on_kafka.gateway.login.access import GatewayAccess, TokenKey
from pulsar_on_kafka.gateway.server import Gateway, GatewaySettings
from tests.certificates import Authority, Identity
from tests.compat.harness import secured as roles
from tests.compat.harness.secured import Logins, SecuredSide
from tests.compat.pulsar_standalone import PulsarOptions, PulsarRelease, PulsarStandalone
from tests.integration.secure_support import SecureCluster, unsecured_token

_ACLS: Final = Path(__file__).resolve().parents[2] / "docs" / "acls.md"
_CLOSE_S: Final = 60.0
_LASTS_S: Final = 6 * 3600.0
_NAMESPACE: Final = "public/default"
_ACTIONS: Final = {roles.EVERYTHING: ["produce", "consume"], roles.PRODUCER: ["produce"], roles.CONSUMER: ["consume"]}
_PAGES: Final = {roles.ADMIN: ["Administrator"], roles.PRODUCER: ["Producer"], roles.CONSUMER: ["Consumer"]}


class Authorities:
    """The authority that signs the servers' certificates, and another one; their files lie in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.trusted = Authority(folder)
        self._other = Authority(folder, "another authority")
        # The client inside a broker of Pulsar 5 validates the name that it finds for the broker's address.
        self.server = self.trusted.issue("server", address="127.0.0.1", host="localhost")

    def logins(self, tokens: Mapping[str, str]) -> Logins:
        return Logins(str(self.trusted.file), str(self._other.file), tokens)


@contextmanager
def secured_clusters(release: PulsarRelease, *, on_gateway: bool = False) -> Iterator[Path]:
    """Start both; gives the file for `pok compat run --secured`, which goes with them. With `on_gateway`, Kafka's side
    is a gateway to a Kafka without logins.

    Raises:
        PulsarStandaloneError, EmbeddedBrokerError: one of them cannot be started; one line on why.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pok-secured-")))
        authorities = Authorities(folder)
        kafka = stack.enter_context(gateway_alone(authorities) if on_gateway else secured_kafka(authorities))
        pulsar = stack.enter_context(secured_pulsar(authorities, release))
        file = folder / "secured.json"
        file.write_text(json.dumps({"pulsar": asdict(pulsar), "kafka": asdict(kafka)}, indent=1), encoding="utf-8")
        yield file


@contextmanager
def secured_pulsar(authorities: Authorities, release: PulsarRelease) -> Iterator[SecuredSide]:
    """Raises PulsarStandaloneError: it cannot be started; one line on why."""
    key = secrets.token_bytes(32)
    tokens = _tokens(key)
    options = _pulsar_options(key, authorities.trusted, authorities.server)
    with PulsarStandalone(replace(options, release=release)) as pulsar:
        _grant_on_pulsar(pulsar.admin_url, authorities.trusted, tokens[roles.ADMIN])
        yield SecuredSide(pulsar.service_url, authorities.logins(tokens), pulsar.admin_url)


@contextmanager
def secured_kafka(authorities: Authorities) -> Iterator[SecuredSide]:
    """Raises EmbeddedBrokerError: it cannot be started; one line on why."""
    tokens = {
        **{role: unsecured_token(role, _LASTS_S) for role in roles.ROLES},
        roles.EXPIRED: unsecured_token(roles.EVERYTHING, -3600),
        # This broker accepts no token that is signed.
        roles.FORGED: _signed(secrets.token_bytes(32), roles.EVERYTHING, _LASTS_S),
    }
    listeners = SecureListeners(authorities.server.both, authorities.trusted.file)
    with EmbeddedBroker(BrokerOptions(heap_mb=512, security=listeners)) as broker:
        cluster = SecureCluster(broker, authorities.trusted)
        for role, pages in {**_PAGES, roles.EVERYTHING: ["Producer", "Consumer", "Administrator"]}.items():
            cluster.grant(role, dict.fromkeys(right for page in pages for right in _rights(page)))
        _make_the_state_topics(f"kafka://{broker.bootstrap}")
        yield SecuredSide(f"kafka+ssl://{broker.bootstrap_of('SASL')}", authorities.logins(tokens))


@contextmanager
def gateway_alone(authorities: Authorities) -> Iterator[SecuredSide]:
    """A secured gateway with a Kafka of its own. Raises EmbeddedBrokerError: that cannot be started."""
    broker = EmbeddedBroker(BrokerOptions(heap_mb=512))
    with broker, secured_gateway(authorities, f"kafka://{broker.bootstrap}") as side:
        yield side


@contextmanager
def secured_gateway(authorities: Authorities, kafka: str) -> Iterator[SecuredSide]:
    """A gateway in this process with TLS, tokens and permissions, to a Kafka without logins."""
    key = secrets.token_bytes(32)
    access = GatewayAccess(TokenKey(key, ("HS256",)), super_users=frozenset({roles.ADMIN}), authorization=True)
    tls = ServerTls(str(authorities.server.certificate), str(authorities.server.key))
    with AdminClient(kafka) as admin:
        for role, actions in _ACTIONS.items():
            admin.grant_permission(_NAMESPACE, role, actions)
        gateway = Gateway(admin.node, GatewaySettings(port=0, tls=tls, access=access, fleet="secured"))
        try:
            yield SecuredSide(kafka, authorities.logins(_tokens(key)), gateway=gateway.address())
        finally:
            gateway.close(Deadline.after(_CLOSE_S))


def _tokens(key: bytes) -> dict[str, str]:
    """Tokens by role, signed with the key, except a forged one."""
    return {
        **{role: _signed(key, role, _LASTS_S) for role in roles.ROLES},
        roles.EXPIRED: _signed(key, roles.EVERYTHING, -60),
        roles.FORGED: _signed(secrets.token_bytes(32), roles.EVERYTHING, _LASTS_S),
    }


def _make_the_state_topics(url: str) -> None:
    """The first uses of a cluster make them: here, before scenarios with little patience."""
    topic = "made-for-the-state-topics"
    client = pulsar_on_kafka.Client(url)
    consumer = client.subscribe(topic, "sub", initial_position=pulsar_on_kafka.InitialPosition.Earliest)
    client.create_producer(topic).send(b"x")
    consumer.acknowledge(consumer.receive(60_000), wait=True)
    client.close()


def _rights(section: str) -> list[tuple[str, str, str]]:
    """Those of docs/acls.md, on every topic and subscription of the namespace."""
    text = _ACLS.read_text(encoding="utf-8").split(f"## {section}\n", 1)[1].split("\n## ", 1)[0]
    found = re.findall(r"^\| (\w+) \| (topic|group|cluster) `([^`]+)` \|", text, re.MULTILINE)
    return [(operation, kind, re.sub(r"^(public\.default\.).*", r"\1*", name)) for operation, kind, name in found]


def _pulsar_options(key: bytes, authority: Authority, server: Identity) -> PulsarOptions:
    base64_key = base64.b64encode(key).decode()
    own_login = {"token": _signed(key, roles.ADMIN, _LASTS_S)}
    settings: dict[str, Any] = {
        "authenticationEnabled": "true",
        "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
        "tokenSecretKey": f"data:;base64,{base64_key}",
        "authorizationEnabled": "true",
        "superUserRoles": roles.ADMIN,
        "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "brokerClientAuthenticationParameters": json.dumps(own_login),
        "brokerClientTlsEnabled": "true",
        "brokerClientTrustCertsFilePath": str(authority.file),
        "tlsCertificateFilePath": str(server.certificate),
        "tlsKeyFilePath": str(server.key),
        "tlsTrustCertsFilePath": str(authority.file),
    }
    return PulsarOptions(
        start_timeout_s=300,
        heap_mb=800,
        direct_mb=512,
        extra=settings,
        tls_authority=authority.file,
        token=own_login["token"],
    )


def _grant_on_pulsar(admin_url: str, authority: Authority, token: str) -> None:
    context = ssl.create_default_context(cafile=str(authority.file))
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    for role, actions in _ACTIONS.items():
        url = f"{admin_url}/admin/v2/namespaces/{_NAMESPACE}/permissions/{role}"
        request = urllib.request.Request(url, json.dumps(actions).encode(), headers, method="POST")  # noqa: S310
        urllib.request.urlopen(request, timeout=30, context=context).close()  # noqa: S310 - our own address


def _signed(key: bytes, subject: str, lasts_s: float) -> str:
    """A JSON Web Token with HS256."""
    claims = {"sub": subject, "exp": int(time.time() + lasts_s)}
    signed = ".".join(_base64(json.dumps(part).encode()) for part in ({"alg": "HS256", "typ": "JWT"}, claims))
    return f"{signed}.{_base64(hmac.digest(key, signed.encode(), hashlib.sha256))}"


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
