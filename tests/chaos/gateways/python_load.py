"""The official Python client on a gateway: messages and acknowledgements one by one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pulsar_on_kafka_mapping.names.subscription_group import group_id
from pulsar_on_kafka_mapping.names.topic_name import TopicName, kafka_topic
from tests.chaos.evidence import Position
from tests.chaos.gateways.fleet import Fleet, GatewayProcess, Receipt, check_none_again, longest_gap_s
from tests.chaos.outside import Sampler
from tests.waiting import until

pulsar: Any = pytest.importorskip("pulsar", reason="the official client, pulsar-client, is not installed")

_RECEIVE_MS = 100
_PACE_S = 0.002


class PythonLoad:
    """A producer and a consumer of one topic, each with a thread; both write down what they did."""

    def __init__(self, address: str, bootstrap: str, topic: str, kind: Any) -> None:
        self.topic = topic
        self._kind = kind.name
        self._sent: list[str] = []
        self._with_receipt: set[str] = set()
        self._failed: list[Any] = []
        self._received: list[Receipt] = []
        self._client = pulsar.Client(address, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        self._consumer = self._client.subscribe(
            topic, "s", kind, initial_position=pulsar.InitialPosition.Earliest, receiver_queue_size=100
        )
        self._producer = self._client.create_producer(
            topic, batching_enabled=False, send_timeout_millis=0, block_if_queue_full=True
        )
        name = kafka_topic(TopicName.parse(topic))
        self._sampler = Sampler(bootstrap, group_id(name, "s"), name, 1)
        self._produces, self._consumes = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._produce, self._consume)]
        for thread in self._threads:
            thread.start()

    def _produce(self) -> None:
        while not self._produces.wait(_PACE_S):
            text = str(len(self._sent))
            self._sent.append(text)
            self._producer.send_async(text.encode(), self._answered(text))

    def _answered(self, text: str) -> Callable[[Any, Any], None]:
        def answered(result: Any, _: Any) -> None:
            if result == pulsar.Result.Ok:
                self._with_receipt.add(text)
            else:
                self._failed.append(result)

        return answered

    def _consume(self) -> None:
        while not self._consumes.is_set():
            try:
                message = self._consumer.receive(_RECEIVE_MS)
            except pulsar.Timeout:
                continue
            where = Position(0, message.message_id().entry_id())
            self._received.append(Receipt(time.monotonic(), where, message.data().decode()))
            self._consumer.acknowledge(message)

    def done(self, since: float) -> int:
        return sum(each.at > since for each in self._received)

    def latest(self) -> str:
        answered, received = len(self._with_receipt), len(self._received)
        return f"{len(self._sent)} sent, {answered} with a receipt, {received} received, {self._failed} failed"

    def finish(self) -> None:
        self._produces.set()
        self._threads[0].join(60)
        until(lambda: len(self._with_receipt) == len(self._sent) or self._failed, "every receipt")
        assert not self._failed
        until(lambda: {each.text for each in self._received} >= self._with_receipt, "everything with a receipt to come")

    def judge(self, since: float, faults: int) -> str:
        self._sampler.close()
        check_none_again(self.topic, self._sampler.samples, self._received)
        again = len(self._received) - len({each.text for each in self._received})
        gap_s = longest_gap_s((each.at for each in self._received), since)
        return f"Python {self._kind}: nothing came for {gap_s:.1f} s, {again} of {len(self._received)} came again"

    def close(self) -> None:
        self._produces.set()
        self._consumes.set()
        for thread in self._threads:
            thread.join(60)
        self._client.close()


def somebody_else_consumes(topic: str, gateway: GatewayProcess) -> None:
    """Another client gets messages of the Shared subscription by that gateway, and leaves them."""
    client = pulsar.Client(gateway.address, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    client.create_producer(topic).send(b"from elsewhere")
    consumer.receive(60_000)
    client.close()


def python_loads(fleet: Fleet) -> Sequence[PythonLoad]:
    """A Shared subscription, and an Exclusive one."""
    kinds = (pulsar.ConsumerType.Shared, pulsar.ConsumerType.Exclusive)
    return [PythonLoad(fleet.address, fleet.bootstrap, fleet.topic(), kind) for kind in kinds]
