"""Inboxes are bounded by decompressed bytes: small entries that become large are handed out as they are received."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cramjam
import pytest

from pulsar_on_kafka.broker.metadata.subscriptions.subscription import SubscriptionType
from pulsar_on_kafka.broker.subscriptions.records.batches import affordable
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import (
    MAX_BYTES_AT_ONCE,
    MAX_INBOX_BYTES,
    Endpoint,
    InboxBytes,
)
from pulsar_on_kafka_mapping.encoding.varint import varint
from pulsar_on_kafka_mapping.records.record_headers import BATCH, COMPRESSION
from tests.unit.broker.subscriptions.dispatching.served import Record, Served

MIB = 1024 * 1024
PLAIN = bytes(MIB)
PACKED = bytes(cramjam.zstd.compress(PLAIN))
BOUND = MAX_INBOX_BYTES + MAX_BYTES_AT_ONCE + MIB


class Value(Record):
    """A record with this value."""

    def __init__(self, value: bytes, headers: dict[str, bytes | None], key: bytes | None = None) -> None:
        super().__init__(key, headers=headers)
        self._value = value


def alone(key: bytes | None = None) -> Record:
    """One message, which a client compressed."""
    return Value(PACKED, {BATCH: b"3:1", COMPRESSION: b"ZSTD:%d" % MIB}, key)


def in_batch(key: bytes | None = None) -> Record:
    """A batch of two messages of half a MiB, which a client compressed."""
    half = MIB // 2
    metadata = b"\x18" + varint(half)
    plain = (len(metadata).to_bytes(4, "big") + metadata + bytes(half)) * 2
    packed = bytes(cramjam.zstd.compress(plain))
    return Value(packed, {BATCH: b"2:2", COMPRESSION: b"ZSTD:%d" % len(plain)}, key)


def uncompressed(key: bytes | None = None) -> Record:
    return Value(PLAIN, {}, key)


def size_of(endpoint: Endpoint) -> int:
    messages: Any = endpoint.queue
    return sum(len(message.data()) for message in messages)


KINDS = [SubscriptionType.SHARED, SubscriptionType.EXCLUSIVE, SubscriptionType.KEY_SHARED]


@pytest.mark.parametrize("make", [alone, in_batch, uncompressed])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_an_inbox_holds_no_more_bytes_than_its_bound(kind: SubscriptionType, make: Callable[[bytes], Record]) -> None:
    served = Served(kind)
    consumer = served.consumer("a")
    for n in range(40):  # as they are read: 4 MiB of records at once
        served.publish(*(make(b"%d" % (n % 5)) for _ in range(4)))
        served.turn()
    received, largest = 0, 0
    while served.turn() or consumer.queue:
        largest = max(largest, size_of(consumer))
        consumer.queue.popleft()
        received += 1
    per_entry = 2 if make is in_batch else 1
    assert received == 160 * per_entry
    assert MAX_INBOX_BYTES <= largest <= BOUND


@pytest.mark.parametrize("kind", KINDS[:1], ids=str)
def test_redeliveries_are_bounded_as_well(kind: SubscriptionType) -> None:
    served = Served(kind)
    consumer = served.consumer("a")
    served.publish(*(alone() for _ in range(160)))
    refused: list[int] = []
    while served.turn() or consumer.queue:
        refused.append(consumer.queue.popleft().offset)
    assert refused == [*range(160)]
    served.refuse(consumer, *refused)
    again: list[int] = []
    while served.turn() or consumer.queue:
        assert size_of(consumer) <= BOUND
        again.append(consumer.queue.popleft().offset)
    assert again == refused


def test_redelivered_records_are_read_in_parts_of_some_mib() -> None:
    served = Served()
    consumer = served.consumer("a", 1000)
    served.publish(*(uncompressed() for _ in range(4)))
    served.turn()
    served.received(consumer)
    served.publish(*(uncompressed() for _ in range(96)))
    while served.turn() or consumer.queue:
        served.received(consumer)
    served.slow(0.0)  # the records come one by one
    served.refuse(consumer, *range(100))
    served.turn()
    assert len(consumer.queue) <= 32
    again: list[int] = []
    while served.turn() or consumer.queue:
        again += served.received(consumer)
    assert sorted(again) == [*range(100)]


def test_one_entry_may_exceed_the_bound_alone() -> None:
    assert affordable([alone() for _ in range(10)]) == (4, 4 * MIB)
    huge = Value(PACKED, {BATCH: b"3:1", COMPRESSION: b"ZSTD:%d" % (200 * MIB)})
    assert affordable([huge, huge]) == (1, 200 * MIB)
    torn = Value(PACKED, {BATCH: b"3:1", COMPRESSION: b"nonsense"})
    assert affordable([torn, torn]) == (2, 2 * len(PACKED))


def test_bytes_go_with_the_messages_that_were_received() -> None:
    here = InboxBytes()
    assert here.left(0) == 0
    here.add(2, 10)
    here.add(3, 100)
    assert [here.left(n) for n in (5, 4, 3, 1, 0)] == [110, 110, 100, 100, 0]


def test_nothing_is_kept_of_what_a_fast_consumer_received() -> None:
    served = Served(SubscriptionType.EXCLUSIVE)
    consumer = served.consumer("a")
    for _ in range(50):
        served.publish(uncompressed())
        served.turn()
        consumer.queue.popleft()
    assert len(consumer.bytes_here._parts) <= 1
