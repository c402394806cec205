"""A broker with TLS, SASL and ACLs, and clients of it that may do what a test grants them."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient as Administrator
from pulsar_on_kafka.embedded import BrokerOptions, EmbeddedBroker, SecureListeners
from tests.certificates import Authority
from tests.waiting import until

ACLS = Path(__file__).resolve().parents[2] / "docs" / "acls.md"

PASSWORDS = {
    name: f"the-secret-of-{name}"
    for name in ("alice", "producer", "consumer", "admin", "nobody", "reader", "letters", "transactional", "serving")
}

_RESOURCES = {
    "topic": ResourceType.TOPIC, "group": ResourceType.GROUP, "cluster": ResourceType.BROKER,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
}  # fmt: skip
_OPERATIONS = {
    "Read": AclOperation.READ, "Write": AclOperation.WRITE, "Create": AclOperation.CREATE,
    "Delete": AclOperation.DELETE, "Alter": AclOperation.ALTER, "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS, "AlterConfigs": AclOperation.ALTER_CONFIGS,
    "IdempotentWrite": AclOperation.IDEMPOTENT_WRITE,
}  # fmt: skip


@dataclass(frozen=True)
class SecureCluster:
    broker: EmbeddedBroker
    authority: Authority

    def url(self, listener: Any) -> str:
        return f"kafka+ssl://{self.broker.bootstrap_of(listener)}"

    def client(self, authentication: pulsar.Authentication | None, listener: Any = "SASL", **more: Any) -> Any:
        return pulsar.Client(
            self.url(listener),
            authentication=authentication,
            tls_trust_certs_file_path=str(self.authority.file),
            **more,
        )

    def as_user(self, name: str, **more: Any) -> Any:
        return self.client(pulsar.AuthenticationBasic(name, PASSWORDS[name]), **more)

    def admin_as(self, name: str, **more: Any) -> Administrator:
        login = pulsar.AuthenticationBasic(name, PASSWORDS[name])
        trusted = str(self.authority.file)
        return Administrator(self.url("SASL"), authentication=login, tls_trust_certs_file_path=trusted, **more)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.broker.bootstrap})

    def grant(self, user: str, rights: Iterable[tuple[str, str, str]]) -> None:
        """Rights are (operation, kind, name); a name that ends in * is a prefix."""
        admin = self._admin()  # its futures end with it
        wanted = [_binding(user, *right) for right in dict.fromkeys(rights)]
        for future in admin.create_acls(wanted).values():
            future.result(60)
        # The controller has them; the broker's authorizer, which answers this, learns of them a moment later.
        everything = _all_of(user)
        until(lambda: set(wanted) <= set(admin.describe_acls(everything).result(60)), "the rights to be in force")

    def revoke_all(self, user: str) -> None:
        admin = self._admin()
        for future in admin.delete_acls([_all_of(user)]).values():
            future.result(60)


@contextmanager
def secure_cluster(authority: Authority) -> Iterator[SecureCluster]:
    """Raises EmbeddedBrokerError: there is none to be had."""
    listeners = SecureListeners(
        authority.issue("broker", address="127.0.0.1").both, authority.file, PASSWORDS, reauthenticate_ms=3000
    )
    with EmbeddedBroker(BrokerOptions(heap_mb=512, security=listeners)) as broker:
        yield SecureCluster(broker, authority)


def _all_of(user: str) -> AclBindingFilter:
    anything: Any = None
    return AclBindingFilter(
        ResourceType.ANY, anything, ResourcePatternType.ANY, f"User:{user}", anything, AclOperation.ANY,
        AclPermissionType.ANY,
    )  # fmt: skip


def _binding(user: str, operation: str, kind: str, name: str) -> AclBinding:
    prefixed = name.endswith("*") and name != "*"
    return AclBinding(
        _RESOURCES[kind],
        name[:-1] if prefixed else name,
        ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        _OPERATIONS[operation],
        AclPermissionType.ALLOW,
    )


def granted_by_the_page(section: str) -> list[tuple[str, str, str]]:
    """The rows of a table of docs/acls.md: (operation, kind, name)."""
    text = ACLS.read_text(encoding="utf-8").split(f"## {section}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^\| (\w+) \| (topic|group|transactional-id|cluster) `([^`]+)` \|", text, re.MULTILINE)


def unsecured_token(subject: str, lasts_s: float) -> str:
    """A JSON Web Token with `alg: none`, as Kafka's test handler takes it."""
    now = time.time()
    parts = ({"alg": "none"}, {"sub": subject, "iat": now, "exp": now + lasts_s})
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."
