"""Both phases of the deletion of ledgers, as one process of a cluster takes part in them."""

from __future__ import annotations

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.client.client import Client
from pulsar_on_kafka.ledgers.trusted import TrustedLedgers
from pulsar_on_kafka.node.node import Node
from pulsar_on_kafka.service.ledgers.deletion_events import VISIBLE_AFTER_S, KafkaDeletionEvents
from pulsar_on_kafka.service.ledgers.log_use import KafkaLogUse
from pulsar_on_kafka.service.ledgers.open_trimming import OpenTrimming
from pulsar_on_kafka.service.ledgers.partition_look import PartitionLook
from pulsar_on_kafka.service.ledgers.retirement import Retirement
from pulsar_on_kafka.service.ledgers.topic_deletion import TopicDeletion
from pulsar_on_kafka.service.ledgers.worker import RETRY_S, DeletionWorker


class LedgerDeletion:
    """`retirement`, `open_trimming` and `topics` are for the thread of `Maintenance`; the worker, once there is one,
    has its own. Close `Maintenance` first."""

    def __init__(
        self, client: Client, node: Node, *, visible_after_s: float = VISIBLE_AFTER_S, retry_s: float = RETRY_S
    ) -> None:
        """`client` is of the same cluster as `node`; see `KafkaDeletionEvents` and `DeletionWorker`. Asks nothing of
        Kafka."""
        self._client = client
        self._node = node
        self._retry_s = retry_s
        self._trusted = TrustedLedgers()
        self._use = KafkaLogUse(node, node.memberships.cursors.read)
        self._events = KafkaDeletionEvents(client, node, visible_after_s=visible_after_s)
        self.retirement = Retirement(self._use, self._events, self._trusted)
        self.open_trimming = OpenTrimming(self._use, node.clock)
        self.topics = TopicDeletion(node.topics, node.admin, self._events)
        self.worker: DeletionWorker | None = None

    def work(self) -> DeletionWorker:
        """Begin to delete what is asked for, here or elsewhere; once."""
        if self.worker is None:
            look = PartitionLook(self._node, self._use, self.topics)
            self.worker = DeletionWorker(self._client, self._node, look, self._trusted, retry_s=self._retry_s)
        return self.worker

    def close(self, deadline: Deadline) -> None:
        """A second call does nothing."""
        if self.worker is not None:
            self.worker.close(deadline)
        self._events.close()
