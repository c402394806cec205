"""TLS and SASL listeners, and ACLs, for the embedded broker: to test with, and to try rights out.

PLAINTEXT  as without; with ACLs its clients are User:ANONYMOUS, the super user
TLS        mutual TLS; a client is User:<subject of its certificate>, as in User:CN=alice
SASL       SASL over TLS: PLAIN with `users`, OAUTHBEARER with unsecured tokens (`alg: none`); User:<name>
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pulsar_on_kafka.embedded.errors import EmbeddedBrokerError

LISTENERS: Final = ("TLS", "SASL")

_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_BEARER: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_UNSECURED: Final = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)
_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@dataclass(frozen=True, slots=True)
class SecureListeners:
    """Listeners with TLS and SASL: certificates, users and ACLs.

    Attributes:
        keystore: PEM file with the broker's private key (PKCS 8) and certificate.
        truststore: PEM file with the authorities of client certificates.
        users: name to password, for SASL/PLAIN.
        acls: whether Kafka's ACLs count: what none allows is forbidden, except to User:ANONYMOUS.
        reauthenticate_ms: how long a SASL login lasts; 0 for as long as its connection.
    """

    keystore: Path
    truststore: Path
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    acls: bool = True
    reauthenticate_ms: int = 0

    def added_to(self, properties: Mapping[str, str], host: str, ports: Mapping[str, int]) -> dict[str, str]:
        """The broker's properties with these listeners.

        Raises:
            EmbeddedBrokerError: a name or password has a quote, a backslash or a semicolon.
        """
        addresses = "".join(f",{name}://{host}:{ports[name]}" for name in LISTENERS)
        acls = {"authorizer.class.name": _AUTHORIZER, "super.users": "User:ANONYMOUS"} if self.acls else {}
        sasl = "listener.name.sasl"
        return {
            **properties,
            **acls,
            "listeners": properties["listeners"] + addresses,
            "advertised.listeners": properties["advertised.listeners"] + addresses,
            "listener.security.protocol.map": properties["listener.security.protocol.map"] + ",TLS:SSL,SASL:SASL_SSL",
            **self._tls("listener.name.tls", client_auth="required"),
            **self._tls(sasl, client_auth="none"),
            f"{sasl}.sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
            f"{sasl}.plain.sasl.jaas.config": f"{_PLAIN} required{self._jaas_users()};",
            f"{sasl}.oauthbearer.sasl.jaas.config": f"{_BEARER} required;",
            f"{sasl}.oauthbearer.sasl.server.callback.handler.class": _UNSECURED,
            f"{sasl}.plain.connections.max.reauth.ms": str(self.reauthenticate_ms),
            f"{sasl}.oauthbearer.connections.max.reauth.ms": str(self.reauthenticate_ms),
        }

    def _tls(self, prefix: str, *, client_auth: str) -> dict[str, str]:
        return {
            f"{prefix}.ssl.keystore.type": "PEM",
            f"{prefix}.ssl.keystore.location": str(self.keystore),
            f"{prefix}.ssl.truststore.type": "PEM",
            f"{prefix}.ssl.truststore.location": str(self.truststore),
            f"{prefix}.ssl.client.auth": client_auth,
        }

    def _jaas_users(self) -> str:
        for name, password in self.users.items():
            if not set('"\\;\r\n').isdisjoint(name + password):
                raise EmbeddedBrokerError(f"user {name!r}: no quotes, backslashes or semicolons, please")
        return "".join(f' user_{name}="{password}"' for name, password in self.users.items())
