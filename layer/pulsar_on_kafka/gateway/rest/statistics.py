"""Statistics over REST, with Pulsar's field names. Fields that the gateway does not measure are omitted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

from pulsar_on_kafka.admin import (
    ConsumerStats,
    PublisherStats,
    SubscriptionStats,
    TopicStats,
    bytes_from,
)
from pulsar_on_kafka.admin.stats import waiting_keys_of
from pulsar_on_kafka.exceptions import TopicNotFound
from pulsar_on_kafka.gateway.handlers.lookups import partitions_of
from pulsar_on_kafka.gateway.handlers.rate_meter import time_text
from pulsar_on_kafka.gateway.rest.internals import ledgers_by_partition
from pulsar_on_kafka.gateway.rest.policies import WHOLE
from pulsar_on_kafka.gateway.rest.request import RestError, RestRequest
from pulsar_on_kafka_mapping.names.topic_name import TopicName

MAX_TOPICS: Final = 200
"""Topics in the statistics of the gateway."""
_RATES_IN: Final = ("msgRateIn", "msgThroughputIn")
_RATES_OUT: Final = ("msgRateOut", "msgThroughputOut")
_COUNTERS_IN: Final = ("msgInCounter", "bytesInCounter")
_COUNTERS_OUT: Final = ("msgOutCounter", "bytesOutCounter")
"""Fields of the connected producers and consumers. The counts of former ones are not kept."""
_RATES_BACK: Final = ("msgRateRedeliver", "messageAckRate")
_TIMES: Final = ("lastConsumedFlowTimestamp", "lastConsumedTimestamp", "lastAckedTimestamp")
"""Those of a subscription are the latest of its connected consumers, as in Pulsar."""


def stats(request: RestRequest) -> dict[str, Any]:
    """The statistics of a topic without partitions, or of one partition."""
    name = TopicName.parse(request.topic)
    if name.partition < 0 and partitions_of(request.admin.node, request.topic, request.deadline(), may_be_made=False):
        raise RestError(404, f"topic {name} is partitioned: GET .../{request.names['topic']}/partitioned-stats")
    found = _TopicStatistics(request, name.base)
    if name.partition >= found.topic.partitions:
        raise RestError(404, f"topic {name.base} has {found.topic.partitions} partitions, none is {name.partition}")
    return found.of(None if name.partition < 0 else name.partition)


def partitioned_stats(request: RestRequest) -> dict[str, Any]:
    """The statistics of all partitions together, and of each unless `perPartition` is false."""
    found = partitions_of(request.admin.node, request.topic, request.deadline(), may_be_made=False)
    if not found:
        raise RestError(404, f"topic {request.topic} is not partitioned")
    name = TopicName.parse(request.topic)
    statistics = _TopicStatistics(request, name)
    each = range(found) if request.flag("perPartition", default=True) else ()
    return {
        **statistics.of(None),
        "metadata": {"partitions": found},
        "partitions": {str(name.with_partition(partition)): statistics.of(partition) for partition in each},
    }


def of_gateway(request: RestRequest) -> dict[str, Any]:
    """The statistics of the topics of this gateway's clients, by namespace, bundle and domain.

    Raises RestError: there are more than `MAX_TOPICS`, each of which is read from the cluster.
    """
    open_topics = sorted(request.cluster.topics(request.deadline()))
    if len(open_topics) > MAX_TOPICS:
        raise RestError(503, f"this gateway has {len(open_topics)} topics, more than {MAX_TOPICS}: read /metrics")
    found: dict[str, Any] = {}
    for topic in open_topics:
        name = TopicName.parse(topic)
        try:
            shown = _TopicStatistics(request, name.base).of(None if name.partition < 0 else name.partition)
        except TopicNotFound:
            continue  # it was deleted meanwhile
        bundle = found.setdefault(name.namespace_name, {}).setdefault(WHOLE, {})
        bundle.setdefault("persistent" if name.is_persistent else "non-persistent", {})[topic] = shown
    return found


class _TopicStatistics:
    """The statistics of one topic, read once from the cluster."""

    def __init__(self, request: RestRequest, name: TopicName) -> None:
        admin = request.admin
        self.topic: TopicStats = admin.topic_stats(str(name))
        self._subscriptions = {
            each: admin.subscription_stats(str(name), each) for each in admin.list_subscriptions(str(name))
        }
        self._consumers: dict[str, list[ConsumerStats]] = {
            each: admin.subscription_consumers(str(name), each) for each in self._subscriptions
        }
        self._ledgers = ledgers_by_partition(admin, str(name)) if name.is_persistent else {}
        self._times: dict[str, dict[int, int]] = {}
        if request.flag("getEarliestTimeInBacklog") and name.is_persistent:
            durable = [each for each, found in self._subscriptions.items() if found.durable]
            self._times = {each: admin.backlog_times(str(name), each) for each in durable}
        self._sizes_backlogs = request.flag("subscriptionBacklogSize", default=True)
        self._lists_publishers = not request.flag("excludePublishers")
        self._lists_consumers = not request.flag("excludeConsumers")

    def of(self, partition: int | None) -> dict[str, Any]:
        """The statistics of one partition, or of all together. Transactions, and producers and consumers of the SDK,
        belong to the whole topic."""
        subscriptions = {
            name: {
                **_subscription(found, partition, self._consumers_of(name, partition)),
                **self._sizes_of(found, partition),
            }
            for name, found in self._subscriptions.items()
            if partition is None or any(each.partition == partition for each in found.partitions)
        }
        listed = {
            name: found if self._lists_consumers else {**found, "consumers": []}
            for name, found in subscriptions.items()
        }
        publishers = self._publishers(partition)
        rates_in = _sums(publishers, _RATES_IN)
        whole = self.topic
        transactions = {"ongoingTxnCount": whole.ongoing_txn_count, "abortedTxnCount": whole.aborted_txn_count}
        return {
            **rates_in,
            "averageMsgSize": _average(rates_in["msgRateIn"], rates_in["msgThroughputIn"]),
            **_sums(subscriptions.values(), _RATES_OUT),
            **_counts(publishers, _COUNTERS_IN),
            **_counts(subscriptions.values(), _COUNTERS_OUT),
            "publishRateLimitedTimes": sum(each.rate_limited_times for each in self._publishers_of(partition)),
            **self._storage(partition),
            **self._times_of_topic(partition),
            "subscriptions": listed,
            "publishers": [
                {name: value for name, value in each.items() if name not in _COUNTERS_IN} for each in publishers
            ]
            if self._lists_publishers
            else [],
            **({} if self.topic.partitioned and partition is not None else transactions),
            "replication": {
                name: {"replicationBacklog": each.backlog, "connected": bool(each.connected)}
                for name, each in self.topic.replication.items()
            },
        }

    def _consumers_of(self, subscription: str, partition: int | None) -> list[ConsumerStats]:
        """Those of the partition, and those of the whole topic."""
        return [
            each
            for each in self._consumers[subscription]
            if partition is None or each.traffic is None or each.traffic.partition in (-1, partition)
        ]

    def _publishers(self, partition: int | None) -> list[dict[str, Any]]:
        """A client has one producer for each partition. In the statistics of all partitions they are one, as in
        Pulsar."""
        if not self.topic.partitioned or partition is not None:
            return [_publisher(each) for each in self._publishers_of(partition)]
        parts: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for each in self.topic.publishers:
            parts.setdefault((each.producer_name, each.process), []).append(_publisher(each))
        return [_merged(of_one) for of_one in parts.values()]

    def _publishers_of(self, partition: int | None) -> Sequence[PublisherStats]:
        """Those of one partition, which are the gateway's; or all."""
        found = self.topic.publishers
        if not self.topic.partitioned or partition is None:
            return found
        return [each for each in found if each.traffic and each.traffic.partition == partition]

    def _times_of_topic(self, partition: int | None) -> dict[str, int]:
        published = self.topic.last_publish_ms
        return {
            "topicCreationTimeStamp": self.topic.created_ms,
            "lastPublishTimeStamp": max(published.values(), default=0)
            if partition is None
            else published.get(partition, 0),
        }

    def _storage(self, partition: int | None) -> dict[str, Any]:
        """The topic's sizes. The backlog's is that of the slowest subscription, in each partition."""
        if not self._ledgers:
            return {}
        slowest: dict[int, int] = {}
        for found in self._subscriptions.values():
            for cursor in found.partitions if found.durable else ():
                slowest[cursor.partition] = min(cursor.mark_delete + 1, slowest.get(cursor.partition, cursor.end))
        each = self._ledgers if partition is None else [partition]
        times = [times[p] for times in self._times.values() for p in each if p in times]
        return {
            "storageSize": sum(ledger.size for p in each for ledger in self._ledgers.get(p, ())),
            "backlogSize": sum(bytes_from(self._ledgers.get(p, ()), slowest[p]) for p in each if p in slowest),
            "earliestMsgPublishTimeInBacklogs": min(times, default=0),
        }

    def _sizes_of(self, found: SubscriptionStats, partition: int | None) -> dict[str, int]:
        """The size of a subscription's backlog and the publish time of its first message, where they were requested."""
        cursors = [each for each in found.partitions if partition in (None, each.partition)]
        if not self._ledgers or not found.durable:
            return {}
        sizes = [bytes_from(self._ledgers.get(each.partition, ()), each.mark_delete + 1) for each in cursors]
        times = self._times.get(found.subscription, {})
        known = [times[each.partition] for each in cursors if each.partition in times]
        return {
            "backlogSize": sum(sizes) if self._sizes_backlogs else -1,
            "earliestMsgPublishTimeInBacklog": min(known, default=0),
        }


def _subscription(
    found: SubscriptionStats, partition: int | None, consumers: Sequence[ConsumerStats]
) -> Mapping[str, Any]:
    cursors = [each for each in found.partitions if partition in (None, each.partition)]
    listed = [_consumer(each) for each in consumers if each.permits >= 0]
    only = cursors[0].partition if len(cursors) == 1 else None
    blocked_s = max((each.subscription_blocked_s for each in consumers), default=-1.0)
    active = [each.consumer_name for each in consumers if only in each.active_in]
    keys = [each for each in waiting_keys_of(consumers) if partition in (None, each.partition)]
    return {
        **({"activeConsumerName": active[0]} if active else {}),
        **_sums(listed, _RATES_OUT + _RATES_BACK),
        **_counts(listed, _COUNTERS_OUT),
        "type": found.type,
        "msgBacklog": sum(each.backlog for each in cursors),
        "consumersAfterMarkDeletePosition": {},
        "nonContiguousDeletedMessagesRanges": sum(each.holes for each in cursors),
        **{name: max((each[name] for each in listed if name in each), default=0) for name in _TIMES},
        "unackedMessages": sum(each["unackedMessages"] for each in listed),
        "blockedSubscriptionOnUnackedMsgs": blocked_s >= 0,
        "blockedOnUnackedMsgsSeconds": blocked_s,
        **_throttling(consumers, {each.partition for each in cursors}),
        "waitingKeys": sum(each.keys for each in keys),
        "messagesBehindWaitingKeys": sum(each.messages for each in keys),
        "waitingKeysSeconds": max((each.waiting_s for each in keys), default=-1.0),
        "isDurable": found.durable,
        "isReplicated": found.replicated,
        "subscriptionProperties": dict(found.properties),
        "consumers": listed,
    }


def _throttling(consumers: Sequence[ConsumerStats], partitions: AbstractSet[int]) -> dict[str, int]:
    """The number of times that dispatch rates held back these partitions. A partition has one owner."""
    by_partition = {each.partition: each for one in consumers for each in one.throttling}
    found = [each for partition, each in by_partition.items() if partition in partitions]
    return {
        "dispatchThrottledMsgEventsBySubscriptionLimit": sum(each.subscription_messages for each in found),
        "dispatchThrottledBytesEventsBySubscriptionLimit": sum(each.subscription_bytes for each in found),
        "dispatchThrottledMsgEventsByTopicLimit": sum(each.topic_messages for each in found),
        "dispatchThrottledBytesEventsByTopicLimit": sum(each.topic_bytes for each in found),
    }


def _consumer(found: ConsumerStats) -> dict[str, Any]:
    fields = {
        "consumerName": found.consumer_name,
        "availablePermits": found.permits,
        "unackedMessages": found.unacked,
        "msgOutCounter": found.delivered,
        "msgRateOut": found.rate,
        "blockedConsumerOnUnackedMsgs": found.blocked_s >= 0,
        "blockedOnUnackedMsgsSeconds": found.blocked_s,
        "address": found.process,
        **({} if found.metadata is None else {"metadata": dict(found.metadata)}),
    }
    traffic = found.traffic
    if traffic is None:
        return fields
    return {
        **fields,
        "msgRateOut": traffic.rate,
        "msgThroughputOut": traffic.throughput,
        "bytesOutCounter": traffic.bytes,
        "msgRateRedeliver": traffic.redelivered,
        "messageAckRate": traffic.acknowledged,
        "address": traffic.address,
        "clientVersion": traffic.client,
        "connectedSince": time_text(traffic.since_ms),
        "lastConsumedFlowTimestamp": traffic.last_flow_ms,
        "lastConsumedTimestamp": traffic.last_delivered_ms,
        "lastAckedTimestamp": traffic.last_acked_ms,
    }


def _publisher(found: PublisherStats) -> dict[str, Any]:
    fields = {
        "producerName": found.producer_name,
        "accessMode": found.access_mode,
        "connectedSince": time_text(found.connected_since_ms),
        "address": found.process,
        "metadata": dict(found.properties),
        "msgInCounter": found.sent,
    }
    traffic = found.traffic
    if traffic is None:
        return fields
    return {
        **fields,
        "msgInCounter": traffic.messages,
        "bytesInCounter": traffic.bytes,
        "msgRateIn": traffic.rate,
        "msgThroughputIn": traffic.throughput,
        "averageMsgSize": _average(traffic.rate, traffic.throughput),
        "address": traffic.address,
        "clientVersion": traffic.client,
    }


def _merged(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One client's producers of several partitions as one."""
    if len(parts) == 1:
        return parts[0]
    rates = _sums(parts, _RATES_IN)
    average = _average(rates["msgRateIn"], rates["msgThroughputIn"])
    return {**parts[0], **rates, **_counts(parts, _COUNTERS_IN), "averageMsgSize": average}


def _sums(found: Iterable[Mapping[str, Any]], names: Sequence[str]) -> dict[str, float]:
    """The sums of these fields over the statistics that have them."""
    each = list(found)
    return {name: round(sum(one.get(name, 0.0) for one in each), 3) for name in names}


def _counts(found: Iterable[Mapping[str, Any]], names: Sequence[str]) -> dict[str, int]:
    """The sums of the counters that all statistics have."""
    each = list(found)
    return {name: sum(one[name] for one in each) for name in names if all(name in one for one in each)}


def _average(rate: float, throughput: float) -> float:
    return round(throughput / rate, 3) if rate else 0.0
