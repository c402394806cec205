"""This process's meters as Prometheus metrics, computed when they are scraped."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Sequence
from operator import add
from typing import Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.meters import Latencies, ReadCounts, SendCounts, SubscriptionMeter
from pulsar_on_kafka.base.text import installed_version
from pulsar_on_kafka.broker.node.metrics.process import (
    COUNTER,
    GAUGE,
    ClusterCounts,
    Row,
    answer,
    families,
    of_clusters,
    roles,
    transactions,
)
from pulsar_on_kafka.broker.node.node import Node, live_nodes
from pulsar_on_kafka.broker.subscriptions.member.member import SubscriptionMember
from pulsar_on_kafka.broker.subscriptions.member.pooled import MemberClients
from pulsar_on_kafka.broker.subscriptions.partition.partition_options import PartitionStats
from pulsar_on_kafka.broker.subscriptions.records.reader_thread import Tail, TailStats
from pulsar_on_kafka.kafka import handles
from pulsar_on_kafka.statelog.view import unreadable

_PATIENCE_S: Final = 2.0
_TOPIC: Final = ("cluster", "topic")
_SUBSCRIPTION: Final = ("cluster", "topic", "subscription")

_Subscription = tuple[SubscriptionMeter, SubscriptionMember | None]
_COUNTS: Final[tuple[Row[_Subscription], ...]] = (
    (COUNTER, "pok_messages_delivered", "Messages handed to consumers, redeliveries included.",
     lambda of: of[0].delivered + (of[1].delivered() if of[1] else 0)),
    (COUNTER, "pok_messages_undecryptable", "Encrypted messages that no key of the consumer fits.",
     lambda of: of[0].undecryptable + (of[1].undecryptable() if of[1] else 0)),
    (COUNTER, "pok_messages_undeliverable", "Entries that a gateway could give no client.",
     lambda of: of[0].undeliverable),
    (COUNTER, "pok_received_bytes", "Payload bytes read from Kafka.", lambda of: of[0].received_bytes),
    (COUNTER, "pok_entries_acknowledged", "Entries acknowledged one by one, or passed by a cumulative acknowledgement.",
     lambda of: of[0].acknowledged),
    (COUNTER, "pok_entries_redelivered", "Entries put up for redelivery (Shared, Key_Shared).",
     lambda of: of[0].redelivered),
    (COUNTER, "pok_dispatch_throttled", "Times that a dispatch rate held a partition back.",
     lambda of: of[0].held_back),
    (COUNTER, "pok_entries_dropped", "Entries of a non-persistent topic that no consumer had room for.",
     lambda of: of[0].dropped),
    (COUNTER, "pok_entries_deleted_unacknowledged", "Entries that Kafka deleted before they were acknowledged.",
     lambda of: of[0].deleted_unacknowledged),
    (COUNTER, "pok_cursor_save_failures", "Group commits of cursors that were refused or not answered.",
     lambda of: of[0].failed_saves),
    (COUNTER, "pok_cursor_saves_without_segments",
     "Saves that held only what fits a commit, as segments could not be written.",
     lambda of: of[0].saves_without_segments),
    (GAUGE, "pok_consumers", "Open consumers.", lambda of: of[1].consumers() if of[1] else 0),
)  # fmt: skip

_GAUGES: Final[tuple[Row[list[PartitionStats]], ...]] = (
    (GAUGE, "pok_owned_partitions", "Partitions that this process serves.", len),
    (GAUGE, "pok_stopped_partitions", "Of these, partitions that are not served because of an error.",
     lambda found: sum(stats.stopped is not None for stats in found)),
    (GAUGE, "pok_backlog_entries", "Unacknowledged entries up to the log's end, as Kafka last reported.",
     lambda found: sum(stats.backlog for stats in found)),
    (GAUGE, "pok_individually_acknowledged_entries", "Entries acknowledged above the mark-delete position.",
     lambda found: sum(stats.individually_deleted for stats in found)),
    (GAUGE, "pok_holes", "Ranges of unacknowledged entries below the highest acknowledged one.",
     lambda found: sum(stats.holes for stats in found)),
    (GAUGE, "pok_cursor_state_bytes", "What the holes take on Kafka.",
     lambda found: sum(stats.state_bytes for stats in found)),
    (GAUGE, "pok_cursor_ledgers_in_memory", "Ledgers whose holes are in memory.",
     lambda found: sum(stats.ledgers_in_memory for stats in found)),
    (GAUGE, "pok_unacknowledged", "Handed out and not acknowledged (Shared, Key_Shared).",
     lambda found: sum(stats.in_flight for stats in found)),
    (GAUGE, "pok_waiting_for_redelivery", "Entries that wait to be delivered again.",
     lambda found: sum(stats.waiting_for_redelivery for stats in found)),
    (GAUGE, "pok_suspects", "Entries delivered few at a time, because their consumer died.",
     lambda found: sum(stats.suspects for stats in found)),
    (GAUGE, "pok_buffered_entries", "Read from Kafka and not handed out yet.",
     lambda found: sum(stats.buffered for stats in found)),
)  # fmt: skip

_SENDING: Final[tuple[Row[tuple[SendCounts, int]], ...]] = (
    (COUNTER, "pok_messages_sent", "Messages stored by Kafka.", lambda of: of[0].sent),
    (COUNTER, "pok_send_failures", "Messages that were given up.", lambda of: of[0].failed),
    (
        COUNTER,
        "pok_publish_rate_limited",
        "Times that a publish rate held a producer back.",
        lambda of: of[0].limited_times,
    ),
    (GAUGE, "pok_messages_pending", "Messages under way.", lambda of: of[0].pending),
    (GAUGE, "pok_producers", "Open producers.", lambda of: of[1]),
)


_AWAITED: Final[tuple[Row[tuple[int, float]], ...]] = (
    (GAUGE, "pok_waiting_for_consumer", "Entries that wait for a Key_Shared consumer, of this process's partitions.",
     lambda of: of[0]),
    (GAUGE, "pok_waiting_for_consumer_seconds", "Since the last moment at which nothing waited for it.",
     lambda of: of[1]),
)  # fmt: skip
_MAX_AWAITED: Final = 20
"""Consumers of one subscription that have a label of their own."""
_OTHERS: Final = "(others)"


def awaited(found: list[PartitionStats]) -> dict[str, tuple[int, float]]:
    """The consumers with the most waiting messages, by name, and the others together."""
    by_name: dict[str, tuple[int, float]] = {}
    for waiting in (each for stats in found for each in stats.waiting):
        messages, for_s = by_name.get(waiting.consumer, (0, 0.0))
        by_name[waiting.consumer] = (messages + waiting.messages, max(for_s, waiting.for_s))
    most = sorted(by_name, key=lambda name: by_name[name], reverse=True)
    shown = {name: by_name[name] for name in most[:_MAX_AWAITED]}
    if others := [by_name[name] for name in most[_MAX_AWAITED:]]:
        shown[_OTHERS] = (sum(messages for messages, _ in others), max(for_s for _, for_s in others))
    return shown


class MetricsCollector(Collector):
    """The metrics of this process on every cluster. To register with a registry of the application:

        prometheus_client.REGISTRY.register(MetricsCollector())

    Counters cost nothing here. Gauges are requested from each membership's and reader's thread, within two seconds for
    all of them; those without a reply are omitted.
    """

    def describe(self) -> Iterable[Metric]:
        """Nothing: `register` would else collect once."""
        return []

    def collect(self) -> Iterator[Metric]:
        yield _build()
        yield from _handles()
        nodes = live_nodes()
        yield from _memberships([each for each in (node.shared_members for node in nodes) if each is not None])
        deadline = Deadline.after(_PATIENCE_S)
        sent = [([node.cluster_id, topic], meter.counts()) for node in nodes for topic, meter in node.meters.topics()]
        yield from families(_SENDING, _TOPIC, sent)
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


def _build() -> Metric:
    reported = {
        "version": installed_version() or "",
        "confluent_kafka": installed_version("confluent-kafka") or "",
        "python": platform.python_version(),
    }
    return InfoMetricFamily("pok_build", "What this process is made of.", value=reported)


def _handles() -> Iterator[Metric]:
    yield GAUGE("pok_librdkafka_handles", "Handles of librdkafka in this process.", handles.count())
    yield GAUGE("pok_librdkafka_handles_max", "Handles of librdkafka that it may have.", handles.MAX_HANDLES)


_SHARED: Final[tuple[Row[Sequence[MemberClients]], ...]] = (
    (GAUGE, "pok_group_memberships", "Memberships that share connections and threads.",
     lambda shared: sum(each.groups.count for each in shared)),
    (GAUGE, "pok_fetched_bytes", "Bytes that were fetched for them and not delivered.",
     lambda shared: sum(each.reader.held_bytes for each in shared)),
    (GAUGE, "pok_fetch_connections", "Connections that fetch for them.",
     lambda shared: sum(each.reader.open_connections for each in shared)),
    (GAUGE, "pok_step_threads", "Threads that work for them.",
     lambda shared: sum(each.steps.threads for each in shared)),
    (GAUGE, "pok_longest_step_seconds", "How long one of these threads has worked for one membership.",
     lambda shared: max((each.steps.longest_step_s for each in shared), default=0.0)),
)  # fmt: skip


def _memberships(shared: Sequence[MemberClients]) -> Iterator[Metric]:
    """Figures of the clients and threads that the memberships of this process share."""
    yield from families(_SHARED, (), [((), shared)])
    yield _merged("pok_heartbeat_lag_seconds", "Delay of their heartbeats.", [each.groups.lag for each in shared])
    lags = [each.steps.lag for each in shared]
    yield _merged("pok_step_lag_seconds", "Time that their work waits for a thread.", lags)


def _merged(name: str, text: str, parts: Sequence[Latencies]) -> HistogramMetricFamily:
    merged = Latencies()
    for each in parts:
        merged.counts = list(map(add, merged.counts, each.counts))
        merged.sum_s += each.sum_s
    family = HistogramMetricFamily(name, text)
    family.add_metric([], merged.cumulative(), merged.sum_s)
    return family


def _receiving(nodes: list[Node], deadline: Deadline) -> Iterator[Metric]:
    rebalances = CounterMetricFamily(
        "pok_rebalances", "Times that partitions came or went.", labels=(*_SUBSCRIPTION, "event")
    )
    saves = HistogramMetricFamily(
        "pok_cursor_persist_seconds", "From the send of a cursor's save to its answer.", labels=_SUBSCRIPTION
    )
    counted, answered = [], []
    for node in nodes:
        members = node.memberships.members()
        requested = {key: member.request_stats() for key, member in members.items()}
        for key, meter in node.meters.subscriptions():
            labels = [node.cluster_id, *key]
            counted.append((labels, (meter, members.get(key))))
            for event in ("assigned", "revoked", "lost"):
                rebalances.add_metric([*labels, event], getattr(meter, event))
            saves.add_metric(labels, meter.saves.cumulative(), meter.saves.sum_s)
            stats = answer(requested[key], deadline) if key in requested else []
            if stats is not None:
                answered.append((labels, stats))
    yield from families(_COUNTS, _SUBSCRIPTION, counted)
    yield from (rebalances, saves)
    yield from families(_GAUGES, _SUBSCRIPTION, answered)
    waiting = [([*labels, name], of) for labels, stats in answered for name, of in awaited(stats).items()]
    yield from families(_AWAITED, (*_SUBSCRIPTION, "consumer"), waiting)


_READ: Final[tuple[Row[tuple[ReadCounts, int]], ...]] = (
    (COUNTER, "pok_reader_messages_delivered", "Messages handed to readers.", lambda of: of[0].delivered),
    (COUNTER, "pok_reader_messages_undecryptable", "Encrypted messages that no key of the reader fits.",
     lambda of: of[0].undecryptable),
    (COUNTER, "pok_reader_received_bytes", "Payload bytes read from Kafka.", lambda of: of[0].received_bytes),
    (GAUGE, "pok_readers", "Open readers, those of table views among them.", lambda of: of[1]),
)  # fmt: skip
_STOPPED_READERS: Final[Row[list[Tail]]] = (
    GAUGE, "pok_stopped_readers", "Of these, readers that an error ended.",
    lambda tails: sum(tail.failure is not None for tail in tails),
)  # fmt: skip
_TAILS: Final[tuple[Row[list[TailStats]], ...]] = (
    (GAUGE, "pok_reader_behind_entries", "Entries not read yet by the reader that is farthest behind.",
     lambda stats: max((each.behind for each in stats), default=0)),
    (GAUGE, "pok_reader_buffered_messages", "Read and not received yet.",
     lambda stats: sum(each.buffered for each in stats)),
)  # fmt: skip
_VIEWS: Final[tuple[Row[list[int]], ...]] = (
    (GAUGE, "pok_table_views", "Open table views.", len),
    (GAUGE, "pok_table_view_keys", "Keys that table views hold.", sum),
)


def reading(nodes: list[Node], deadline: Deadline) -> Iterator[Metric]:
    """Per topic; gauges of a reader that does not answer until the deadline are left out."""
    counted, stopped, answered, views = [], [], [], []
    for node in nodes:
        tails, reported = _tails_and_stats(node, deadline)
        for topic, meter in node.meters.readers():
            labels = [node.cluster_id, topic]
            counted.append((labels, meter.counts()))
            stopped.append((labels, tails.get(topic, [])))
            if reported.get(topic) or topic not in tails:
                answered.append((labels, reported.get(topic, [])))
            views.append((labels, meter.views()))
    yield from families(_READ, _TOPIC, counted)
    yield from families([_STOPPED_READERS], _TOPIC, stopped)
    yield from families(_TAILS, _TOPIC, answered)
    yield from families(_VIEWS, _TOPIC, views)


def _tails_and_stats(node: Node, deadline: Deadline) -> tuple[dict[str, list[Tail]], dict[str, list[TailStats]]]:
    """By topic: the readers, and the statistics of those that replied."""
    tails: dict[str, list[Tail]] = {}
    reported: dict[str, list[TailStats]] = {}
    requested = [(topic, tail, tail.request_stats()) for topic, tail in node.readers.tails()]
    for topic, tail, future in requested:
        tails.setdefault(topic, []).append(tail)
        stats = answer(future, deadline)
        if stats is not None:
            reported.setdefault(topic, []).append(stats)
    return tails, reported
