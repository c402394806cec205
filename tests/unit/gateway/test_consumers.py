"""A consumer of a connection: which of its client's acknowledgements count."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import DeliveryRules, PartitionAcks
from pulsar_on_kafka.gateway.handlers.entry_encoder import OutgoingEntries
from pulsar_on_kafka.gateway.handlers.wire_consumer import SubscriptionConsumer, Wire, WireEndpoint
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout

TOPIC = "persistent://public/default/orders"


def consumer(lost: list[str]) -> tuple[SubscriptionConsumer, PartitionAcks]:
    slot = PartitionAcks(TOPIC, 0, -1, LedgerLayout(1, 10))
    meter: Any = SimpleNamespace(acknowledged=0)
    wire = Wire(TOPIC, cast("Any", None), lambda: lost.append("lost"), 0, OutgoingEntries(), meter)
    endpoint = WireEndpoint("c", 1, wire, DeliveryRules())
    place = SimpleNamespace(node=None, number=0, topic=SimpleNamespace(layout=slot.layout))
    member = SimpleNamespace(slot=lambda number: slot, type=SimpleNamespace(is_shared=False))
    return SubscriptionConsumer(cast("Any", place), cast("Any", None), cast("Any", member), endpoint), slot


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
