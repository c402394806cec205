"""Messages to a Pulsar, chunk by chunk."""

from __future__ import annotations

import time
from typing import Any

from pulsar_on_kafka_mapping.wire.commands import Type
from pulsar_on_kafka_mapping.wire.message_metadata import PulsarMetadata
from tests.integration.gateway.wire import Wire


class ByHand:
    """A producer on Pulsar that sends chunks one by one."""

    def __init__(self, wire: Wire, topic: str) -> None:
        self._wire = wire
        self._sent = 0
        assert wire.connect()[0] is Type.CONNECTED
        wire.ask(Type.LOOKUP_TOPIC, topic=topic, request_id=1)  # loads it
        self._name = wire.ask(Type.PRODUCER, topic=topic, producer_id=1, request_id=2).producer_name

    def send(self, payload: bytes, **fields: Any) -> None:
        metadata = PulsarMetadata(
            producer_name=self._name, sequence_id=self._sent, publish_time_ms=time.time_ns() // 1_000_000, **fields
        )
        self._wire.send_as(metadata, 1, payload)
        assert self._wire.hear()[0] is Type.SEND_RECEIPT
        self._sent += 1
