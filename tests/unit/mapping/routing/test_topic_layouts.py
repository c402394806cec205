"""A topic's layout has a segment for each partition, as a broker of Pulsar 5.0.1 sends it."""

from __future__ import annotations

import pytest

from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.routing.topic_layouts import MAX_PARTITIONS, topic_layout

ORDERS = TopicName.parse("orders")


def test_three_partitions_have_the_bounds_of_pulsar_5() -> None:
    layout = topic_layout(ORDERS, 3, 7)
    assert layout.resolved_name == "topic://public/default/orders"
    assert [(each.segment_id, each.hash_start, each.hash_end, str(each.topic)) for each in layout.segments] == [
        (0, 0, 21844, "persistent://public/default/orders-partition-0"),
        (1, 21845, 43689, "persistent://public/default/orders-partition-1"),
        (2, 43690, 65535, "persistent://public/default/orders-partition-2"),
    ]


def test_a_topic_without_partitions_is_one_segment() -> None:
    (segment,) = topic_layout(ORDERS, 0, 7).segments
    assert (segment.hash_start, segment.hash_end, segment.topic) == (0, 65535, ORDERS)


@pytest.mark.parametrize("partitions", [1, 2, 7, 1_000, MAX_PARTITIONS])
def test_segments_cover_all_slots_without_a_gap(partitions: int) -> None:
    at = 0
    for segment in topic_layout(ORDERS, partitions, 0).segments:
        assert segment.hash_start == at <= segment.hash_end
        at = segment.hash_end + 1
    assert at == 65_536


def test_the_epoch_becomes_greater_with_partitions_and_with_the_incarnation() -> None:
    epochs = [topic_layout(ORDERS, *made).epoch for made in [(0, 0), (1, 0), (MAX_PARTITIONS, 0), (0, 1), (2, 1)]]
    assert epochs == sorted(set(epochs))


@pytest.mark.parametrize(
    ("topic", "partitions", "incarnation", "reason"),
    [
        ("orders-partition-0", 0, 0, "orders-partition-0 has no layout"),
        ("non-persistent://public/default/ticks", 0, 0, "ticks has no layout"),
        ("orders", -1, 0, "-1 partitions"),
        ("orders", MAX_PARTITIONS + 1, 0, "16384 partitions"),
        ("orders", 1, -1, "incarnation -1"),
    ],
)
def test_other_topics_have_no_layout(topic: str, partitions: int, incarnation: int, reason: str) -> None:
    with pytest.raises(MappingError, match=reason):
        topic_layout(TopicName.parse(topic), partitions, incarnation)
