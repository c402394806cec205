"""Rights that each kind of program needs: the tables of docs/acls.md, as data.

Names have `{state}` (the prefix of the instance), `{topic}` (Kafka's name), `{subscription}` and `{namespace}` (the
beginning of Kafka's names in it) in them; one that ends in `*` is a prefix.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from pulsar_on_kafka.kafka.rights import Right
from pulsar_on_kafka.mapping.names.subscription_group import group_id
from pulsar_on_kafka.mapping.names.topic_name import TopicName
from pulsar_on_kafka.mapping.state.instances import EVERYBODYS, Instance

RIGHTS: Final[Mapping[str, tuple[Right, ...]]] = {
    "Producer": (
        Right("Read", "topic", "{state}topics"),
        Right("Write", "topic", "{topic}"),
        Right("Read", "topic", "{state}producers"),
        Right("Write", "topic", "{state}producers"),
        Right("Create", "topic", "{state}producers"),
    ),
    "Consumer": (
        Right("Read", "topic", "{state}producers"),
        Right("Read", "topic", "{state}topics"),
        Right("Read", "topic", "{state}subscriptions"),
        Right("Write", "topic", "{state}subscriptions"),
        Right("Read", "topic", "{state}cursors"),
        Right("Write", "topic", "{state}cursors"),
        Right("Read", "topic", "{state}cursor_checkpoints"),
        Right("Write", "topic", "{state}cursor_checkpoints"),
        Right("Read", "topic", "{state}deliveries"),
        Right("Write", "topic", "{state}deliveries"),
        Right("Create", "topic", "{state}*"),
        Right("Read", "topic", "{topic}"),
        Right("Read", "topic", "{state}ledgers"),
        Right("Read", "group", "{topic}/{subscription}"),
        Right("Delete", "group", "{topic}/{subscription}"),
        Right("Write", "transactional-id", "{topic}/{subscription}"),
    ),
    "Reader": (
        Right("Read", "topic", "{state}topics"),
        Right("Read", "topic", "{state}producers"),
        Right("Read", "topic", "{topic}"),
    ),
    "Schemas": (
        Right("Read", "topic", "{state}schemas"),
        Right("Write", "topic", "{state}schemas"),
        Right("Create", "topic", "{state}schemas"),
    ),
    "Transactions": (
        Right("Write", "topic", "{state}transaction_requests"),
        Right("Read", "topic", "{state}transaction_requests"),
        Right("Read", "topic", "{state}__transaction_log"),
        Right("Read", "topic", "{state}__transaction_buffer_snapshot"),
        Right("Write", "topic", "{state}__transaction_buffer_snapshot"),
        Right("Read", "topic", "{state}__transaction_pending_ack"),
        Right("Write", "topic", "{state}__transaction_pending_ack"),
    ),
    "Coordinators": (
        Right("Read", "group", "{state}transaction_coordinator_assign/coordinators"),
        Right("Read", "topic", "{state}transaction_coordinator_assign"),
        Right("Create", "topic", "{state}*"),
        Right("Write", "topic", "{state}__transaction_log"),
        Right("Read", "topic", "{state}topics"),
        Right("Read", "topic", "{state}subscriptions"),
        Right("Write", "topic", "{topic}"),
        Right("Read", "topic", "{topic}"),
        Right("DescribeConfigs", "topic", "{topic}"),
        Right("AlterConfigs", "topic", "{topic}"),
    ),
    "Service": (
        Right("Read", "group", "{state}ledgers/maintenance"),
        Right("Read", "topic", "{state}ledgers"),
        Right("Write", "topic", "{state}ledgers"),
        Right("Read", "topic", "{state}topics"),
        Right("Describe", "topic", "{namespace}.*"),
        Right("Read", "topic", "{namespace}.*"),
        Right("Read", "topic", "{state}*"),
        Right("Write", "topic", "{state}*"),
        Right("Describe", "group", "{namespace}.*"),
        Right("Delete", "topic", "{namespace}.*"),
        Right("Read", "topic", "{state}__ledger_deletion*"),
        Right("Write", "topic", "{state}__ledger_deletion*"),
        Right("Read", "group", "{state}subscription_progress/replication"),
        Right("Create", "topic", "{state}__ledger_deletion*"),
        Right("Read", "group", "{state}__ledger_deletion*"),
    ),
    "Dead letters": (
        Right("Write", "topic", "{topic}-{subscription}-DLQ"),
        Right("Create", "topic", "{topic}-{subscription}-DLQ"),
        Right("Write", "topic", "{state}topics"),
        Right("Write", "topic", "{state}producers"),
    ),
    "Retry letters": (
        Right("Read", "topic", "{topic}-{subscription}-RETRY"),
        Right("Write", "topic", "{topic}-{subscription}-RETRY"),
        Right("Create", "topic", "{topic}-{subscription}-RETRY"),
        Right("Read", "group", "{topic}-{subscription}-RETRY/{subscription}"),
    ),
    "Administrator": (
        Right("Read", "topic", "{state}*"),
        Right("Write", "topic", "{state}*"),
        Right("Create", "topic", "{state}*"),
        Right("Alter", "topic", "{state}transaction_coordinator_assign"),
        Right("Alter", "topic", "{state}transaction_requests"),
        Right("Alter", "topic", "{state}__transaction_log"),
        Right("Describe", "topic", "{namespace}.*"),
        Right("Create", "topic", "{namespace}.*"),
        Right("Alter", "topic", "{namespace}.*"),
        Right("Delete", "topic", "{namespace}.*"),
        Right("Read", "topic", "{namespace}.*"),
        Right("Read", "group", "{namespace}.*"),
        Right("Write", "transactional-id", "{namespace}.*"),
        Right("Delete", "group", "{namespace}.*"),
        Right("Describe", "group", "{state}__ledger_deletion*"),
    ),
}
"""By section of docs/acls.md."""

ROLES: Final[Mapping[str, tuple[str, ...]]] = {
    "producer": ("Producer",),
    "consumer": ("Consumer",),
    "reader": ("Reader",),
    "admin": ("Administrator",),
    "service": ("Transactions", "Coordinators", "Service"),
}


class Extra(str, Enum):
    """Features that a program may use besides."""

    SCHEMAS = "schemas"
    TRANSACTIONS = "transactions"
    COORDINATORS = "coordinators"
    DEAD_LETTERS = "dead-letters"
    RETRY_LETTERS = "retry-letters"

    @property
    def section(self) -> str:
        """Of docs/acls.md."""
        return self.value.replace("-", " ").capitalize()


_NAMESPACES: Final = Right("Read", "topic", "{state}namespaces")


def rights_of(
    role: str,
    topic: TopicName,
    subscription: str = "",
    extras: Iterable[Extra] = (),
    instance: Instance = EVERYBODYS,
) -> list[Right]:
    """Each right once, in the order of the tables. `role`: of ROLES.

    Raises:
        ValueError: a right is about a subscription, and none is named.
    """
    sections = (*ROLES[role], *(extra.section for extra in extras))
    name = instance.kafka_topic(topic)
    wanted: dict[Right, None] = {}
    for right in (right for section in sections for right in RIGHTS[section]):
        if "{subscription}" in right.name and not subscription:
            raise ValueError(f"{right.operation} on {right.kind} {right.name} is about a subscription; name it")
        group = right.name == "{topic}/{subscription}"
        made = group_id(name, subscription) if group else right.name.format(
            state=instance.prefix, topic=name, subscription=subscription, namespace=name.rpartition(".")[0]
        )  # fmt: skip
        wanted[right._replace(name=made)] = None
    if topic.namespace_name != "public/default":
        wanted[_NAMESPACES._replace(name=_NAMESPACES.name.format(state=instance.prefix))] = None
    return list(wanted)


def command_line(right: Right, principal: str) -> str:
    """The command of Kafka's own tool that grants it; `--bootstrap-server` is the reader's to add."""
    prefixed = right.name.endswith("*")
    name = right.name[:-1] if prefixed else right.name
    pattern = " --resource-pattern-type prefixed" if prefixed else ""
    where = f"--{right.kind} '{name}'"
    return f"kafka-acls --add --allow-principal '{principal}' --operation {right.operation} {where}{pattern}"
