"""A program of a tenant that moves: it need not know."""

from __future__ import annotations

import threading
from collections import Counter

import pulsar_on_kafka as pulsar
from tests.clusters.cluster import PATIENCE_S


class Program:
    """Sends numbers and acknowledges what it receives, but for every tenth, until it is told to stop."""

    def __init__(self, url: str, topic: str, send_timeout_ms: int = 30_000) -> None:
        """`send_timeout_ms`: 0 for none, where a switch may take as long as it likes."""
        self.client = pulsar.Client(url, stand_in=False)
        self.producer = self.client.create_producer(
            topic, "shop", block_if_queue_full=True, send_timeout_millis=send_timeout_ms
        )
        self.consumer = self.client.subscribe(topic, "billing", pulsar.ConsumerType.Shared)
        self.sent = 0
        self.failed: list[pulsar.Result] = []
        self.received: Counter[int] = Counter()
        self.acknowledged: set[int] = set()
        self.stop = threading.Event()
        self._all_sent = threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._send, self._receive)]
        for thread in self._threads:
            thread.start()

    def _send(self) -> None:
        while not self.stop.wait(0.002):
            self.producer.send_async(b"%d" % self.sent, self._sent)
            self.sent += 1
        self.producer.flush()
        self._all_sent.set()

    def _sent(self, result: pulsar.Result, _: object) -> None:
        if result is not pulsar.Result.Ok:
            self.failed.append(result)

    def _receive(self) -> None:
        while not (self._all_sent.is_set() and len(self.received) >= self.sent):
            try:
                message = self.consumer.receive(1000)
            except pulsar.Timeout:
                continue
            number = int(message.data())
            self.received[number] += 1
            if number % 10:
                self.consumer.acknowledge(message)
                self.acknowledged.add(number)

    def end(self) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), (self.sent, len(self.received))
        self.client.close()

    def check(self, most_twice: int) -> None:
        """Nothing is lost, and of what it acknowledged at most `most_twice` messages came again. Call `end` first."""
        assert not self.failed
        missing = set(range(self.sent)).difference(self.received)
        assert not missing, "nothing is lost"
        assert len(self.received) == self.sent, "nothing is there that nobody sent"
        twice = {number for number, times in self.received.items() if times > 1} & self.acknowledged
        assert len(twice) <= most_twice, "only what was in flight when it switched comes again"
