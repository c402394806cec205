"""A process that takes part in the deletion of ledgers until its standard input ends, and may be killed at a step.

It says which partitions of `ledgers` it keeps ("owns 3 4 5"), and where it is killed ("cut sent").
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.managed_ledger.model import Ledger
from pulsar_on_kafka.broker.managed_ledger.owner import LedgerOwner
from pulsar_on_kafka.broker.metadata.topic_records import TopicRecords
from pulsar_on_kafka.broker.metadata.topics import Topics
from pulsar_on_kafka.kafka.admin import KafkaAdmin
from pulsar_on_kafka.service.ledgers.deletion_events import KafkaDeletionEvents
from pulsar_on_kafka.service.ledgers.maintenance import Maintenance
from pulsar_on_kafka.service.ledgers.partition_state import PartitionLook
from pulsar_on_kafka.service.running import LedgerDeletion
from pulsar_on_kafka_mapping.state.metadata.ledger_records import LedgerState
from tests.chaos.wrapping import wrap

MAINTENANCE: Final = "maintenance"
WORKER: Final = "worker"
MAINTENANCE_CUTS: Final = ("marked", "sent", "removed")
"""DELETING is written; events are durable, ledgers still listed; REMOVED is written."""
WORKER_CUTS: Final = ("deleting", "deleted")
"""Before data is deleted; after that, before the event is acknowledged."""
TOPIC_CUTS: Final = ("sent", "noted", "ending", "ended")
"""Of a topic's deletion: events are durable; its record says so; before the Kafka topic is deleted; after that."""

EVERY_S: Final = 0.3
RETRY_S: Final = 2.0
"""Ten times that is longer than Kafka takes to give the lists of a process that was killed to another one."""


@dataclass(frozen=True)
class DeletionOrders:
    """`cut` "" for none; `nth`: at which time the process takes that step."""

    service_url: str
    roles: tuple[str, ...]
    cut: str = ""
    nth: int = 1


def say(what: str) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


class Cut:
    """SIGKILL before or after one of the steps."""

    def __init__(self, point: str, nth: int) -> None:
        self._point = point
        self._left = nth

        def restate(
            original: Callable[..., None],
            owner: LedgerOwner,
            ledgers: Iterable[Ledger],
            state: LedgerState,
            deadline: Deadline,
        ) -> None:
            written = list(ledgers)
            original(owner, written, state, deadline)
            if written:
                self._after({LedgerState.DELETING: "marked", LedgerState.REMOVED: "removed"}.get(state, ""))

        wrap(LedgerOwner, LedgerOwner.restate, restate)
        self._around(KafkaDeletionEvents, KafkaDeletionEvents.send, "", "sent")
        self._around(PartitionLook, PartitionLook.delete, "deleting", "deleted")
        self._around(TopicRecords, TopicRecords.note_deletion_ends, "", "noted")
        self._around(Topics, Topics.finish_deletion, "ending", "")
        self._around(KafkaAdmin, KafkaAdmin.delete_topic, "", "ended")

    def _around(self, owner: type[Any], function: Callable[..., Any], before: str, after: str) -> None:
        def around(original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
            self._after(before)
            answer = original(*arguments, **named)
            self._after(after)
            return answer

        wrap(owner, function, around)

    def _after(self, point: str) -> None:
        if not point or point != self._point:
            return
        self._left -= 1
        if self._left == 0:
            say(f"cut {point}")
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    given = json.loads(sys.argv[1])
    orders = DeletionOrders(given["service_url"], tuple(given["roles"]), given["cut"], given["nth"])
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    Cut(orders.cut, orders.nth)
    with AdminClient(orders.service_url) as admin:
        client = pulsar.Client(orders.service_url)
        deletion = LedgerDeletion(client, admin.node, visible_after_s=0.1, retry_s=RETRY_S)
        if WORKER in orders.roles:
            deletion.work()
        maintenance = None
        if MAINTENANCE in orders.roles:
            maintenance = Maintenance(
                admin.node,
                every_s=EVERY_S,
                retirement=deletion.retirement,
                open_trimming=deletion.open_trimming,
                topic_deletion=deletion.topics,
            )
        owned: list[int] = []
        say("runs")
        while not ended.wait(0.1):
            if maintenance is not None and maintenance.owned() != owned:
                owned = maintenance.owned()
                say(f"owns {' '.join(map(str, owned))}")
        if maintenance is not None:
            maintenance.close(Deadline.after(10))
        deletion.close(Deadline.after(10))
        client.close()


if __name__ == "__main__":
    main()
