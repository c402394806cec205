"""The cluster collector asks the cluster for the state of topics and subscriptions with every collection of Prometheus
metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.exceptions import PulsarException

_TOPIC = ("topic",)
_SUBSCRIPTION = ("topic", "subscription")


class ClusterCollector(Collector):
    """The collector gives metrics of some topics, or of all topics of a namespace. Cursors are as last saved, at most a
    persist interval old.

    Collecting reads each subscription's cursors from Kafka and disturbs nobody.
    """

    def __init__(
        self, admin: AdminClient, topics: Sequence[str], namespace: str, failed: Callable[[str], None]
    ) -> None:
        """`failed` is told of a topic that could not be asked; the others are collected."""
        self._admin = admin
        self._topics = topics
        self._namespace = namespace
        self._failed = failed

    def describe(self) -> Iterable[Metric]:
        """Nothing: `register` would else collect once."""
        return []

    def collect(self) -> Iterator[Metric]:
        entries = GaugeMetricFamily("pok_topic_entries", "Entries in Kafka now.", labels=_TOPIC)
        partitions = GaugeMetricFamily("pok_topic_partitions", "Partitions.", labels=_TOPIC)
        backlog = GaugeMetricFamily("pok_subscription_backlog_entries", "Unacknowledged entries.", labels=_SUBSCRIPTION)
        acked = GaugeMetricFamily(
            "pok_subscription_individually_acknowledged_entries", "Acknowledged entries above mark-delete.",
            labels=_SUBSCRIPTION,
        )  # fmt: skip
        holes = GaugeMetricFamily(
            "pok_subscription_holes", "Ranges of unacknowledged entries below the highest acknowledged one.",
            labels=_SUBSCRIPTION,
        )  # fmt: skip
        processes = GaugeMetricFamily("pok_subscription_processes", "Live processes in it.", labels=_SUBSCRIPTION)
        for topic in self._topics or self._admin.list_topics(self._namespace):
            try:
                found = self._admin.topic_stats(topic)
                subscriptions = [self._admin.subscription_stats(topic, name) for name in found.subscriptions]
            except PulsarException as failure:
                self._failed(str(failure) if topic in str(failure) else f"{topic}: {failure}")
                continue
            entries.add_metric([found.topic], found.entries)
            partitions.add_metric([found.topic], found.partitions)
            for stats in subscriptions:
                labels = [stats.topic, stats.subscription]
                backlog.add_metric(labels, stats.backlog)
                acked.add_metric(labels, stats.individually_deleted)
                holes.add_metric(labels, sum(partition.holes for partition in stats.partitions))
                processes.add_metric(labels, len(stats.consumers))
        yield from (entries, partitions, backlog, acked, holes, processes)
