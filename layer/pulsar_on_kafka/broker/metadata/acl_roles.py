"""Rights that each kind of program needs: the tables of docs/acls.md, as data.

Names have `{state}` (the prefix of the instance), `{topic}` (Kafka's name), `{subscription}` and `{namespace}` (the
beginning of Kafka's names in it) in them; one that ends in `*` is a prefix.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from pulsar_on_kafka.kafka.rights import Right
from pulsar_on_kafka_mapping.names.subscription_group import group_id
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.instances import DEFAULT_INSTANCE, Instance

_ROWS: Final[Mapping[str, tuple[tuple[str, str, str], ...]]] = {
    "Producer": (
        ("Read", "topic", "{state}topics"),
        ("Write DescribeConfigs", "topic", "{topic}"),
        ("Read Write Create", "topic", "{state}producers"),
    ),
    "Consumer": (
        ("Read", "topic", "{state}producers"),
        ("Read", "topic", "{state}topics"),
        ("Read Write", "topic", "{state}subscriptions"),
        ("Read Write", "topic", "{state}cursors"),
        ("Read Write", "topic", "{state}cursor_checkpoints"),
        ("Read Write", "topic", "{state}deliveries"),
        ("Create", "topic", "{state}*"),
        ("Read", "topic", "{topic}"),
        ("Read", "topic", "{state}ledgers"),
        ("Read Delete", "group", "{topic}/{subscription}"),
        ("Write", "transactional-id", "{topic}/{subscription}"),
    ),
    "Reader": (
        ("Read", "topic", "{state}topics"),
        ("Read", "topic", "{state}producers"),
        ("Read", "topic", "{topic}"),
    ),
    "Schemas": (("Read Write Create", "topic", "{state}schemas"),),
    "Transactions": (
        ("Write Read", "topic", "{state}transaction_requests"),
        ("Read", "topic", "{state}__transaction_log"),
        ("Read Write", "topic", "{state}__transaction_buffer_snapshot"),
        ("Read Write", "topic", "{state}__transaction_pending_ack"),
    ),
    "Coordinators": (
        ("Read", "group", "{state}transaction_coordinator_assign/coordinators"),
        ("Read", "topic", "{state}transaction_coordinator_assign"),
        ("Create", "topic", "{state}*"),
        ("Write", "topic", "{state}__transaction_log"),
        ("Read", "topic", "{state}topics"),
        ("Read", "topic", "{state}subscriptions"),
        ("Write Read DescribeConfigs AlterConfigs", "topic", "{topic}"),
    ),
    "Service": (
        ("Read", "group", "{state}ledgers/maintenance"),
        ("Read Write", "topic", "{state}ledgers"),
        ("Read", "topic", "{state}topics"),
        ("Describe Read", "topic", "{namespace}.*"),
        ("Read Write", "topic", "{state}*"),
        ("Describe", "group", "{namespace}.*"),
        ("Delete", "topic", "{namespace}.*"),
        ("Read Write", "topic", "{state}__ledger_deletion*"),
        ("Read", "group", "{state}subscription_progress/replication"),
        ("Create", "topic", "{state}__ledger_deletion*"),
        ("Read", "group", "{state}__ledger_deletion*"),
    ),
    "Dead letters": (
        ("Write DescribeConfigs Create", "topic", "{topic}-{subscription}-DLQ"),
        ("Write", "topic", "{state}topics"),
        ("Write", "topic", "{state}producers"),
    ),
    "Retry letters": (
        ("Read Write DescribeConfigs Create", "topic", "{topic}-{subscription}-RETRY"),
        ("Read", "group", "{topic}-{subscription}-RETRY/{subscription}"),
    ),
    "Administrator": (
        ("Read Write Create", "topic", "{state}*"),
        ("Alter", "topic", "{state}transaction_coordinator_assign"),
        ("Alter", "topic", "{state}transaction_requests"),
        ("Alter", "topic", "{state}__transaction_log"),
        ("Describe Create Alter Delete Read", "topic", "{namespace}.*"),
        ("Read", "group", "{namespace}.*"),
        ("Write", "transactional-id", "{namespace}.*"),
        ("Delete", "group", "{namespace}.*"),
        ("Describe", "group", "{state}__ledger_deletion*"),
    ),
}
"""The rows of each section of docs/acls.md: operations on a kind of resource, and its name."""

RIGHTS: Final[Mapping[str, tuple[Right, ...]]] = {
    section: tuple(Right(operation, kind, name) for operations, kind, name in rows for operation in operations.split())
    for section, rows in _ROWS.items()
}
"""The rights of each section of docs/acls.md."""

ROLES: Final[Mapping[str, tuple[str, ...]]] = {
    "producer": ("Producer",),
    "consumer": ("Consumer",),
    "reader": ("Reader",),
    "admin": ("Administrator",),
    "service": ("Transactions", "Coordinators", "Service"),
}


class ProgramFeature(str, Enum):
    """Features that a program may use besides."""

    SCHEMAS = "schemas"
    TRANSACTIONS = "transactions"
    COORDINATORS = "coordinators"
    DEAD_LETTERS = "dead-letters"
    RETRY_LETTERS = "retry-letters"

    @property
    def section(self) -> str:
        return self.value.replace("-", " ").capitalize()


_NAMESPACES: Final = Right("Read", "topic", "{state}namespaces")


def rights_of(
    role: str,
    topic: TopicName,
    subscription: str = "",
    extras: Iterable[ProgramFeature] = (),
    instance: Instance = DEFAULT_INSTANCE,
) -> list[Right]:
    """Each right once, in the order of the tables. `role`: of ROLES.

    Raises:
        ValueError: a right is about a subscription, and none is named.
    """
    sections = (*ROLES[role], *(extra.section for extra in extras))
    name = instance.kafka_topic(topic)
    requested: dict[Right, None] = {}
    for right in (right for section in sections for right in RIGHTS[section]):
        if "{subscription}" in right.name and not subscription:
            raise ValueError(f"{right.operation} on {right.kind} {right.name} is about a subscription; name it")
        group = right.name == "{topic}/{subscription}"
        made = group_id(name, subscription) if group else right.name.format(
            state=instance.prefix, topic=name, subscription=subscription, namespace=name.rpartition(".")[0]
        )  # fmt: skip
        requested[right._replace(name=made)] = None
    if topic.namespace_name != "public/default":
        requested[_NAMESPACES._replace(name=_NAMESPACES.name.format(state=instance.prefix))] = None
    return list(requested)


def command_line(right: Right, principal: str) -> str:
    """The command of Kafka's own tool that grants it; `--bootstrap-server` is the reader's to add."""
    prefixed = right.name.endswith("*")
    name = right.name[:-1] if prefixed else right.name
    pattern = " --resource-pattern-type prefixed" if prefixed else ""
    where = f"--{right.kind} '{name}'"
    return f"kafka-acls --add --allow-principal '{principal}' --operation {right.operation} {where}{pattern}"
