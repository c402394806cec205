"""Message TTL on Kafka: cursors are moved past expired messages, in whichever process owns them.

Kafka itself returns the offset of the first record that is young enough, requested once for each TTL and partition. So
no data is read, and without expired messages no cursor is touched.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.broker.managed_ledger.expiry import acknowledged_by_ttl, expiry_horizon_ms
from pulsar_on_kafka.broker.managed_ledger.owner import TopicLogs
from pulsar_on_kafka.broker.metadata.policies import MESSAGE_TTL_IN_SECONDS
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.broker.node.log_needs import ReadCursors
from pulsar_on_kafka.broker.node.services import Services
from pulsar_on_kafka_mapping.names.subscription_group import cluster_of
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import AcknowledgeUpTo, CursorCommand

_log: Final = logging.getLogger(__name__)
_CURSOR_S: Final = 10.0

ChangeCursors: TypeAlias = Callable[[Subscription, Mapping[int, CursorCommand], Deadline], Mapping[int, int]]


class MessageExpiry:
    """Expires messages, in one thread. Memory: some numbers for each partition of the topics that have a TTL, during a
    run."""

    def __init__(self, services: Services, read_cursors: ReadCursors, change_cursors: ChangeCursors) -> None:
        """`read_cursors` gives them as last saved, `change_cursors` returns when every wish is fulfilled, durably."""
        self._services = services
        self._read_cursors = read_cursors
        self._change_cursors = change_cursors

    def run(self, topics: Iterable[TopicLogs], deadline: Deadline) -> int:
        """Acknowledge what has expired of these topics; gives on how many cursors of partitions something did.

        What cannot be done on a subscription now is logged, and left to the next run.
        """
        by_name = {TopicName.parse(topic.name): topic for topic in topics}
        ttls = self._services.applied_to(by_name, MESSAGE_TTL_IN_SECONDS, deadline)
        by_ttl: dict[int, list[TopicLogs]] = defaultdict(list)
        for name, ttl_s in ttls.items():
            if ttl_s > 0:
                by_ttl[ttl_s].append(by_name[name])
        return sum(self._expire_all(concerned, ttl_s, deadline) for ttl_s, concerned in by_ttl.items())

    def _expire_all(self, topics: Sequence[TopicLogs], ttl_s: int, deadline: Deadline) -> int:
        horizon_ms = expiry_horizon_ms(ttl_s, self._services.clock.now_ms())
        if horizon_ms is None:
            return 0
        places = [(topic.kafka_topic, partition) for topic in topics for partition in topic.logs]
        young = self._services.admin.offsets_at_time(places, horizon_ms, deadline)
        expired = 0
        for topic in topics:
            first_live: dict[int, int] = {}
            for partition, log in topic.logs.items():
                if (topic.kafka_topic, partition) in young:
                    # Where all records are older, the limit is the log's end at the time before the request.
                    first = young[topic.kafka_topic, partition]
                    first_live[partition] = log.end if first is None else first
            if any(first > topic.logs[partition].start for partition, first in first_live.items()):
                expired += self._expire(topic, first_live, deadline)
        return expired

    def _expire(self, topic: TopicLogs, first_live: Mapping[int, int], deadline: Deadline) -> int:
        """Expires messages on every subscription of a topic, except those of replicators: expired messages are copied
        first there."""
        opened = self._services.topics.find(TopicName.parse(topic.name), deadline)
        if opened is None or opened.layout != topic.layout:
            return 0
        expired = 0
        for subscription in self._services.subscriptions.list(opened, deadline):
            if cluster_of(subscription.name) is not None:
                continue
            try:
                expired += self._acknowledge(subscription, first_live, Deadline.after(_CURSOR_S))
            except LayerError as failure:
                deadline.check(f"messages of {topic.name} to expire")
                _log.warning("cursor=%s/%s messages could not expire: %s", topic.name, subscription.name, failure)
        return expired

    def _acknowledge(self, subscription: Subscription, first_live: Mapping[int, int], deadline: Deadline) -> int:
        commands: dict[int, CursorCommand] = {}
        for partition, cursor in self._read_cursors(subscription, deadline).items():
            if partition not in first_live:
                continue
            upto = acknowledged_by_ttl(cursor.state.next_unacked, first_live[partition])
            if upto is not None:
                commands[partition] = AcknowledgeUpTo(upto)
        if commands:
            self._change_cursors(subscription, commands, deadline)
            _log.info("cursor=%s/%s expired up to %s", subscription.topic.name, subscription.name, commands)
        return len(commands)
