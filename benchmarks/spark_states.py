"""Subscriptions that have acknowledged much: written by bitmap, as Spark's acknowledgements are."""

from __future__ import annotations

import random
from typing import Any, Final

from pyroaring import BitMap64

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.ledger_acks import of_offsets
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_spark.planning.visibility import find_subscription, find_topic

HALF: Final = "half"
"""Every second offset, at random."""
RANGES: Final = "ranges"
"""A run in each five offsets: of 500,000 of a partition, 100,000 ranges."""
TENTH: Final = "tenth"
"""All but the last tenth of each partition: below the mark-delete position."""
NONE: Final = "none"

_PREPARE_S: Final = 300.0
_PIECE: Final = 50_000
_RUN: Final = 5


def prepare(url: str, topic: str, subscription: str, state: str) -> dict[str, Any]:
    """Make the subscription; gives how many entries it has acknowledged, and in how many runs."""
    with AdminClient(url) as admin:
        admin.create_subscription(topic, subscription, from_earliest=True)
        acked, ranges = _acknowledge(admin.node, topic, subscription, state)
    return {"acknowledged": acked, "ranges": ranges}


def _acknowledge(node: Node, topic: str, subscription: str, state: str) -> tuple[int, int]:
    deadline = Deadline.after(_PREPARE_S)
    found = find_topic(node, TopicName.parse(topic), deadline)
    ends = node.admin.end_offsets(found.kafka_topic, range(found.partitions), deadline)
    acked = {partition: _offsets(state, end, random.Random(partition)) for partition, end in ends.items()}
    size = found.layout.entries_per_ledger
    if any(acked.values()):
        where = find_subscription(node, found, subscription, deadline)
        acks = {partition: of_offsets(offsets, {}, size) for partition, offsets in acked.items()}
        node.memberships.acknowledge(where, acks, deadline)
    return sum(map(len, acked.values())), sum(map(_ranges, acked.values()))


def _offsets(state: str, end: int, chance: random.Random) -> BitMap64:
    found = BitMap64()
    if state == HALF:
        for base in range(0, end, _PIECE):
            bits = chance.getrandbits(min(_PIECE, end - base))
            found.update(base + number for number, bit in enumerate(bin(bits)[:1:-1]) if bit == "1")
    elif state == RANGES:
        for base in range(0, end - _RUN, _RUN):
            found.add_range(base, base + chance.randrange(1, _RUN))
    elif state == TENTH:
        found.add_range(0, end - end // 10)
    elif state != NONE:
        raise ValueError(f"state is {state!r}, expected {HALF}, {RANGES}, {TENTH} or {NONE}")
    return found


def _ranges(offsets: BitMap64) -> int:
    """How many runs: members whose predecessor is none."""
    shifted = BitMap64(offset + 1 for offset in offsets)
    return len(offsets - shifted)
