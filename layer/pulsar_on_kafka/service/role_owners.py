"""Each role of a service has a Kafka group whose members own its parts: this module lists them, from any process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.processes import stands_in
from pulsar_on_kafka.base.role_state import RoleName
from pulsar_on_kafka.broker.managed_ledger.deletion_topics import deletion_group, maintenance_group
from pulsar_on_kafka.broker.transactions.serving.coordinators import coordinators_group
from pulsar_on_kafka.kafka.admin import KafkaAdmin
from pulsar_on_kafka.service.replication.replication import Replication
from pulsar_on_kafka.service.replication.subscriptions.replicated_subscriptions import ReplicatedSubscriptions
from pulsar_on_kafka_mapping.state.instances import Instance


@dataclass(frozen=True, slots=True)
class RoleOwner:
    """A process that has a share of a role: `client_id` and host of its membership, and the number of its parts.
    `stands_in`: whether it is a client's process, for want of a service."""

    client_id: str
    host: str
    parts: int
    stands_in: bool


def role_groups(instance: Instance) -> Mapping[RoleName, str]:
    """The consumer group of each role."""
    return {
        RoleName.MAINTENANCE: maintenance_group(instance),
        RoleName.DELETION: deletion_group(instance),
        RoleName.TRANSACTIONS: coordinators_group(instance),
        RoleName.SUBSCRIPTIONS: instance.group(ReplicatedSubscriptions.topic, ReplicatedSubscriptions.work),
        RoleName.REPLICATION: instance.group(Replication.topic, Replication.work),
    }


def role_owners(admin: KafkaAdmin, instance: Instance, deadline: Deadline) -> dict[RoleName, tuple[RoleOwner, ...]]:
    """The members of each role. Raises StoreError: the groups cannot be read."""
    return {
        role: tuple(
            RoleOwner(each.client_id, each.host, len(each.assigned), stands_in(each.client_id))
            for each in admin.describe_group(group, deadline).members
        )
        for role, group in role_groups(instance).items()
    }
