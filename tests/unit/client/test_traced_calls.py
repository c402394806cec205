"""A consumer of whatever class is traced, and its open spans are bounded. What spans tell: tests/integration/client."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pulsar_on_kafka.client import tracing
from pulsar_on_kafka.client.consumer.consumer import Consumer, ConsumerOptions
from pulsar_on_kafka.client.values.message import Message
from pulsar_on_kafka.client.values.message_id import MessageId
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId

TOPIC = "persistent://public/default/orders"


class Other:
    """Something else stands first among the bases, as in a consumer that goes with its tenant."""


class OddConsumer(Other, Consumer):
    """A consumer without a cluster."""

    def __init__(self) -> None:
        self.acknowledged: list[object] = []
        self._next = 0

    def receive(self, timeout_millis: int | None = None) -> Message:
        self._next += 1
        message_id = NativeMessageId(-1, 0, self._next, -1)
        message_id.topic_name(TOPIC)
        made = SimpleNamespace(
            properties=dict, message_id=lambda: message_id, topic_name=lambda: TOPIC, trace_context=None
        )
        return cast("Message", made)

    def acknowledge(self, message: Any, *, txn: object = None, wait: bool = False) -> None:
        self.acknowledged.append(message)

    def leave(self) -> None:
        self.acknowledged.append("left")


def test_any_class_of_consumer_is_traced_and_no_more_spans_are_open_than_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tracing, "MAX_OPEN", 2)
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    own = OddConsumer()
    consumer = tracing.Tracing(provider).consumer(ConsumerOptions("orders", "s"), lambda listener: own)

    def processed() -> list[object]:
        found = [span for span in exporter.get_finished_spans() if span.name.startswith("process ")]
        return [(span.attributes or {}).get(tracing.ACKNOWLEDGMENT) for span in found]

    assert consumer is own
    messages = [consumer.receive() for _ in range(3)]
    assert processed() == [None]  # the oldest of three
    consumer.acknowledge(messages[2].message_id())
    assert processed() == [None, "acknowledge"]
    consumer.acknowledge(MessageId.latest)
    consumer.leave()
    assert processed() == [None, "acknowledge", None]
    assert own.acknowledged == [messages[2].message_id(), MessageId.latest, "left"]
