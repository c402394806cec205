"""This process's meters as Prometheus metrics, worked out when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.meters import SubscriptionMeter
from pulsar_on_kafka.node.metrics.asking import answer
from pulsar_on_kafka.node.metrics.clusters import ClusterCounts, of_clusters
from pulsar_on_kafka.node.metrics.reading import reading
from pulsar_on_kafka.node.metrics.replication import replication
from pulsar_on_kafka.node.metrics.roles import roles
from pulsar_on_kafka.node.metrics.transactions import transactions
from pulsar_on_kafka.node.node import Node, live_nodes
from pulsar_on_kafka.statelog.view import unreadable
from pulsar_on_kafka.subscriptions.dispatching.handle import PartitionStats
from pulsar_on_kafka.subscriptions.member.member import SubscriptionMember

_PATIENCE_S: Final = 2.0
_TOPIC: Final = ("cluster", "topic")
_SUBSCRIPTION: Final = ("cluster", "topic", "subscription")

_COUNTS: Final[tuple[tuple[str, str, Callable[[SubscriptionMeter, SubscriptionMember | None], int]], ...]] = (
    ("pok_messages_delivered", "Messages handed to consumers, redeliveries included.",
     lambda meter, member: meter.delivered + (member.delivered() if member else 0)),
    ("pok_messages_undecryptable", "Encrypted messages that no key of the consumer fits.",
     lambda meter, member: meter.undecryptable + (member.undecryptable() if member else 0)),
    ("pok_received_bytes", "Payload bytes read from Kafka.", lambda meter, _: meter.received_bytes),
    ("pok_entries_acknowledged", "Entries acknowledged one by one, or passed by a cumulative acknowledgement.",
     lambda meter, _: meter.acknowledged),
    ("pok_entries_redelivered", "Entries put up for redelivery (Shared, Key_Shared).",
     lambda meter, _: meter.redelivered),
    ("pok_entries_dropped", "Entries of a non-persistent topic that no consumer had room for.",
     lambda meter, _: meter.dropped),
    ("pok_entries_deleted_unacknowledged", "Entries that Kafka deleted before they were acknowledged.",
     lambda meter, _: meter.deleted_unacknowledged),
    ("pok_cursor_save_failures", "Group commits of cursors that were refused or not answered.",
     lambda meter, _: meter.failed_saves),
    ("pok_cursor_saves_without_segments", "Saves that held only what fits a commit, as segments could not be written.",
     lambda meter, _: meter.saves_without_segments),
)  # fmt: skip

_GAUGES: Final[tuple[tuple[str, str, Callable[[list[PartitionStats]], int]], ...]] = (
    ("pok_owned_partitions", "Partitions that this process serves.", len),
    ("pok_stopped_partitions", "Of these, partitions that are not served because of an error.",
     lambda found: sum(stats.stopped is not None for stats in found)),
    ("pok_backlog_entries", "Unacknowledged entries up to the log's end, as Kafka last told.",
     lambda found: sum(stats.backlog for stats in found)),
    ("pok_individually_acknowledged_entries", "Entries acknowledged above the mark-delete position.",
     lambda found: sum(stats.individually_deleted for stats in found)),
    ("pok_holes", "Ranges of unacknowledged entries below the highest acknowledged one.",
     lambda found: sum(stats.holes for stats in found)),
    ("pok_cursor_state_bytes", "What the holes take on Kafka.",
     lambda found: sum(stats.state_bytes for stats in found)),
    ("pok_cursor_ledgers_in_memory", "Ledgers whose holes are in memory.",
     lambda found: sum(stats.ledgers_in_memory for stats in found)),
    ("pok_unacknowledged", "Handed out and not acknowledged (Shared, Key_Shared).",
     lambda found: sum(stats.in_flight for stats in found)),
    ("pok_waiting_for_redelivery", "Entries that wait to be delivered again.",
     lambda found: sum(stats.waiting_for_redelivery for stats in found)),
    ("pok_suspects", "Entries delivered few at a time, because their consumer died.",
     lambda found: sum(stats.suspects for stats in found)),
    ("pok_buffered_entries", "Read from Kafka and not handed out yet.",
     lambda found: sum(stats.buffered for stats in found)),
)  # fmt: skip


class MetricsCollector(Collector):
    """Everything that this process does on every cluster. For a registry of the application's:

        prometheus_client.REGISTRY.register(MetricsCollector())

    Counters cost nothing here; gauges are asked of each membership's and reader's thread, at most two seconds for all
    of them, and those of one that does not answer are left out.
    """

    def describe(self) -> Iterable[Metric]:
        """Nothing: `register` would else collect once."""
        return []

    def collect(self) -> Iterator[Metric]:
        nodes = live_nodes()
        deadline = Deadline.after(_PATIENCE_S)
        yield from _sending(nodes)
        yield from _receiving(nodes, deadline)
        yield from reading(nodes, deadline)
        yield from of_clusters(
            ClusterCounts(
                node.cluster_id,
                node.schemas.counts,
                node.memberships.deliveries.corrupt_records,
                node.memberships.deliveries.written_records,
                node.memberships.deliveries.writes,
                unreadable((node.log, node.followed_log)),
            )
            for node in nodes
        )
        yield from transactions(nodes)
        yield from roles(nodes)
        yield from replication(nodes)


def _sending(nodes: list[Node]) -> Iterator[Metric]:
    sent = CounterMetricFamily("pok_messages_sent", "Messages stored by Kafka.", labels=_TOPIC)
    failed = CounterMetricFamily("pok_send_failures", "Messages that were given up.", labels=_TOPIC)
    pending = GaugeMetricFamily("pok_messages_pending", "Messages under way.", labels=_TOPIC)
    producers = GaugeMetricFamily("pok_producers", "Open producers.", labels=_TOPIC)
    for node in nodes:
        for topic, meter in node.meters.topics():
            labels = [node.cluster_id, topic]
            counts, live = meter.counts()
            sent.add_metric(labels, counts.sent)
            failed.add_metric(labels, counts.failed)
            pending.add_metric(labels, counts.pending)
            producers.add_metric(labels, live)
    yield from (sent, failed, pending, producers)


def _receiving(nodes: list[Node], deadline: Deadline) -> Iterator[Metric]:
    counts = [CounterMetricFamily(name, text, labels=_SUBSCRIPTION) for name, text, _ in _COUNTS]
    gauges = [GaugeMetricFamily(name, text, labels=_SUBSCRIPTION) for name, text, _ in _GAUGES]
    rebalances = CounterMetricFamily(
        "pok_rebalances", "Times that partitions came or went.", labels=(*_SUBSCRIPTION, "event")
    )
    consumers = GaugeMetricFamily("pok_consumers", "Open consumers.", labels=_SUBSCRIPTION)
    saves = HistogramMetricFamily(
        "pok_cursor_persist_seconds", "From the send of a cursor's save to its answer.", labels=_SUBSCRIPTION
    )
    for node in nodes:
        members = node.memberships.members()
        asked = {key: member.ask_stats() for key, member in members.items()}
        for key, meter in node.meters.subscriptions():
            labels, member = [node.cluster_id, *key], members.get(key)
            for family, (_, _, value) in zip(counts, _COUNTS, strict=True):
                family.add_metric(labels, value(meter, member))
            for event in ("assigned", "revoked", "lost"):
                rebalances.add_metric([*labels, event], getattr(meter, event))
            saves.add_metric(labels, meter.saves.cumulative(), meter.saves.sum_s)
            consumers.add_metric(labels, member.consumers() if member else 0)
            stats = answer(asked[key], deadline) if key in asked else []
            if stats is not None:
                for gauge, (_, _, number) in zip(gauges, _GAUGES, strict=True):
                    gauge.add_metric(labels, number(stats))
    yield from (*counts, rebalances, saves, consumers, *gauges)
