"""A consumer of a connection: which of its client's acknowledgements count."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import (
    DeliveryRules,
    EntryDelivery,
    PartitionAcks,
    PartitionConsumer,
)
from pulsar_on_kafka.gateway.handlers.entry_encoder import OutgoingEntries
from pulsar_on_kafka.gateway.handlers.rate_meter import Meter
from pulsar_on_kafka.gateway.handlers.wire_consumer import SubscriptionConsumer, Wire, WireEndpoint
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.records.batch_entry import BatchMessage
from pulsar_on_kafka_mapping.records.message_record import Headers
from pulsar_on_kafka_mapping.records.record_headers import BATCH, DELIVER_AT, PRODUCER
from pulsar_on_kafka_mapping.wire.batch_payloads import pulsar_batch
from pulsar_on_kafka_mapping.wire.commands import Type, command
from pulsar_on_kafka_mapping.wire.entries import WireEntry, write_entry
from pulsar_on_kafka_mapping.wire.frames import FrameCutter, frame
from pulsar_on_kafka_mapping.wire.message_metadata import encode_metadata
from pulsar_on_kafka_mapping.wire.stored_entries import EntryRecord, metadata_of
from tests.pulsar_entries.stored import PlacedRecord

TOPIC = "persistent://public/default/orders"


def consumer(lost: list[str], frames: Any = None, **options: Any) -> tuple[SubscriptionConsumer, PartitionAcks]:
    slot = PartitionAcks(TOPIC, 0, -1, LedgerLayout(1, 10))
    meter = Meter("127.0.0.1:1", lambda: 1_700_000_000_000, now_s=100.0)
    wire = Wire(TOPIC, frames, lambda: lost.append("lost"), 0, OutgoingEntries(), meter, **options)
    endpoint = WireEndpoint("c", 1, wire, DeliveryRules())
    place = SimpleNamespace(node=None, number=0, topic=SimpleNamespace(layout=slot.layout))
    member = SimpleNamespace(slot=lambda number: slot, type=SimpleNamespace(is_shared=False))
    return SubscriptionConsumer(cast("Any", place), cast("Any", None), cast("Any", member), endpoint), slot


class _Sent:
    """The frames of one delivery."""

    def send(self, parts: list[bytes]) -> None:
        found = FrameCutter().feed(b"".join(parts))
        self.frames = [frame(*each) for each in found]


def test_a_delivery_becomes_the_frames_of_the_protocol() -> None:
    """With a plain record, one that is not, a batch of which one message is acknowledged, and one without."""
    sent = _Sent()
    found, slot = consumer([], sent)
    single: Headers = [(PRODUCER, b"4:0:p")]
    batch: Headers = [*single, (BATCH, b"2:3")]
    payload = pulsar_batch([BatchMessage(b"a")] * 3)
    records = [
        EntryRecord(b"key", b"plain", [*single, ("name", b"value")], 1_000),
        EntryRecord(None, b"late", [*single, (DELIVER_AT, b"5")], 1_000),
        EntryRecord(None, payload, batch, 1_000),
        EntryRecord(None, payload, batch, 1_000),
    ]
    acked = [None, None, None, (3, 0b010)]
    partition = PartitionConsumer(slot, found.endpoint)
    found.endpoint.epoch = 7
    found.endpoint.deliver([
        EntryDelivery(PlacedRecord(record, offset), partition, offset, offset, 1, acked[offset])
        for offset, record in enumerate(records)
    ])  # fmt: skip
    for offset, (record, data) in enumerate(zip(records, sent.frames, strict=True)):
        ledger, entry = slot.layout.position(0, offset)
        assert data == frame(
            command(
                Type.MESSAGE,
                consumer_id=1,
                message_id={"ledgerId": ledger, "entryId": entry, "partition": -1},
                redelivery_count=offset or None,
                ack_set=[0b101] if acked[offset] else [],
                consumer_epoch=7,
            ),
            write_entry(WireEntry(encode_metadata(metadata_of(record)), record.value or b"")),
        )
    assert found.endpoint.sizes == {2: 3, 3: 3}


def test_an_entry_above_the_limit_of_the_gateway_is_not_delivered() -> None:
    sent, withheld = _Sent(), list[int]()
    found, slot = consumer([], sent, max_entry_bytes=2_000)
    found.endpoint.undeliverable = lambda: withheld.append(1)
    values = [b"x" * 1_000, b"x" * 2_000, b"x" * 1_500]
    partition = PartitionConsumer(slot, found.endpoint)
    found.endpoint.deliver([
        EntryDelivery(PlacedRecord(EntryRecord(None, value, [(PRODUCER, b"4:0:p")], 1_000), offset), partition,
                      offset, 0, 1, None)
        for offset, value in enumerate(values)
    ])  # fmt: skip
    assert [len(each) // 500 for each in sent.frames] == [2, 3]
    assert withheld == [1]


def an_id(slot: PartitionAcks, offset: int) -> Any:
    ledger, entry = slot.layout.position(0, offset)
    return SimpleNamespace(ledgerId=ledger, entryId=entry, ack_set=[])


@pytest.mark.parametrize("kind", [0, 1])
def test_a_client_that_has_yet_to_hear_of_a_seek_acknowledges_nothing_behind_it(kind: int) -> None:
    """Another consumer, or an operator, sought. Source: Pulsar's ServerCnx.handleAck, which drops what is said of a
    consumer that was disconnected."""
    lost: list[str] = []
    found, slot = consumer(lost)
    found.acknowledge(kind, [an_id(slot, 3)])
    assert list(slot.cumulative if kind else slot.acks) == [3]
    slot.forget_acknowledgements()
    found.endpoint.sought()
    assert lost == ["lost"]
    found.acknowledge(kind, [an_id(slot, 3)])
    found.endpoint.seeking = False  # its own seek is answered, too
    found.acknowledge(kind, [an_id(slot, 4)])
    assert not slot.has_acknowledgements()
