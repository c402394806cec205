"""Metrics of what is read without a subscription: readers and table views."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.meters import ReadCounts
from pulsar_on_kafka.node.metrics.asking import answer
from pulsar_on_kafka.node.node import Node
from pulsar_on_kafka.subscriptions.records.tail import Tail, TailStats

_TOPIC: Final = ("cluster", "topic")

_COUNTS: Final[tuple[tuple[str, str, Callable[[ReadCounts], int]], ...]] = (
    ("pok_reader_messages_delivered", "Messages handed to readers.", lambda counts: counts.delivered),
    ("pok_reader_messages_undecryptable", "Encrypted messages that no key of the reader fits.",
     lambda counts: counts.undecryptable),
    ("pok_reader_received_bytes", "Payload bytes read from Kafka.", lambda counts: counts.received_bytes),
)  # fmt: skip


def reading(nodes: list[Node], deadline: Deadline) -> Iterator[Metric]:
    """Per topic; gauges of a reader that does not answer until the deadline are left out."""
    counters = [CounterMetricFamily(name, text, labels=_TOPIC) for name, text, _ in _COUNTS]
    readers = GaugeMetricFamily("pok_readers", "Open readers, those of table views among them.", labels=_TOPIC)
    stopped = GaugeMetricFamily("pok_stopped_readers", "Of these, readers that an error ended.", labels=_TOPIC)
    behind = GaugeMetricFamily(
        "pok_reader_behind_entries", "Entries not read yet by the reader that is farthest behind.", labels=_TOPIC
    )
    buffered = GaugeMetricFamily("pok_reader_buffered_messages", "Read and not received yet.", labels=_TOPIC)
    views = GaugeMetricFamily("pok_table_views", "Open table views.", labels=_TOPIC)
    keys = GaugeMetricFamily("pok_table_view_keys", "Keys that table views hold.", labels=_TOPIC)
    for node in nodes:
        tails, told = _told(node, deadline)
        for topic, meter in node.meters.readers():
            labels = [node.cluster_id, topic]
            counts, live = meter.counts()
            for family, (_, _, value) in zip(counters, _COUNTS, strict=True):
                family.add_metric(labels, value(counts))
            readers.add_metric(labels, live)
            stopped.add_metric(labels, sum(tail.failure is not None for tail in tails.get(topic, ())))
            sizes = meter.views()
            views.add_metric(labels, len(sizes))
            keys.add_metric(labels, sum(sizes))
            stats = told.get(topic, [])
            if stats or topic not in tails:
                behind.add_metric(labels, max((each.behind for each in stats), default=0))
                buffered.add_metric(labels, sum(each.buffered for each in stats))
    yield from (*counters, readers, stopped, behind, buffered, views, keys)


def _told(node: Node, deadline: Deadline) -> tuple[dict[str, list[Tail]], dict[str, list[TailStats]]]:
    """By topic: the readers, and what those that answered say."""
    tails: dict[str, list[Tail]] = {}
    told: dict[str, list[TailStats]] = {}
    asked = [(topic, tail, tail.ask_stats()) for topic, tail in node.readers.tails()]
    for topic, tail, future in asked:
        tails.setdefault(topic, []).append(tail)
        stats = answer(future, deadline)
        if stats is not None:
            told.setdefault(topic, []).append(stats)
    return tails, told
