"""The Kafka group that shares the coordinators out: whoever is assigned partition i of its topic is coordinator i.

The topic holds no data.
"""

from __future__ import annotations

from collections.abc import Callable

from layer.kafka.group import GroupCallbacks, GroupConsumer
from layer.kafka.shared_work import Assignment, SharedWork
from layer.transactions.coordinators import Coordinators
from mapping.instances import Instance
from mapping.state_topics import TRANSACTION_COORDINATOR_ASSIGN


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
