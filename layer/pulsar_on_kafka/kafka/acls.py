"""Kafka's ACLs of topics, groups and transactional ids, as values."""

from __future__ import annotations

from typing import Any, NamedTuple

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)


class Acl(NamedTuple):
    """One rule of Kafka's ACLs, for one principal. `kind` (topic, group, transactional-id) and `operation` (Read,
    AlterConfigs) are as kafka-acls spells them; `prefixed`: of everything whose name begins with `name`."""

    kind: str
    name: str
    prefixed: bool
    principal: str
    host: str
    operation: str
    allows: bool

    def command(self) -> str:
        """The `kafka-acls` line that creates it, without the servers."""
        word = "allow" if self.allows else "deny"
        pattern = "prefixed" if self.prefixed else "literal"
        return (
            f"kafka-acls --add --{word}-principal '{self.principal}' --{word}-host '{self.host}' --operation "
            f"{self.operation} --{self.kind} '{self.name}' --resource-pattern-type {pattern}"
        )


_KINDS = {
    ResourceType.TOPIC: "topic",
    ResourceType.GROUP: "group",
    ResourceType.TRANSACTIONAL_ID: "transactional-id",
}
_PATTERNS = {ResourcePatternType.LITERAL: False, ResourcePatternType.PREFIXED: True}


def filters() -> list[AclBindingFilter]:
    any_text: Any = None  # confluent-kafka's own types do not know it
    return [
        AclBindingFilter(
            kind,
            any_text,
            ResourcePatternType.ANY,
            any_text,
            any_text,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        for kind in _KINDS
    ]


def read(found: AclBinding) -> Acl | None:
    """None for a kind of resource or pattern that is not known here."""
    if found.restype not in _KINDS or found.resource_pattern_type not in _PATTERNS:
        return None
    return Acl(
        _KINDS[found.restype],
        found.name,
        _PATTERNS[found.resource_pattern_type],
        found.principal,
        found.host,
        _word(AclOperation(found.operation)),
        found.permission_type is AclPermissionType.ALLOW,
    )


def binding(acl: Acl) -> AclBinding:
    kinds = {name: kind for kind, name in _KINDS.items()}
    patterns = {prefixed: pattern for pattern, prefixed in _PATTERNS.items()}
    operations = {_word(operation): operation for operation in AclOperation}
    return AclBinding(
        kinds[acl.kind],
        acl.name,
        patterns[acl.prefixed],
        acl.principal,
        acl.host,
        operations[acl.operation],
        AclPermissionType.ALLOW if acl.allows else AclPermissionType.DENY,
    )


def _word(operation: AclOperation) -> str:
    return "".join(word.capitalize() for word in operation.name.split("_"))
