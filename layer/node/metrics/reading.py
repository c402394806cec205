"""Metrics of what is read without a subscription: readers and table views."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import Metric

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.meters import ReadCounts
from pulsar_on_kafka.node.metrics.families import COUNTER, GAUGE, Row, answer, families
from pulsar_on_kafka.node.node import Node
from pulsar_on_kafka.subscriptions.records.tail import Tail, TailStats

_TOPIC: Final = ("cluster", "topic")

_COUNTS: Final[tuple[Row[tuple[ReadCounts, int]], ...]] = (
    (COUNTER, "pok_reader_messages_delivered", "Messages handed to readers.", lambda of: of[0].delivered),
    (COUNTER, "pok_reader_messages_undecryptable", "Encrypted messages that no key of the reader fits.",
     lambda of: of[0].undecryptable),
    (COUNTER, "pok_reader_received_bytes", "Payload bytes read from Kafka.", lambda of: of[0].received_bytes),
    (GAUGE, "pok_readers", "Open readers, those of table views among them.", lambda of: of[1]),
)  # fmt: skip
_STOPPED: Final[Row[list[Tail]]] = (
    GAUGE, "pok_stopped_readers", "Of these, readers that an error ended.",
    lambda tails: sum(tail.failure is not None for tail in tails),
)  # fmt: skip
_STATS: Final[tuple[Row[list[TailStats]], ...]] = (
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
        tails, told = _told(node, deadline)
        for topic, meter in node.meters.readers():
            labels = [node.cluster_id, topic]
            counted.append((labels, meter.counts()))
            stopped.append((labels, tails.get(topic, [])))
            if told.get(topic) or topic not in tails:
                answered.append((labels, told.get(topic, [])))
            views.append((labels, meter.views()))
    yield from families(_COUNTS, _TOPIC, counted)
    yield from families([_STOPPED], _TOPIC, stopped)
    yield from families(_STATS, _TOPIC, answered)
    yield from families(_VIEWS, _TOPIC, views)


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
