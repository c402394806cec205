"""The Kafka group that shares the coordinators out: whoever is assigned partition i of its topic is coordinator i.

The topic holds no data.
"""

from __future__ import annotations

from collections.abc import Callable

from pulsar_on_kafka.kafka.groups.membership import GroupCallbacks, GroupConsumer
from pulsar_on_kafka.kafka.groups.shared_work import Assignment, SharedWork
from pulsar_on_kafka.mapping.state.instances import Instance
from pulsar_on_kafka.mapping.state.state_topics import TRANSACTION_COORDINATOR_ASSIGN
from pulsar_on_kafka.transactions.serving.coordinators import Coordinators


def coordinators_group(instance: Instance) -> str:
    return instance.group(TRANSACTION_COORDINATOR_ASSIGN, "coordinators")


class CoordinatorGroup(SharedWork):
    """This process's membership."""

    def __init__(
        self, coordinators: Coordinators, instance: Instance, open_member: Callable[[GroupCallbacks], GroupConsumer]
    ) -> None:
        super().__init__(
            coordinators_group(instance),
            open_member,
            Assignment(coordinators.on_assign, coordinators.on_revoke),
            name="pok-coordinators",
            without="this process serves no transactions, it asks others to",
        )
